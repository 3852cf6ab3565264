"""What we may still allocate: the least of what the system has and what each of our groups leaves.

A group leaves its limit less its working set: what it uses, without file pages that the kernel
would drop first.
"""

from typing import final

import psutil  # type: ignore[import-untyped]

from grainshift.core.conditions import Figure
from grainshift.machine.cgroup import MemoryGroup
from grainshift.machine.files import OpenFile, first_found
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment

_BEYOND_BYTES = 1 << 60  # how v1 writes that there is no limit


def open_memory(ground: Ground) -> Gauge:
    """The gauge of free memory."""
    return _Memory(
        first_found((ground.proc / "meminfo",)), [_Group(group) for group in ground.groups.memory]
    )


@final
class _Group:
    """One group's files, kept open; its limit may be changed while we run."""

    def __init__(self, group: MemoryGroup) -> None:
        self._limits = [OpenFile(path) for path in group.limits]
        self._used, self._stat = OpenFile(group.used), OpenFile(group.stat, 16384)
        self._reclaimable = group.reclaimable

    def free_bytes(self) -> int:
        limits = [_number(file.read()) for file in self._limits if file.found]
        limit = min(limits, default=_BEYOND_BYTES)
        if limit >= _BEYOND_BYTES:
            return limit
        return limit - max(0, _number(self._used.read()) - self._reclaimable_bytes())

    def close(self) -> None:
        for file in (*self._limits, self._used, self._stat):
            file.close()

    def _reclaimable_bytes(self) -> int:
        return _after(b"\n" + self._stat.read(), self._reclaimable) if self._stat.found else 0


@final
class _Memory:
    def __init__(self, meminfo: OpenFile | None, groups: list[_Group]) -> None:
        self._meminfo, self._groups = meminfo, groups

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        free = min([self._system_bytes(), *(group.free_bytes() for group in self._groups)])
        return (Figure("free_memory_bytes", float(max(0, free))),)

    def close(self) -> None:
        for group in self._groups:
            group.close()
        if self._meminfo:
            self._meminfo.close()

    def _system_bytes(self) -> int:
        if self._meminfo is None:
            return int(psutil.virtual_memory().available)
        return _after(self._meminfo.read(), b"\nMemAvailable:") << 10


def _number(text: bytes) -> int:
    return _BEYOND_BYTES if text.strip() == b"max" else int(text)


def _after(text: bytes, name: bytes) -> int:
    """The whole number that follows a name."""
    start = text.index(name) + len(name)
    return int(text[start : start + 32].split(maxsplit=1)[0])
