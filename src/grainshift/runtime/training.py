"""Times what runs forwards now and backwards later, from outside. Knows no Slot and no layer.

Inputs pass a gate, an identity whose own way back comes after all of the run's; a hook before the
first node of the way back tells when that begins.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

GATE_S = 50e-6  # what a gate, its way back and the hooks were seen to take


class Watch:
    """Tells the seconds of one run, forwards and backwards, once; or that it never went back."""

    __slots__ = ("_back_since_s", "_clock", "_forwards_s", "_lost", "_told")

    def __init__(
        self,
        clock: Callable[[], float],
        told: Callable[[float], None],
        lost: Callable[[], None] | None,
    ) -> None:
        self._clock = clock
        self._told: Callable[[float], None] | None = told
        self._lost = lost
        self._forwards_s = 0.0
        self._back_since_s: float | None = None

    def run(self, run: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The answer to a call, whose way back is watched."""
        inner = gated(args, self.end)
        start_s = self._clock()
        out = run(*inner)
        self._forwards_s = self._clock() - start_s
        for tensor in wanting(out):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(self._begin)
        return out

    def end(self) -> None:
        """The way back has ended."""
        told, self._told = self._told, None
        if told is not None and self._back_since_s is not None:
            told(self._forwards_s + self._clock() - self._back_since_s)

    def _begin(self, grads: Any) -> None:
        """The run's work cannot begin before the nodes of all its outputs have run."""
        self._back_since_s = self._clock()

    def __del__(self) -> None:
        if self._told is not None and self._lost is not None:
            self._lost()


def gated(args: tuple[Any, ...], end: Callable[[], None]) -> tuple[Any, ...]:
    """The same arguments, behind a gate that calls `end` when all their gradients are there."""
    tensors = list(wanting(args))
    if not tensors:
        return args
    inner: tuple[Any, ...] = _replaced(args, iter(_Gate.apply(end, *tensors)))  # type: ignore[no-untyped-call]
    return inner


def wanting(nest: Any) -> Iterator[Tensor]:
    """The tensors, in tuples and lists, of which gradients are wanted."""
    if isinstance(nest, Tensor):
        if nest.requires_grad:
            yield nest
    elif isinstance(nest, (tuple, list)):
        for part in nest:
            yield from wanting(part)


def run_with_gradients(run: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The answer to a call, and beside it all that a comparison should see: gradients too.

    They are those of half the squared outputs. Nothing is added to anybody's `grad`.
    """
    inner = gated(args, _nothing)
    out = run(*inner)
    outputs = list(wanting(out))
    cotangents = [tensor.detach() for tensor in outputs]
    grads = torch.autograd.grad(
        outputs, list(wanting(inner)), cotangents, retain_graph=True, allow_unused=True
    )
    return out, (out, grads)


class _Gate(torch.autograd.Function):
    """The identity; its way back comes when the gradients of all its outputs are there."""

    @staticmethod
    def forward(ctx: Any, end: Callable[[], None], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.end = end
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        ctx.end()
        return None, *grads


def _replaced(nest: Any, fresh: Iterator[Tensor]) -> Any:
    """The same nest with each tensor of which gradients are wanted replaced by the next one."""
    if isinstance(nest, Tensor):
        return next(fresh) if nest.requires_grad else nest
    if isinstance(nest, (tuple, list)):
        return type(nest)([_replaced(part, fresh) for part in nest])
    return nest


def _nothing() -> None:
    """The gate of a comparison tells nobody."""
