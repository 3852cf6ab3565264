"""The way back through a layer: the kernels walk its steps, large products do the rest.

The kernels leave the gradients of all sums of some steps; what they mean for inputs, weights and
biases are products of thousands of rows, where PyTorch's own are at their best. The steps are
taken in chunks, so that scratch stays bounded. Knows nothing of autograd, Slots and Choices.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from grainshift.families.recurrence.forecast_kernels import CHUNK_BYTES
from grainshift.families.recurrence.gradients import Gradients
from grainshift.families.recurrence.library import KINDS, Library
from grainshift.families.recurrence.shape import Shape
from grainshift.runtime.pool import Pool

_CALL = struct.Struct("18q")  # the fields of `BackCall` in backward.h


@dataclass(frozen=True, slots=True)
class Ran:
    """A run forwards, as it is needed on the way back: x as TBI, states of all sweeps as SBH.

    `between` holds the outputs of all layers but the last, `kept` the gates of every sweep, both by
    steps and rows; c is None where there are no cell states.
    """

    x: Tensor
    h: Tensor
    c: Tensor | None
    y: Tensor
    between: Tensor
    kept: Tensor


@dataclass(frozen=True, slots=True)
class Back:
    """The gradients of the states: of those after the run, and at the end of those before it."""

    dh: Tensor
    dc: Tensor | None


class Walk:
    """One way back through all layers, from the last to the first."""

    def __init__(
        self,
        library: Library,
        shape: Shape,
        ran: Ran,
        turned: Tensor,
        threads: int,
        pool: Pool,
    ) -> None:
        self._pool = pool
        self._library = library
        self._shape = shape
        self._ran = ran
        self._turned = turned
        self._threads = threads
        self._kind = KINDS.index(shape.kind)
        self._steps, self._rows = ran.x.shape[:2]
        self._left = library.left(self._kind) * shape.hidden

    def through(
        self, dy_TBO: Tensor | None, back: Back, sweeps: Sequence[Gradients], x_wanted: bool
    ) -> Tensor | None:
        """Fills the gradients of all sweeps, and answers those of x where they are wanted."""
        directions = self._shape.directions
        for layer in reversed(range(self._shape.layers)):
            some = sweeps[layer * directions : (layer + 1) * directions]
            dy_TBO = self._layer(layer, dy_TBO, back, some, layer > 0 or x_wanted)
        return dy_TBO

    def _layer(
        self,
        layer: int,
        dy_TBO: Tensor | None,
        back: Back,
        sweeps: Sequence[Gradients],
        x_wanted: bool,
    ) -> Tensor | None:
        ran = self._ran
        x_TBI = ran.x if layer == 0 else ran.between[layer - 1]
        y_TBO = ran.y if layer == self._shape.layers - 1 else ran.between[layer]
        chunks = self._chunks()
        dx_TBI = x_TBI.new_zeros(x_TBI.shape) if x_wanted and len(chunks) > 1 else None
        for turns in chunks:
            left_DNBK = self._leave(layer, turns, y_TBO, dy_TBO, back)
            for direction, sweep in enumerate(sweeps):
                first = turns.start if direction else self._steps - turns.stop
                times = slice(first, first + len(turns))
                left_NK = left_DNBK[direction].flatten(0, 1)
                states_NH = self._before(layer, direction, times, y_TBO)
                sweep.add(left_NK, x_TBI[times].flatten(0, 1), states_NH, self._threads)
                if x_wanted:
                    part_TBI = sweep.inputs(left_NK).view(len(turns), self._rows, -1)
                    dx_TBI = part_TBI if dx_TBI is None else _add_at(dx_TBI, times, part_TBI)
        return dx_TBI

    def _chunks(self) -> list[range]:
        step_bytes = 4 * self._shape.directions * self._rows * self._left
        count = min(-(-self._steps * step_bytes // CHUNK_BYTES), self._steps)
        edges = [self._steps * number // count for number in range(count + 1)]
        return [range(*pair) for pair in pairwise(edges)]

    def _before(self, layer: int, direction: int, times: slice, y_TBO: Tensor) -> Tensor:
        """The hidden states before the steps at these times."""
        hidden = self._shape.hidden
        y_TBH = y_TBO[:, :, direction * hidden : (direction + 1) * hidden]
        h_1BH = self._ran.h[layer * self._shape.directions + direction].unsqueeze(0)
        if direction:
            states = y_TBH[times.start + 1 : times.stop + 1]
            if times.stop == self._steps:
                states = torch.cat((states, h_1BH))
        else:
            states = y_TBH[max(times.start - 1, 0) : times.stop - 1]
            if times.start == 0:
                states = torch.cat((h_1BH, states))
        return states.flatten(0, 1)

    def _leave(
        self, layer: int, turns: range, y_TBO: Tensor, dy_TBO: Tensor | None, back: Back
    ) -> Tensor:
        """What the kernels leave of some turns of the walk through one layer."""
        ran, sweep = self._ran, layer * self._shape.directions
        left_DNBK = self._pool.take(self._shape.directions, len(turns), self._rows, self._left)
        sizes = (self._kind, self._shape.hidden, self._shape.directions, self._steps, self._rows)
        tensors = (
            self._turned[sweep],
            ran.kept[sweep],
            y_TBO,
            dy_TBO,
            ran.h[sweep],
            None if ran.c is None else ran.c[sweep],
            back.dh[sweep],
            None if back.dc is None else back.dc[sweep],
            left_DNBK,
        )
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        asked = (turns.start, turns.stop, self._threads, self._library.pool)
        self._library.run_back(_CALL.pack(*sizes, *asked, *addresses))
        return left_DNBK


def _add_at(total_TBI: Tensor, times: slice, part_TBI: Tensor) -> Tensor:
    total_TBI[times] += part_TBI
    return total_TBI
