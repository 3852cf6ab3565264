"""Reads small kernel files, once or again and again, and their few text forms. Knows no meaning."""

import os
from pathlib import Path
from typing import final

PROC = Path("/proc")
SYS = Path("/sys")
_HIGHEST_CORE = 1 << 14  # beyond any kernel's


def read_text(path: Path) -> str:
    """The text of a small file, stripped; empty when it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """The whole number a file holds; None when it holds none ('max' included)."""
    text = read_text(path)
    return int(text) if text.isdecimal() else None


def parse_cores(text: str) -> tuple[int, ...]:
    """The cores in a kernel list such as '0-3,8'; parts that make no sense are left out."""
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            cores.update(range(int(first), min(int(last or first), _HIGHEST_CORE) + 1))
    return tuple(sorted(cores))


def parse_size(text: str) -> int:
    """Bytes in a size such as '32K'; 0 when it makes no sense."""
    number, unit = text.rstrip("KMG"), text[-1:]
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(unit, 1)
    return int(number) * factor if number.isdecimal() else 0


@final
class OpenFile:
    """A file kept open and reread from its start, which costs a third of opening it anew."""

    def __init__(self, path: Path, size_bytes: int = 4096) -> None:
        self._size_bytes = size_bytes
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    @property
    def found(self) -> bool:
        """Whether the file could be opened."""
        return self._fd >= 0

    def read(self) -> bytes:
        """What the file holds now; OSError when it is gone."""
        return os.pread(self._fd, self._size_bytes, 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def first_found(paths: tuple[Path, ...], size_bytes: int = 4096) -> OpenFile | None:
    """The first of these files that can be opened and read."""
    for path in paths:
        file = OpenFile(path, size_bytes)
        try:
            if file.read():
                return file
        except OSError:
            pass
        file.close()
    return None
