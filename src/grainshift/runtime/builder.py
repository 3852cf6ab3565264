"""Builders: do recipes in other processes at idle priority. Know no Choice and no Site."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil  # type: ignore[import-untyped]

from grainshift.core.family import Recipe

_CHILD = Path(__file__).with_name("build_child.py")
_TAIL_BYTES = 1 << 16
_ENOUGH = 0.25  # of a core: who gets that much is not in need of haste


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a recipe ended; `failure` is empty when it went well, and `folder` when it did not."""

    order: Hashable
    folder: str
    seconds: float
    failure: str = ""


@dataclass(slots=True)
class _Running:
    order: Hashable
    recipe: Recipe
    folder: str
    child: "subprocess.Popen[bytes]"
    started_s: float
    errors: IO[bytes]
    looked_s: float
    worked_s: float = 0.0
    hurried: bool = False


@dataclass(slots=True)
class Builders:
    """At most `count` recipes at a time, each in a process and an empty folder of its own.

    Folders of failed recipes go at once, the others when they are discarded or at `close`, and
    those of a process that was killed when the next one begins to build in the same room.

    A build gets what cores nobody else wants. Where that is next to nothing for `patience_s`, it
    begins again and takes its small part. What is done aside has one builder more, for itself.
    """

    room: Path
    count: int = 1
    timeout_s: float = 300.0
    patience_s: float = 8.0
    _waiting: deque[tuple[Hashable, Recipe]] = field(default_factory=deque)
    _running: list[_Running] = field(default_factory=list)
    _own: Path | None = None
    _own_lock: int = -1
    _owner: int = field(default_factory=os.getpid)

    def submit(self, order: Hashable, recipe: Recipe) -> None:
        """Have a recipe done; `poll` tells when."""
        self._waiting.append((order, recipe))

    def poll(self, at_s: float) -> list[Outcome]:
        """What ended since the last poll; starts what waits. Never raises."""
        if os.getpid() != self._owner:  # forked: the children are the other process's
            return []
        outcomes, going = [], []
        for running in self._running:
            outcome = self._end(running, at_s) or self._hurry(running, at_s)
            if outcome is None:
                going.append(running)
            else:
                outcomes.append(outcome)
        self._running = going
        for order, recipe in list(self._waiting):
            beside = sum(one.recipe.aside == recipe.aside for one in self._running)
            if beside >= (1 if recipe.aside else self.count):
                continue
            self._waiting.remove((order, recipe))
            try:
                self._running.append(self._start(order, recipe, at_s))
            except Exception as fault:  # noqa: BLE001 - a fault of a build turns into an outcome
                outcomes.append(Outcome(order, "", 0.0, f"no builder could start: {fault}"))
        return outcomes

    @property
    def busy(self) -> bool:
        """Whether anything is being built or waits for it."""
        return bool(self._running or self._waiting)

    def discard(self, folder: str) -> None:
        """Remove what a recipe left, once nothing reads it any more."""
        if folder and self._own is not None and Path(folder).parent == self._own:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End whatever is being built and remove all folders; a forked process leaves both be."""
        self._waiting.clear()
        running, self._running = self._running, []
        own, self._own = self._own, None
        if os.getpid() != self._owner:
            return
        for one in running:
            _kill(one.child)
            one.errors.close()
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)
            os.close(self._own_lock)

    def _start(self, order: Hashable, recipe: Recipe, at_s: float) -> _Running:
        if self._own is None:
            self._own, self._own_lock = _move_in(self.room)
        folder = tempfile.mkdtemp(prefix="build-", dir=self._own)
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        try:
            child = _spawn(recipe, folder, errors, hurried=False)
        except BaseException:
            errors.close()
            self.discard(folder)
            raise
        return _Running(order, recipe, folder, child, at_s, errors, looked_s=at_s)

    def _hurry(self, running: _Running, at_s: float) -> Outcome | None:
        """Begin a build again that idle priority does not get done."""
        if running.hurried or at_s - running.looked_s <= self.patience_s:
            return None
        worked_s, before_s = _worked_s(running.child.pid), running.worked_s
        running.looked_s, running.worked_s = at_s, worked_s
        if worked_s - before_s > _ENOUGH * self.patience_s:
            return None
        _kill(running.child)
        self.discard(running.folder)
        try:
            running.folder = tempfile.mkdtemp(prefix="build-", dir=self._own)
            running.child = _spawn(running.recipe, running.folder, running.errors, hurried=True)
        except Exception as fault:  # noqa: BLE001 - a fault of a build turns into an outcome
            running.errors.close()
            self.discard(running.folder)
            seconds = at_s - running.started_s
            return Outcome(running.order, "", seconds, f"no builder could start: {fault}")
        running.hurried = True
        return None

    def _end(self, running: _Running, at_s: float) -> Outcome | None:
        code = running.child.poll()
        seconds = at_s - running.started_s
        if code is None and seconds <= self.timeout_s:
            return None
        if code is None:
            _kill(running.child)
            failure = f"gave up after {self.timeout_s:.3g} s"
        else:
            failure = _why(code, running.errors)
        running.errors.close()
        if failure:
            self.discard(running.folder)
        return Outcome(running.order, "" if failure else running.folder, seconds, failure)


def _spawn(
    recipe: Recipe, folder: str, errors: IO[bytes], *, hurried: bool
) -> "subprocess.Popen[bytes]":
    say = {
        "module": recipe.module,
        "function": recipe.function,
        "arguments": recipe.arguments,
        "folder": folder,
        "parent": os.getpid(),
        "path": sys.path,
        "hurried": hurried,
    }
    with tempfile.TemporaryFile() as order:  # unlike a pipe, it never makes us wait for a reader
        order.write(json.dumps(say).encode())
        order.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=order,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            close_fds=True,
            # An interrupt is not for it, and a kill ends all of it. No session of its own: the
            # kernel may weigh each session as one (autogroup), and idle priority counts inside.
            process_group=0,
        )


def _worked_s(leader: int) -> float:
    """The CPU time of a process and all it began."""
    seconds = 0.0
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(leader)
        for process in (first, *first.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                seconds += sum(process.cpu_times()[:4])  # its own, and of those that ended
    return seconds


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=5.0)


def _move_in(room: Path) -> tuple[Path, int]:
    """A locked folder of our own, after those were removed whose owner is gone."""
    room.mkdir(parents=True, exist_ok=True, mode=0o700)
    door = _lock(room, fcntl.LOCK_EX)  # one process at a time, for a moment
    try:
        for other in room.iterdir():
            with contextlib.suppress(OSError):
                lock = _lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
                os.close(lock)
        own = Path(tempfile.mkdtemp(prefix="session-", dir=room))
        return own, _lock(own, fcntl.LOCK_EX)
    finally:
        os.close(door)


def _lock(folder: Path, kind: int) -> int:
    """Lock a folder for as long as this process lives, or until the answer is closed."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, kind)
    except OSError:
        os.close(lock)
        raise
    return lock


def _why(code: int, errors: IO[bytes]) -> str:
    if code == 0:
        return ""
    if code < 0:
        return f"the builder was ended by signal {-code}"
    errors.seek(max(errors.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else f"the builder ended with status {code}"
