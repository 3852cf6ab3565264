"""Builds C++ sources with the user's compiler, keeps the library in private, and checks it again.

Knows nothing of what the library does. A library is loaded only when it is a plain file of this
user's that nobody else may write, in a folder of which the same is true, and when it still has
the hash that was written beside it when it was built.
"""

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grainshift.core.family import Recipe

_COMPILERS = ("g++", "clang++", "c++")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared")
_BUILT = "library.so"
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Native:
    """A library to be built from `main`, one of the files of the folder `sources`."""

    name: str
    sources: Path
    main: str
    folder: Path

    @property
    def recipe(self) -> Recipe | None:
        """How another process builds it; None where it is kept already or there is no compiler."""
        compiler = find_compiler()
        if compiler is None or self.kept() is not None:
            return None
        arguments = {"compiler": compiler, "main": str(self.sources / self.main)}
        return Recipe(__name__, "compile_here", arguments)

    @property
    def is_possible(self) -> bool:
        """Whether it is kept, or could be built."""
        return find_compiler() is not None or self.kept() is not None

    def kept(self) -> Path | None:
        """The library as it was kept, if it can be trusted."""
        path = self._path
        return path if _is_private(path) and _matches(path) else None

    def keep(self, folder: str) -> Path:
        """Take in what the recipe left in its folder."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = (Path(folder) / _BUILT).read_bytes()
        written = _write(self._path, content), _write(_seal(self._path), _hash(content).encode())
        path = self.kept()
        if path is None or not all(written):
            raise OSError(f"{self.folder} is not private to this user; chmod 700 would do")
        return path

    def build(self) -> Path:
        """The library, built here and now if it has to be."""
        if (path := self.kept()) is not None:
            return path
        compiler = find_compiler()
        if compiler is None:
            raise OSError(f"there is no C++ compiler; one of {', '.join(_COMPILERS)} would do")
        with tempfile.TemporaryDirectory() as folder:
            compile_here(compiler, str(self.sources / self.main), folder)
            return self.keep(folder)

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.name}-{_key(self.sources)}.so"


@cache
def find_compiler() -> str | None:
    """The user's C++ compiler."""
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def compile_here(compiler: str, main: str, folder: str = ".") -> None:
    """Compile into a folder; what the compiler says when it fails becomes the error."""
    target = str(Path(folder) / _BUILT)
    done = subprocess.run(
        [compiler, *_FLAGS, "-o", target, main],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        first = next((line for line in said if "error" in line), said[-1])
        raise OSError(f"{compiler} could not build {Path(main).name}: {first:.300}")


@cache
def _key(sources: Path) -> str:
    """What a built library depends on: its sources, the compiler and its flags, the processor."""
    told = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        if path.suffix in (".h", ".cpp"):
            told.update(path.name.encode() + path.read_bytes())
    for word in (*_FLAGS, find_compiler() or "", *_processor()):
        told.update(word.encode() + b"\0")
    return told.hexdigest()[:24]


def _processor() -> Iterable[str]:
    yield platform.machine()
    with suppress(OSError), Path("/proc/cpuinfo").open() as file:
        for line in file:
            if line.startswith(("flags", "Features", "model name")):
                yield line
            if not line.strip():  # the first processor speaks for all
                return


def _is_private(path: Path) -> bool:
    try:
        file, folder = path.lstat(), path.parent.stat()
    except OSError:
        return False
    mine = os.getuid()
    owned = file.st_uid == mine and folder.st_uid == mine
    open_to_others = (file.st_mode | folder.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(file.st_mode) and owned and not open_to_others


def _matches(path: Path) -> bool:
    try:
        return _hash(path.read_bytes()) == _seal(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False


def _seal(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> bool:
    """Write a private file, whole or not at all."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(draft).replace(path)
    except OSError:
        with suppress(OSError):
            Path(draft).unlink()
        raise
    return True
