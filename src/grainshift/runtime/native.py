"""Builds C++ sources with the user's compiler, keeps the library in private, and checks it again.

Knows nothing of what the library does. A library is loaded only when it is a plain file of this
user's that nobody else may write, in a folder of which the same is true, and when it still has
the hash that was written beside it when it was built.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grainshift.core.family import Recipe

_COMPILERS = ("g++", "clang++", "c++")
_FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared")
_TIMEOUT_S = 250.0  # less than a builder waits, so that a failure can be told
Job = tuple[str, str, list[str], bool]  # name, source, flags, needed


@dataclass(frozen=True, slots=True)
class Native:
    """A library to be built from `main`, one of the files of the folder `sources`.

    flags: what the compiler is told beside the usual, libraries to link with included.
    needed: whether a failure to build it is a fault; one that is not needed is given up quietly.
    """

    name: str
    sources: Path
    main: str
    folder: Path
    flags: tuple[str, ...] = ()
    needed: bool = True

    @property
    def is_possible(self) -> bool:
        """Whether it is kept, or could be built."""
        return self.kept() is not None or (find_compiler() is not None and not self.is_given_up)

    @property
    def is_given_up(self) -> bool:
        """Whether it was tried and could not be built by this compiler from these sources."""
        return _is_private(self._failure)

    def kept(self) -> Path | None:
        """The library as it was kept, if it can be trusted."""
        path = self._path
        return path if _is_private(path) and _matches(path) else None

    def keep(self, folder: str) -> Path | None:
        """Take in what the recipe left in its folder: the library, or why there is none."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (failure := Path(folder) / f"{self.name}.failed").exists():
            _write(self._failure, failure.read_bytes())
            return None
        if not (built := Path(folder) / f"{self.name}.so").exists():
            return self.kept()  # it was kept already when the recipe was made
        if reason := _unloadable(built):
            if self.needed:
                raise OSError(f"what {find_compiler()} built cannot be loaded: {reason}")
            _write(self._failure, reason.encode())
            return None
        content = built.read_bytes()
        _write(self._path, content)
        _write(_seal(self._path), _hash(content).encode())
        path = self.kept()
        if path is None:
            raise OSError(f"{self.folder} is not private to this user; chmod 700 would do")
        return path

    def build(self) -> Path | None:
        """The library, built here and now if it has to be; None where it is given up."""
        if (path := self.kept()) is not None or self.is_given_up:
            return path
        compiler = find_compiler()
        if compiler is None:
            raise OSError(f"there is no C++ compiler; one of {', '.join(_COMPILERS)} would do")
        with tempfile.TemporaryDirectory() as folder:
            compile_here(compiler, [self.job], folder)
            return self.keep(folder)

    @property
    def job(self) -> Job:
        """What `compile_here` has to do for it."""
        return self.name, str(self.sources / self.main), list(self.flags), self.needed

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.name}-{_key(self.sources, self.flags)}.so"

    @property
    def _failure(self) -> Path:
        return self._path.with_suffix(".failed")


def recipe(natives: Iterable[Native]) -> Recipe | None:
    """How another process builds what is not kept; None where nothing is left to do.

    It is done aside where none of that is needed.
    """
    compiler = find_compiler()
    left = [one for one in natives if one.kept() is None and not one.is_given_up]
    if compiler is None or not left:
        return None
    arguments = {"compiler": compiler, "jobs": [one.job for one in left]}
    return Recipe(__name__, "compile_here", arguments, aside=not any(one.needed for one in left))


@cache
def find_compiler() -> str | None:
    """The user's C++ compiler."""
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def compile_here(compiler: str, jobs: Sequence[Job], folder: str = ".") -> None:
    """Compile into a folder; why something could not be built is an error, or left in a file."""
    for name, main, flags, needed in jobs:
        failure = _compile(compiler, main, flags, str(Path(folder) / f"{name}.so"))
        if failure and needed:
            raise OSError(f"{compiler} could not build {Path(main).name}: {failure}")
        if failure:
            (Path(folder) / f"{name}.failed").write_text(failure)


def _unloadable(library: Path) -> str:
    """Why a library cannot be loaded; empty when it can."""
    try:
        ctypes.CDLL(str(library))
    except OSError as fault:
        return str(fault)
    return ""


def _compile(compiler: str, main: str, flags: Sequence[str], target: str) -> str:
    """What the compiler says when it fails; empty when it did not."""
    try:
        done = subprocess.run(
            [compiler, *_FLAGS, "-o", target, main, *flags],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it was not done after {_TIMEOUT_S:.0f} s"
    if not done.returncode:
        return ""
    said = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
    first = next((line for line in said if "error" in line), said[-1])
    return f"{first:.300}"


@cache
def _key(sources: Path, flags: tuple[str, ...]) -> str:
    """What a built library depends on: its sources, the flags, the processor.

    Not the compiler: what is kept runs where there is none.
    """
    told = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        if path.suffix in (".h", ".cpp"):
            told.update(path.name.encode() + path.read_bytes())
    for word in (*_FLAGS, *flags, *_processor()):
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


def _write(path: Path, content: bytes) -> None:
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
