"""Runs a segment through the kernels. Knows no Slot and no policy."""

import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from grainshift.core.choice import Choice
from grainshift.core.family import Runner
from grainshift.families.recurrence.choice import is_solo, until, waves, widest_block
from grainshift.families.recurrence.find import shape_of
from grainshift.families.recurrence.library import Library
from grainshift.families.recurrence.net import Net

Run = Callable[..., tuple[Tensor, Any]]
_CALL = struct.Struct("23q")  # the fields of `Call` in forward.cpp
_RAN, _STALE = 0, 1


def build(library: Library, net: Net, layer: nn.RNNBase, choice: Choice) -> Runner:
    """A Choice ready to run; what it holds is shared by all Choices of its precision."""
    return Runner(runner(library, net, layer, choice), net.fresh().panels.held_bytes)


def runner(library: Library, net: Net, layer: nn.RNNBase, choice: Choice) -> Run:
    """Runs a segment; `between` and `kept` are addresses for what training keeps, or 0."""
    shape = shape_of(layer)
    width = shape.hidden * shape.directions
    is_lstm = shape.kind == "LSTM"
    block, solo, wave = widest_block(choice), is_solo(choice), int(waves(choice))
    pack, run_kernel, pool, threads_now = (
        _CALL.pack,
        library.run,
        library.pool,
        torch.get_num_threads,
    )

    def run(x_TBI: Tensor, state: Any, between: int = 0, kept: int = 0) -> tuple[Tensor, Any]:
        steps, batch, _ = x_TBI.shape
        by_step, by_row, by_one = x_TBI.stride()
        if by_one != 1:
            x_TBI = x_TBI.contiguous()
            by_step, by_row, _ = x_TBI.stride()
        h, c = state if is_lstm else (state, state)
        h, c = h.contiguous(), c.contiguous()
        y_TBO = x_TBI.new_empty((steps, batch, width))
        h_after = torch.empty_like(h)
        c_after = torch.empty_like(c) if is_lstm else h_after
        packed = net.fresh()
        while True:
            call = pack(
                packed.panels.address,
                pool,
                x_TBI.data_ptr(),
                by_step,
                by_row,
                h.data_ptr(),
                c.data_ptr(),
                y_TBO.data_ptr(),
                batch * width,
                width,
                between,
                h_after.data_ptr(),
                c_after.data_ptr(),
                kept,
                0,
                0,
                steps,
                batch,
                block,
                until(choice, steps),
                1 if solo else threads_now(),
                wave,
                0,
            )
            answer = run_kernel(call)
            if answer == _RAN:
                return y_TBO, ((h_after, c_after) if is_lstm else h_after)
            if answer != _STALE:
                raise MemoryError("there is no memory for the kernels' scratch")
            packed = net.renew()

    return run
