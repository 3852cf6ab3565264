"""A layer that trains on the kernels: one node of autograd that runs forwards and backwards.

What the kernels cannot do (gradients of gradients) and what goes wrong on the way back is computed
by PyTorch's own layer from the same inputs. Knows nothing of Slots.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from grainshift.core.choice import Choice
from grainshift.core.family import Runner
from grainshift.families.recurrence.backward import Back, Ran, Walk
from grainshift.families.recurrence.build import Run, stock
from grainshift.families.recurrence.choice import is_solo
from grainshift.families.recurrence.find import shape_of
from grainshift.families.recurrence.gradients import Gradients
from grainshift.families.recurrence.kernel import runner
from grainshift.families.recurrence.library import KINDS, Library
from grainshift.families.recurrence.net import OWN_REFERENCES, Net
from grainshift.families.recurrence.shape import Shape
from grainshift.families.recurrence.weights import Weights, current, grouped
from grainshift.runtime.pool import Pool

Grads = tuple[Tensor | None, ...]


def build(
    library: Library, net: Net, turned: "Turned", layer: nn.RNNBase, choice: Choice, pool: Pool
) -> Runner:
    """A Choice ready to train a layer: `run(x_TBI, state, flat) -> (y_TBO, state)`."""
    trainer = _Trainer(library, net, turned, layer, choice, pool)
    return Runner(trainer.run, net.fresh().panels.held_bytes + turned.held_bytes)


def there_and_back(
    run: Run, layer: nn.RNNBase, x_TBI: Tensor, state: Any, dy_TBO: Tensor
) -> Tensor:
    """Run a layer forwards by a built Choice, and back from dy; gradients add up in `grad`."""
    y_TBO: Tensor = run(x_TBI, state, current(layer))[0]
    y_TBO.backward(dy_TBO)  # type: ignore[no-untyped-call]
    return y_TBO.detach()


class Turned:
    """A layer's recurrent matrices packed for the way back, and packed anew as they change."""

    __slots__ = ("__weakref__", "_kept", "_library", "_shape")

    def __init__(self, library: Library, shape: Shape) -> None:
        self._library = library
        self._shape = shape
        self._kept: tuple[int, Tensor] | None = None

    @property
    def held_bytes(self) -> int:
        """What one packing takes."""
        return 4 * self._shape.sweeps * self._floats

    def of(self, number: int, weights: Sequence[Weights]) -> Tensor:
        """The matrices of all sweeps, a row each; the weights are those of packing `number`."""
        kept = self._kept
        if kept is not None and kept[0] == number:
            return kept[1]
        del kept  # or its memory could not be used again
        turned = self._pack(weights)
        self._kept = number, turned
        return turned

    @property
    def _floats(self) -> int:
        return self._library.turned_floats(KINDS.index(self._shape.kind), self._shape.hidden)

    def _pack(self, weights: Sequence[Weights]) -> Tensor:
        kind, hidden = KINDS.index(self._shape.kind), self._shape.hidden
        turned = self._room(weights)
        for group, part in zip(weights, turned, strict=True):
            matrix = group.recurrent.detach().contiguous()
            self._library.turn(kind, hidden, matrix.data_ptr(), part.data_ptr())
        return turned

    def _room(self, weights: Sequence[Weights]) -> Tensor:
        """Where to pack: over the last packing, unless somebody is still at it."""
        kept, self._kept = self._kept, None
        if kept is not None:
            turned = kept[1]
            del kept
            if sys.getrefcount(turned) <= OWN_REFERENCES:
                return turned
        return weights[0].recurrent.new_empty(len(weights), self._floats)


class _Trainer:
    """What the node of one Choice needs both ways."""

    def __init__(
        self,
        library: Library,
        net: Net,
        turned: Turned,
        layer: nn.RNNBase,
        choice: Choice,
        pool: Pool,
    ) -> None:
        self.shape = shape_of(layer)
        self.faults: list[Exception] = []
        self._pool = pool
        self._library = library
        self._net = net
        self._turned = turned
        self._bias = layer.bias
        self._is_solo = is_solo(choice)
        self._forward = runner(library, net, layer, choice)
        self._stock = stock(layer)
        self._kept = library.kept(KINDS.index(self.shape.kind))

    def run(self, x_TBI: Tensor, state: Any, flat: list[Tensor]) -> tuple[Tensor, Any]:
        """The answer to one call, and the node that leads back from it."""
        if self.faults:  # of a way back: the Slot hears of it here, where it can answer
            raise self.faults.pop()
        h, c = state if self.shape.kind == "LSTM" else (state, None)
        y_TBO, h_after, *cells = _Node.apply(self, x_TBI, h, c, *flat)  # type: ignore[no-untyped-call]
        return y_TBO, (h_after, *cells) if cells else h_after

    def forwards(self, x_TBI: Tensor, h: Tensor, c: Tensor | None) -> tuple[Ran, int, Any]:
        """Runs the kernels, which keep what the way back needs."""
        shape, (steps, rows) = self.shape, x_TBI.shape[:2]
        width = shape.directions * shape.hidden
        between = self._pool.take(shape.layers - 1, steps, rows, width)
        kept = self._pool.take(shape.sweeps, steps, rows, self._kept * shape.hidden)
        state = h if c is None else (h, c)
        y_TBO, after = self._forward(x_TBI, state, (between.data_ptr(), kept.data_ptr()))
        return Ran(x_TBI, h, c, y_TBO, between, kept), self._net.fresh().number, after

    def backwards(
        self, ran: Ran, number: int, flat: list[Tensor], grads: Grads, wanted: Sequence[bool]
    ) -> Grads:
        """The gradients of x, h, c and all weights, given those of y and the states after."""
        groups = grouped(flat, self._bias)
        each = len(flat) // len(groups)
        sweeps = [
            Gradients(
                self._library,
                self.shape,
                group,
                wanted[3 + number * each : 3 + (number + 1) * each],
            )
            for number, group in enumerate(groups)
        ]
        dy, dh, dc = (*grads, None)[:3]
        back = Back(_begin(dh, ran.h), None if ran.c is None else _begin(dc, ran.c))
        threads = 1 if self._is_solo else torch.get_num_threads()
        turned = self._turned.of(number, groups)
        walk = Walk(self._library, self.shape, ran, turned, threads, self._pool)
        dx = walk.through(None if dy is None else dy.contiguous(), back, sweeps, wanted[0])
        return dx, back.dh, back.dc, *[grad for sweep in sweeps for grad in sweep.told]

    def reference(self, inputs: Sequence[Tensor | None], grads: Grads) -> Grads:
        """The same gradients from PyTorch's own layer, themselves differentiable if asked."""
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            own = [None if part is None else part.view_as(part) for part in inputs]
            x, h, c, *flat = own
            y, after = self._stock(x, h if c is None else (h, c), flat)
        outputs = (y, after) if isinstance(after, Tensor) else (y, *after)
        told = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if grad is not None]
        asked = [part for part in own if part is not None and part.requires_grad]
        found = iter(
            torch.autograd.grad(
                [out for out, _ in told],
                asked,
                [grad for _, grad in told],
                create_graph=create_graph,
                allow_unused=True,
            )
        )
        return tuple(
            next(found) if part is not None and part.requires_grad else None for part in own
        )


class _Node(torch.autograd.Function):
    """A run of the layer; whoever changes its output in place gets PyTorch's own gradients.

    PyTorch's layers allow such a change, and so the outputs are kept under a counter of their own.
    """

    @staticmethod
    def forward(
        ctx: Any, trainer: _Trainer, x: Tensor, h: Tensor, c: Tensor | None, *flat: Tensor
    ) -> tuple[Tensor, ...]:
        ran, ctx.number, after = trainer.forwards(x, h, c)
        ctx.trainer, ctx.seen = trainer, ran.y.detach()
        ctx.version = ctx.seen._version
        inputs = (x, h, c, *flat)
        ctx.save_for_backward(*inputs, *map(_alias, inputs), ran.y.data, ran.between, ran.kept)
        ctx.set_materialize_grads(False)
        return (ran.y, after) if c is None else (ran.y, *after)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        trainer: _Trainer = ctx.trainer
        *both, y, between, kept = ctx.saved_tensors
        inputs, (x, h, c, *flat) = both[: len(both) // 2], both[len(both) // 2 :]
        if torch.is_grad_enabled() or ctx.seen._version != ctx.version:
            return None, *trainer.reference(inputs, grads)
        ran = Ran(x, h.contiguous(), None if c is None else c.contiguous(), y, between, kept)
        try:
            found = trainer.backwards(ran, ctx.number, flat, grads, ctx.needs_input_grad[1:])
        except Exception as fault:  # noqa: BLE001 - the caller gets the baseline's gradients
            trainer.faults.append(fault)
            return None, *trainer.reference(inputs, grads)
        return None, *found


def _alias(value: Tensor | None) -> Tensor | None:
    """The same numbers, which stay though `layer.double()` puts others into the parameter."""
    return None if value is None else value.detach()


def _begin(grad: Tensor | None, like: Tensor) -> Tensor:
    """A gradient to be written to."""
    if grad is None:
        return like.new_zeros(like.shape)
    return grad.clone(memory_format=torch.contiguous_format)
