"""One process of load, run as a script: `burden.py busy|copy CORE BYTES`. Imports nothing of ours.

It works until its parent hangs up or is gone: the parent holds the other end of its standard
input, which the system closes however the parent ends.
"""

import os
import sys
import threading
import time
from collections.abc import Callable

CONFIRM_S = 0.02


def busy() -> None:
    """Work for about a millisecond."""
    sum(range(50_000))


def copying(size_bytes: int) -> Callable[[], None]:
    """Work that copies one half of a block of memory into the other."""
    half = size_bytes // 2
    block = memoryview(bytearray(b"\1") * (2 * half))
    source, target = block[:half], block[half:]

    def copy() -> None:
        target[:] = source

    return copy


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(0)


def _main(kind: str, core: int, size_bytes: int) -> None:
    parent = os.getppid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if core >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    work = busy if kind == "busy" else copying(size_bytes)
    while time.process_time() < CONFIRM_S:
        work()
    os.write(1, b"w")
    while os.getppid() == parent:  # should a sibling have kept the pipe open
        work()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
