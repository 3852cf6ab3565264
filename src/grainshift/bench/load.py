"""Puts load on this machine: busy cores, and copying that fills the memory's bandwidth.

Each burden is a process of its own that is seen working before the body starts, and that ends by
itself when this process is gone. Knows nothing of what is measured meanwhile.
"""

import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path

_BURDEN = Path(__file__).with_name("burden.py")


@contextmanager
def busy_core(
    count: int = 1, cores: Sequence[int] = (), timeout_s: float = 20.0
) -> Iterator[tuple[int, ...]]:
    """Keep `count` cores busy, pinned in turn to `cores` if given; gives the processes' ids."""
    with _burdens("busy", count, cores, 0, timeout_s) as ids:
        yield ids


@contextmanager
def memory_hog(
    count: int = 1,
    size_bytes: int = 256 << 20,
    cores: Sequence[int] = (),
    timeout_s: float = 20.0,
) -> Iterator[tuple[int, ...]]:
    """Let `count` processes copy between two halves of `size_bytes` each, far beyond any cache."""
    with _burdens("copy", count, cores, size_bytes, timeout_s) as ids:
        yield ids


@contextmanager
def _burdens(
    kind: str, count: int, cores: Sequence[int], size_bytes: int, timeout_s: float
) -> Iterator[tuple[int, ...]]:
    pins = islice(cycle(cores), count) if cores else [-1] * count
    with ExitStack() as stack:
        started = [stack.enter_context(_burden(kind, pin, size_bytes)) for pin in pins]
        for process in started:
            _confirm(process, kind, timeout_s)
        yield tuple(process.pid for process in started)


@contextmanager
def _burden(kind: str, pin: int, size_bytes: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", str(_BURDEN), kind, str(pin), str(size_bytes)]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # in a group of its own: what interrupts us must not reach it first
        command, stdin=pipe, stdout=pipe, process_group=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _confirm(process: subprocess.Popen[bytes], kind: str, timeout_s: float) -> None:
    """Wait until a burden has said that it is at work."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(timeout_s) or process.stdout.read(1) != b"w":
            raise RuntimeError(f"the {kind} load did not start within {timeout_s:g} s")
