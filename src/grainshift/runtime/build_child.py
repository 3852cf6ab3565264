"""The other process of a builder: does one recipe at low priority and ends with its parent.

It is run by its path and imports nothing of ours until it has stepped back.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_HURRIED_NICENESS = 10  # where others want all cores, about a tenth of one


def step_back(*, hurried: bool) -> None:
    """Run only when nobody else wants the core, and be counted as nice where that is counted.

    In a hurry, leave others most of the core that they want too.
    """
    with contextlib.suppress(OSError):
        os.nice(_HURRIED_NICENESS if hurried else 19)
    if hurried:
        return
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def die_with_parent(parent: int, by: int = signal.SIGKILL) -> None:
    """Ask the kernel to end this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it ended before the kernel knew
        sys.exit(1)


def _end_all(*_: object) -> None:
    """End this process and what it began, such as a compiler."""
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Read a recipe from standard input and do it in the folder it names."""
    order = json.load(sys.stdin)
    step_back(hurried=order["hurried"])
    signal.signal(signal.SIGRTMIN, _end_all)
    die_with_parent(order["parent"], signal.SIGRTMIN)
    sys.path[:] = order["path"]
    os.chdir(Path(order["folder"]))
    try:
        function = getattr(importlib.import_module(order["module"]), order["function"])
        function(**order["arguments"])
    except SystemExit as early:
        sys.exit(f"the recipe exited with {early.code!r} instead of coming to its end")


if __name__ == "__main__":
    main()
