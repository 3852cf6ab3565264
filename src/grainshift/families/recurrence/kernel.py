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
from grainshift.families.recurrence.swift import Swift

Run = Callable[[Tensor, Any], tuple[Tensor, Any]]
_CALL = struct.Struct("23q")  # the fields of `Call` in call.h
_PROFILE = struct.Struct("6q")  # the fields of `Profile` in door.cpp
_NO_END = (1 << 63) - 1
_RAN, _STALE = 0, 1


def build(
    library: Library, net: Net, layer: nn.RNNBase, choice: Choice, swift: Swift | None = None
) -> Runner:
    """A Choice ready to run; what it holds is shared by all Choices of its precision."""
    run = _runner(library, net, layer, choice)
    if swift is not None:
        run = _swiftly(swift, _profile(library, choice), net, layer, run)
    return Runner(run, net.fresh().panels.held_bytes)


def _profile(library: Library, choice: Choice) -> bytes:
    """The Choice as `Profile` in door.cpp."""
    most = widest_block(choice) if choice.name == "hybrid" else _NO_END
    words = widest_block(choice), most, int(is_solo(choice)), int(waves(choice))
    return _PROFILE.pack(library.run_address, library.pool, *words)


def _swiftly(swift: Swift, profile: bytes, net: Net, layer: nn.RNNBase, otherwise: Run) -> Run:
    """Run in C++ where that can be; weights that changed and odd strides are left to Python."""
    own, step = layer.__dict__, swift.step

    def run(x_TBI: Tensor, state: Any) -> tuple[Tensor, Any]:
        packed = net.kept
        if packed is not None:
            answer = step(packed.told, profile, own["_flat_weights"], x_TBI, state)
            if answer is not None:
                return answer  # type: ignore[no-any-return]
        return otherwise(x_TBI, state)

    return run


def _runner(library: Library, net: Net, layer: nn.RNNBase, choice: Choice) -> Run:
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

    def run(x_TBI: Tensor, state: Any) -> tuple[Tensor, Any]:
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
                0,
                h_after.data_ptr(),
                c_after.data_ptr(),
                0,
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
