"""The gate arithmetic of LSTM, GRU and RNN, lean: operators write into views made once a run.

Knows no weights, blocks or layers.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from grainshift.families.recurrence.product import Product


class Cell(Protocol):
    """One layer in one direction on its way through a run, with its state so far."""

    def split(self, gates_UBG: Tensor) -> Sequence[Any]:
        """The input products of a block, as the views that each step reads."""

    def walk(self, gates: Sequence[Any], outs_BH: Sequence[Tensor]) -> None:
        """Take one step for each output and write into it."""

    def state(self) -> tuple[Tensor, ...]:
        """The state after the last step."""


class LstmCell:
    """Gates in PyTorch's order: input, forget, candidate, output."""

    def __init__(
        self, product: Product, h_BH: Tensor, c_BH: Tensor, projection_PH: Tensor | None = None
    ) -> None:
        batch, hidden = c_BH.shape
        self._product = product
        self._projection_HP = None if projection_PH is None else projection_PH.t()
        self._h = h_BH
        self._c = c_BH.clone()
        self._gates = h_BH.new_empty((batch, 4 * hidden))
        self._tanh_c = h_BH.new_empty((batch, hidden))

    def split(self, gates_UBG: Tensor) -> Sequence[Tensor]:
        """One view a step."""
        return gates_UBG.unbind(0)

    def walk(self, gates: Sequence[Tensor], outs_BH: Sequence[Tensor]) -> None:
        """Take one step for each output and write into it."""
        h, c, tanh_c, now = self._h, self._c, self._tanh_c, self._gates
        project = self._projection_HP
        hidden = c.shape[1]
        enter, forget, candidate, leave = now.chunk(4, 1)
        both = now[:, : 2 * hidden]
        add_recurrent = self._product.add_recurrent
        for base, out in zip(gates, outs_BH, strict=True):
            add_recurrent(base, h, now)
            both.sigmoid_()
            candidate.tanh_()
            leave.sigmoid_()
            c.mul_(forget)
            c.addcmul_(enter, candidate)
            torch.tanh(c, out=tanh_c)
            if project is None:
                torch.mul(leave, tanh_c, out=out)
            else:
                torch.mm(tanh_c.mul_(leave), project, out=out)
            h = out
        self._h = h

    def state(self) -> tuple[Tensor, ...]:
        """Hidden and cell state."""
        return self._h, self._c


class GruCell:
    """Gates in PyTorch's order: reset, update, candidate."""

    def __init__(self, product: Product, h_BH: Tensor) -> None:
        batch, hidden = h_BH.shape
        self._product = product
        self._h = h_BH
        self._recurrent = h_BH.new_empty((batch, 3 * hidden))
        self._gates = h_BH.new_empty((batch, 2 * hidden))
        self._candidate = h_BH.new_empty((batch, hidden))

    def split(self, gates_UBG: Tensor) -> Sequence[tuple[Tensor, Tensor]]:
        """Two views a step: reset with update, and the candidate's."""
        hidden = self._h.shape[1]
        both, last = gates_UBG.split_with_sizes([2 * hidden, hidden], 2)
        return list(zip(both.unbind(0), last.unbind(0), strict=True))

    def walk(self, gates: Sequence[tuple[Tensor, Tensor]], outs_BH: Sequence[Tensor]) -> None:
        """Take one step for each output and write into it."""
        h, now, candidate, product_BG = self._h, self._gates, self._candidate, self._recurrent
        hidden = h.shape[1]
        reset, update = now.chunk(2, 1)
        both, last = product_BG.split_with_sizes([2 * hidden, hidden], 1)
        recurrent = self._product.recurrent
        for (base, base_last), out in zip(gates, outs_BH, strict=True):
            recurrent(h, product_BG)
            torch.add(base, both, out=now)
            now.sigmoid_()
            torch.addcmul(base_last, reset, last, out=candidate)
            candidate.tanh_()
            torch.lerp(candidate, h, update, out=out)
            h = out
        self._h = h

    def state(self) -> tuple[Tensor, ...]:
        """The hidden state."""
        return (self._h,)


class RnnCell:
    """One gate: tanh or relu."""

    def __init__(self, product: Product, h_BH: Tensor, *, relu: bool) -> None:
        self._product = product
        self._h = h_BH
        self._bend = torch.relu_ if relu else torch.tanh_

    def split(self, gates_UBG: Tensor) -> Sequence[Tensor]:
        """One view a step."""
        return gates_UBG.unbind(0)

    def walk(self, gates: Sequence[Tensor], outs_BH: Sequence[Tensor]) -> None:
        """Take one step for each output and write into it."""
        h, bend, add_recurrent = self._h, self._bend, self._product.add_recurrent
        for base, out in zip(gates, outs_BH, strict=True):
            add_recurrent(base, h, out)
            bend(out)
            h = out
        self._h = h

    def state(self) -> tuple[Tensor, ...]:
        """The hidden state."""
        return (self._h,)


def cell_of(
    kind: str, product: Product, start: tuple[Tensor, ...], projection: Tensor | None
) -> Cell:
    """The cell of a kind of layer, at its first step."""
    if kind == "LSTM":
        h_BH, c_BH = start
        return LstmCell(product, h_BH, c_BH, projection)
    if kind == "GRU":
        return GruCell(product, *start)
    return RnnCell(product, start[0], relu=kind == "RNN_RELU")
