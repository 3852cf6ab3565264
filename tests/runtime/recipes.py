"""Recipes for builders, well-behaved and hostile. They run in other processes."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def tell(**arguments: Any) -> None:
    """Write down what the process sees of itself."""
    facts = {
        "empty": os.listdir("."),  # noqa: PTH208
        "folder": os.getcwd(),  # noqa: PTH109
        "idle": os.sched_getscheduler(0) == os.SCHED_IDLE,
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "nice": os.nice(0),
        "parent": os.getppid(),
        "loaded": sorted(name for name in sys.modules if name.split(".")[0] == "grainshift"),
        "torch": "torch" in sys.modules,
        "arguments": arguments,
    }
    Path("facts.json").write_text(json.dumps(facts))


def fail() -> None:
    """Raise, after leaving half a file."""
    Path("half").write_text("half")
    raise ValueError("no such instruction set")


def chatter() -> None:
    """Write far more to both streams than a pipe holds, then fail."""
    for stream in (sys.stdout, sys.stderr):
        stream.write("noise\n" * 500_000)
    raise ValueError("at last")


def leave(code: Any) -> None:
    """Exit in the middle."""
    sys.exit(code)


def vanish(code: int) -> None:
    """Exit without a word."""
    os._exit(code)


def kill(number: int) -> None:
    """Die by a signal."""
    os.kill(os.getpid(), number)
    time.sleep(60)


def hang(mark: str) -> None:
    """Say the number of this process and of a child of its own, then never end."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    draft = Path(mark + ".draft")
    draft.write_text(f"{os.getpid()} {child}")
    draft.rename(mark)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def tell_in_a_hurry(mark: str) -> None:
    """At idle priority, leave something, say so and never end; else tell."""
    if os.sched_getscheduler(0) != os.SCHED_IDLE:
        tell()
        return
    Path("half").write_text("half")
    draft = Path(mark + ".draft")
    draft.write_text(str(os.getpid()))
    draft.rename(mark)
    time.sleep(600)


def work(mark: str, seconds: float) -> None:
    """Keep a core busy for so many seconds, say so and never end."""
    while time.process_time() < seconds:
        pass
    draft = Path(mark + ".draft")
    draft.write_text(str(os.getpid()))
    draft.rename(mark)
    time.sleep(600)


def wait_for(mark: str) -> None:
    """End as soon as a file appears."""
    while not Path(mark).exists():
        time.sleep(0.005)
    Path("done").write_text("done")
