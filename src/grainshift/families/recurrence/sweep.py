"""Walks a segment through all layers and directions, block by block. Knows no kind of cell."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from grainshift.families.recurrence.cell import Cell

Start = tuple[Tensor, ...]
Cuts = Sequence[Sequence[int]]
MakeCell = Callable[[int, Start], tuple[Cell, Callable[[Tensor], Tensor]]]


def sweep(
    x_TBI: Tensor, state: Start, hidden: int, directions: int, cuts: Cuts, make: MakeCell
) -> tuple[Tensor, list[Start]]:
    """The last layer's outputs, and the state of each layer and direction after its last step.

    `make` gives the cell and the input product of one layer and direction, `cuts` its blocks.
    Scratch is made and used in inference mode, where operators are cheapest; outputs are made
    outside, so that they are the tensors that the caller's mode calls for.
    """
    steps, batch = x_TBI.shape[:2]
    finals: list[Start] = []
    for first in range(0, len(state[0]), directions):
        outs = [x_TBI.new_empty((steps, batch, hidden)) for _ in range(directions)]
        with torch.inference_mode():
            for back, y_TBH in enumerate(outs):
                start = tuple(part[first + back] for part in state)
                cell, project = make(first + back, start)
                _walk(cell, project, x_TBI, y_TBH, cuts[first + back], bool(back))
                finals.append(cell.state())
        x_TBI = outs[0] if directions == 1 else torch.cat(outs, 2)
    return x_TBI, finals


def _walk(
    cell: Cell,
    project: Callable[[Tensor], Tensor],
    x_TBI: Tensor,
    y_TBH: Tensor,
    sizes: Sequence[int],
    back: bool,
) -> None:
    steps, batch = x_TBI.shape[:2]
    outs = y_TBH.unbind(0)
    rows = x_TBI.unbind(0) if 1 in sizes else ()
    seen: Tensor | None = None
    views: Sequence[Any] = ()
    at = 0
    for size in sizes:
        begin = steps - at - size if back else at
        at += size
        part = slice(begin, begin + size)
        x_NI = rows[begin] if size == 1 else x_TBI[part].reshape(size * batch, -1)
        gates = project(x_NI)
        if gates is not seen:
            seen, views = gates, cell.split(gates.view(size, batch, -1))
        if back:
            cell.walk(views[::-1], outs[part][::-1])
        else:
            cell.walk(views, outs[part])
