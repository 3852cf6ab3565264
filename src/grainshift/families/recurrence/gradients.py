"""The gradients of one sweep's weights, summed over chunks of steps. Knows no kernel.

The kernels leave a GRU's gradients as recurrent candidate, reset, update, candidate; those of the
other kinds lie in PyTorch's order.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from grainshift.families.recurrence.shape import Shape
from grainshift.families.recurrence.weights import Weights

_ALL = slice(None)


class Gradients:
    """What is wanted of one sweep: of each weight in the order of Weights, or None."""

    def __init__(self, shape: Shape, weights: Weights, wanted: Sequence[bool]) -> None:
        self._weights = weights
        self._wanted = tuple(wanted)
        self._beta = 0  # until something is there to add to
        gru, hidden = shape.kind == "GRU", shape.hidden
        self._inputs = slice(hidden, None) if gru else _ALL
        first, last = slice(2 * hidden), slice(2 * hidden, None)
        self._recurrent = ((_ALL, _ALL),)
        if gru:
            self._recurrent = ((first, slice(hidden, 3 * hidden)), (last, slice(hidden)))
        self._matrices = [
            torch.empty(weight.shape) if is_wanted else None
            for weight, is_wanted in zip(weights[:2], self._wanted[:2], strict=True)
        ]
        self._total: Tensor | None = None

    def add(self, left_NK: Tensor, x_NI: Tensor, states_NH: Tensor) -> None:
        """Take in what the kernels left of some rows, whose inputs and states before were these."""
        into, recurrent = self._matrices
        if into is not None:
            into.addmm_(left_NK[:, self._inputs].t(), x_NI, beta=self._beta)
        if recurrent is not None:
            for rows, columns in self._recurrent:
                recurrent[rows].addmm_(left_NK[:, columns].t(), states_NH, beta=self._beta)
        if any(self._wanted[2:]):
            total = left_NK.sum(0)
            self._total = total if self._total is None else self._total.add_(total)
        self._beta = 1

    def add_inputs(self, left_NK: Tensor, dx_NI: Tensor, to_others: bool) -> None:
        """Write the gradients of these rows' inputs, or add them to what is there of others."""
        beta = 1 if to_others else 0
        dx_NI.addmm_(left_NK[:, self._inputs], self._weights.into.detach(), beta=beta)

    def told(self) -> list[Tensor | None]:
        """The gradient of each weight in PyTorch's order; no two share memory."""
        if len(self._wanted) == 2:
            return self._matrices
        into = recurrent = None
        if self._total is not None:
            into = self._total[self._inputs].clone() if self._wanted[2] else None
            if self._wanted[3]:
                recurrent = torch.empty_like(self._weights.bias_recurrent)
                for rows, columns in self._recurrent:
                    recurrent[rows] = self._total[columns]
        return [*self._matrices, into, recurrent]
