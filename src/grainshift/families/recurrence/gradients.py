"""The gradients of one sweep's weights and inputs, as large products. Knows no step.

What the kernels leave of a row lies in PyTorch's order of gates, save that a GRU's begins with the
recurrent candidate: recurrent candidate, reset, update, candidate.
"""

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from grainshift.families.recurrence.library import Library
from grainshift.families.recurrence.offer import can_pack
from grainshift.families.recurrence.shape import Shape
from grainshift.families.recurrence.weights import Weights

_OUTER = struct.Struct("13q")  # the fields of `Outer` in outer.h


class Gradients:
    """Those of one sweep that are wanted; `told` has them, in PyTorch's order, after all `add`s."""

    def __init__(
        self, library: Library, shape: Shape, weights: Weights, wanted: Sequence[bool]
    ) -> None:
        self._library = library
        self._into = weights.into.detach()
        self._multiply = _by_onednn if can_pack() else torch.mm
        self._rows, self._hidden = weights.recurrent.shape
        self._skipped = self._hidden if shape.kind == "GRU" else 0  # the inputs have no part in it
        self._is_more = False
        self.told = [
            weight.new_empty(weight.shape) if is_wanted else None
            for weight, is_wanted in zip(_there(weights), wanted, strict=True)
        ]

    def add(self, left_NK: Tensor, x_NI: Tensor, states_NH: Tensor, threads: int) -> None:
        """Take in what the kernels left of some rows, whose inputs and states before were these."""
        into, recurrent, of_bias, of_recurrent_bias = (*self.told, None, None)[:4]
        left = left_NK[:, self._skipped :]
        self._outer(left, x_NI, into, of_bias, 0, threads)
        shift = self._rows - self._skipped if self._skipped else 0
        self._outer(left_NK, states_NH, recurrent, of_recurrent_bias, shift, threads)
        self._is_more = True

    def inputs(self, left_NK: Tensor) -> Tensor:
        """The gradients of these rows' inputs."""
        return self._multiply(left_NK[:, self._skipped :], self._into)

    def _outer(
        self,
        left_NK: Tensor,
        right_NI: Tensor,
        out: Tensor | None,
        sums: Tensor | None,
        shift: int,
        threads: int,
    ) -> None:
        """The sums over rows of left times right; only `sums` where there is no `out`."""
        if out is None and sums is None:
            return
        columns = right_NI.shape[1] if out is not None else 0
        if right_NI.stride(1) != 1:
            right_NI = right_NI.contiguous()
        call = _OUTER.pack(
            left_NK.data_ptr(),
            right_NI.data_ptr(),
            0 if out is None else out.data_ptr(),
            0 if sums is None else sums.data_ptr(),
            left_NK.stride(0),
            right_NI.stride(0),
            self._rows,
            columns,
            len(left_NK),
            shift,
            self._is_more,
            threads,
            self._library.pool,
        )
        if self._library.outer(call):
            raise MemoryError("there is no memory for the gradients' scratch")


def _there(weights: Weights) -> list[Tensor]:
    return [weight for weight in weights if weight is not None]


def _by_onednn(left: Tensor, right: Tensor) -> Tensor:
    """Twice as fast as `torch.mm` on an AMD processor with AVX-512, where that is left to MKL."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
    return product
