"""Runs one peer on one workload in a process of its own, and gives it its turns from here.

Threads, compiler settings and thread pools belong to a process, so contenders share none. Whose
turn it is not is stopped: pools of threads spin on after their last work (ONNX Runtime's for some
fifty milliseconds), on cores that belong to somebody else by then. Knows nothing of what a peer
does.
"""

import importlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from grainshift.bench.children import children
from grainshift.bench.measure import calls_per_reading, timed
from grainshift.bench.mode import Mode, first_answer, plain, surroundings
from grainshift.bench.peer import Inputs, Peer, PeerUnavailable, Run
from grainshift.runtime.build_child import die_with_parent

READING_S = 200e-6
_WARM_S = 0.015


@dataclass(frozen=True, slots=True)
class Workload:
    """A model and its inputs: what `function` of `module` returns, given the arguments."""

    name: str
    module: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = Mode.CALL

    def build(self) -> tuple[Any, Inputs]:
        """The model, in training only where that is measured, and the inputs of one call."""
        model, inputs = getattr(importlib.import_module(self.module), self.function)(
            **self.arguments
        )
        return model.train(self.mode is Mode.TRAIN), tuple(inputs)


class Contender:
    """A peer that stands ready in its own process; `turn` is what `measure` takes."""

    def __init__(
        self, workload: Workload, peer: Peer, threads: int, timeout_s: float = 600.0
    ) -> None:
        context = children()
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(
            target=_serve, args=(theirs, workload, peer, threads), daemon=True
        )
        self._child.start()
        theirs.close()
        self.threads = threads
        try:
            self.error_ratio, self.remark = self._answer(timeout_s)
            self._send(signal.SIGSTOP)
        except BaseException:
            self.close()
            raise

    def turn(self, readings: int) -> tuple[float, ...]:
        """Seconds for one call, so many times over."""
        self._send(signal.SIGCONT)
        try:
            self._pipe.send(readings)
            return tuple(self._answer(None))
        finally:
            self._send(signal.SIGSTOP)

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._child.kill()
        self._child.join()

    def _send(self, what: signal.Signals) -> None:
        if self._child.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child.pid, what)

    def _answer(self, timeout_s: float | None) -> Any:
        if not self._pipe.poll(timeout_s):
            raise PeerUnavailable(f"not ready after {timeout_s:.0f} s")
        try:
            ready, answer = self._pipe.recv()
        except EOFError:
            self._child.join()
            raise PeerUnavailable(f"its process ended with {self._child.exitcode}") from None
        if not ready:
            raise PeerUnavailable(answer)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _serve(pipe: Connection, workload: Workload, peer: Peer, threads: int) -> None:
    """The life of the child: prepare, then answer turns until the parent hangs up."""
    die_with_parent(os.getppid())  # stopped, it would not notice
    _silence()
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        try:
            run, *told = _prepared(workload, peer, threads)
        except Exception as fault:  # noqa: BLE001 - whatever a peer raises, it does not compete
            pipe.send((False, _sentence(fault)))
            return
        with surroundings(workload.mode):
            calls = calls_per_reading(run, time.perf_counter, READING_S)
            turn = timed(run, time.perf_counter, calls)
            pipe.send((True, told))  # and from here on it is stopped between its turns
            while True:
                readings = pipe.recv()
                _warm(run)
                pipe.send((True, turn(readings)))


def _warm(run: Callable[[], Any]) -> None:
    """Begin a turn: the cores and caches were another contender's until now."""
    end_s = time.perf_counter() + _WARM_S
    run()
    while time.perf_counter() < end_s:
        run()


def _silence() -> None:
    """Send away what compilers and exporters print; a refusal travels through the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _prepared(workload: Workload, peer: Peer, threads: int) -> tuple[Run, float, str]:
    import torch

    torch.set_num_threads(threads)
    model, inputs = workload.build()
    mode = workload.mode
    with surroundings(mode):
        expected = first_answer(plain(model, inputs, mode), mode)
    run = peer.way(mode)(model, inputs, threads)
    with surroundings(mode):
        error_ratio = _error_ratio(first_answer(run, mode), expected)
    return run, error_ratio, peer.remark(model) if peer.remark else ""


def _error_ratio(actual: Any, expected: Any) -> float:
    """The largest difference between two outputs, relative to the largest value expected."""
    import torch
    from torch.utils import _pytree as pytree

    worst = 0.0
    for ours, theirs in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        reference = torch.as_tensor(theirs).double()
        scale = reference.abs().max().clamp_min(1e-30)
        difference = (torch.as_tensor(ours).double() - reference).abs().max() / scale
        worst = max(worst, float(difference))
    return worst


def _sentence(fault: Exception) -> str:
    first = (str(fault).strip().splitlines() or [""])[0][:200]
    return first if isinstance(fault, PeerUnavailable) else f"{type(fault).__name__}: {first}"
