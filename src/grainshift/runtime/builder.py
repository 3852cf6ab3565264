"""Builders: do recipes in other processes at idle priority. Know no Choice and no Site."""

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from grainshift.core.family import Recipe

_CHILD = "grainshift.runtime.build_child"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a recipe ended; `failure` is empty when it went well."""

    order: Hashable
    folder: str
    seconds: float
    failure: str = ""


@dataclass(slots=True)
class _Running:
    order: Hashable
    folder: str
    child: "subprocess.Popen[bytes]"
    started_s: float
    errors: IO[bytes]


@dataclass(slots=True)
class Builders:
    """At most `count` recipes at a time, each in a process and an empty folder of its own."""

    room: Path
    count: int = 1
    timeout_s: float = 300.0
    _waiting: deque[tuple[Hashable, Recipe]] = field(default_factory=deque)
    _running: list[_Running] = field(default_factory=list)

    def submit(self, order: Hashable, recipe: Recipe) -> None:
        """Have a recipe done; `poll` tells when."""
        self._waiting.append((order, recipe))

    def poll(self, at_s: float) -> list[Outcome]:
        """What ended since the last poll; starts what waits."""
        ended = [self._end(running, at_s) for running in self._running]
        outcomes = [outcome for outcome in ended if outcome is not None]
        over = {outcome.folder for outcome in outcomes}
        self._running = [running for running in self._running if running.folder not in over]
        while self._waiting and len(self._running) < self.count:
            order, recipe = self._waiting.popleft()
            try:
                self._running.append(self._start(order, recipe, at_s))
            except OSError as fault:
                outcomes.append(Outcome(order, "", 0.0, f"no builder could start: {fault}"))
        return outcomes

    @property
    def busy(self) -> bool:
        """Whether anything is being built or waits for it."""
        return bool(self._running or self._waiting)

    def close(self) -> None:
        """End whatever is being built."""
        self._waiting.clear()
        for running in self._running:
            running.child.kill()
            running.child.wait()
            running.errors.close()
        self._running = []

    def _start(self, order: Hashable, recipe: Recipe, at_s: float) -> _Running:
        self.room.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = tempfile.mkdtemp(prefix="build-", dir=self.room)
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        child = subprocess.Popen(
            [sys.executable, "-m", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            close_fds=True,
        )
        say = {
            "module": recipe.module,
            "function": recipe.function,
            "arguments": recipe.arguments,
            "folder": folder,
            "parent": os.getpid(),
        }
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(say).encode())
            child.stdin.close()
        except BrokenPipeError:  # it ended already; poll reads why
            pass
        return _Running(order, folder, child, at_s, errors)

    def _end(self, running: _Running, at_s: float) -> Outcome | None:
        code = running.child.poll()
        seconds = at_s - running.started_s
        if code is None and seconds <= self.timeout_s:
            return None
        if code is None:
            running.child.kill()
            running.child.wait()
            failure = f"gave up after {self.timeout_s:.3g} s"
        else:
            failure = _why(code, running.errors)
        running.errors.close()
        return Outcome(running.order, running.folder, seconds, failure)


def _why(code: int, errors: IO[bytes]) -> str:
    if code == 0:
        return ""
    if code < 0:
        return f"the builder was ended by signal {-code}"
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else f"the builder ended with status {code}"
