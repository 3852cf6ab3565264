"""Counts kernel and hardware events of threads by perf_event_open. Knows no meaning of a count."""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence
from enum import Enum
from typing import final

_SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319}
_INHERIT, _NO_KERNEL, _NO_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_THREADS_ONLY = 1 << 35  # not the processes we start; kernels before 5.13 refuse to know it
_TIMES = 1 | 2  # how long the event was enabled, and how long it truly had a counter
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_READING = struct.Struct("=QQQ")


class Event(Enum):
    """What can be counted: the kernel's (type, number) of it."""

    CACHE_REFERENCES = (0, 2)
    CACHE_MISSES = (0, 3)
    TASK_CLOCK_NS = (1, 1)
    PAGE_FAULTS = (1, 2)


@final
class Counter:
    """One event, counted over threads and those that they start."""

    def __init__(self, fds: Sequence[int]) -> None:
        self._fds = list(fds)

    def read(self) -> float:
        """The count since opening, scaled up for the time in which counters were shared."""
        return sum(map(_scaled, self._fds))

    def close(self) -> None:
        """Let go of the kernel's counters."""
        while self._fds:
            os.close(self._fds.pop())


def open_counter(event: Event, threads: Sequence[int]) -> Counter | None:
    """A Counter over these threads; None where the kernel or the processor refuses."""
    fds = [
        fd if (fd := _open(event, thread, _THREADS_ONLY)) >= 0 else _open(event, thread, 0)
        for thread in threads
    ]
    opened = [fd for fd in fds if fd >= 0]
    return Counter(opened) if opened else None


def _open(event: Event, thread: int, extra: int) -> int:
    number = _SYSCALLS.get(platform.machine())
    if number is None or sys.platform != "linux":
        return -1
    kind, config = event.value
    flags = _INHERIT | extra | (_NO_KERNEL | _NO_HYPERVISOR if kind == 0 else 0)
    told = _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, config, 0, 0, _TIMES, flags, 0, 0, 0)
    attributes = ctypes.create_string_buffer(told, len(told))
    no_group, close_on_exec = -1, 8
    return int(
        ctypes.CDLL(None).syscall(
            ctypes.c_long(number),
            attributes,
            ctypes.c_int(thread),
            ctypes.c_int(-1),
            ctypes.c_int(no_group),
            ctypes.c_ulong(close_on_exec),
        )
    )


def _scaled(fd: int) -> float:
    count, enabled, running = _READING.unpack(os.read(fd, _READING.size))
    return float(count * enabled / running) if running else 0.0
