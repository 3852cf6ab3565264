"""Runs a segment through the kernels. Knows no Slot and no policy."""

import itertools
import struct
from array import array
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from grainshift.core.choice import Choice, is_plan
from grainshift.core.family import Runner
from grainshift.families.recurrence.choice import is_solo, parts, until, waves, widest_block
from grainshift.families.recurrence.library import Library
from grainshift.families.recurrence.net import Net, Packed
from grainshift.families.recurrence.swift import Swift

Run = Callable[..., tuple[Tensor, Any]]
_CALL = struct.Struct("24q")  # the fields of `Call` in call.h
_PROFILE = struct.Struct("7q")  # the fields of `Profile` in door.cpp
_RAN, _STALE = 0, 1
_ALL_STEPS = 1 << 62


class _Plan:
    """Block and last blocked step of each sweep, where the kernels read them; 0 without a plan."""

    __slots__ = ("_pairs", "address")

    def __init__(self, choice: Choice, sweeps: int) -> None:
        profiles = parts(choice, sweeps) if is_plan(choice) else ()
        pairs = [(widest_block(part), until(part, _ALL_STEPS)) for part in profiles]
        self._pairs = array("q", itertools.chain.from_iterable(pairs))
        self.address = self._pairs.buffer_info()[0] if pairs else 0


def build(
    library: Library, net: Net, layer: nn.RNNBase, choice: Choice, swift: Swift | None = None
) -> Runner:
    """A Choice ready to run; what it holds is shared by all Choices of its precision."""
    plan = _Plan(choice, layer.num_layers * (2 if layer.bidirectional else 1))
    run = _runner(library, net, layer, choice, plan)
    if swift is not None:
        run = _swiftly(swift, _profile(library, choice, plan), net, layer, run)
    return Runner(run, net.fresh().panels.held_bytes)


def _profile(library: Library, choice: Choice, plan: _Plan) -> bytes:
    """The Choice as `Profile` in door.cpp."""
    blocks = widest_block(choice), until(choice, _ALL_STEPS)
    words = int(is_solo(choice)), int(waves(choice))
    return _PROFILE.pack(library.run_address, library.pool, *blocks, *words, plan.address)


def _swiftly(swift: Swift, profile: bytes, net: Net, layer: nn.RNNBase, otherwise: Run) -> Run:
    """Run in C++ where that can be; weights that changed and odd strides are left to Python."""
    own, step = layer.__dict__, swift.step

    def run(
        x_TBI: Tensor, state: Any, _: None = None, rows: tuple[int, ...] | None = None
    ) -> tuple[Tensor, Any]:
        packed = net.kept if rows is None else None
        if packed is not None:
            answer = step(packed.told, profile, own["_flat_weights"], x_TBI, state)
            if answer is not None:
                return answer  # type: ignore[no-any-return]
        return otherwise(x_TBI, state, None, rows)

    return run


def runner(library: Library, net: Net, layer: nn.RNNBase, choice: Choice) -> Run:
    """Runs a segment; `room` are two addresses for what training keeps."""
    plan = _Plan(choice, layer.num_layers * (2 if layer.bidirectional else 1))
    return _runner(library, net, layer, choice, plan)


def _runner(library: Library, net: Net, layer: nn.RNNBase, choice: Choice, plan: _Plan) -> Run:
    width = layer.hidden_size * (2 if layer.bidirectional else 1)
    is_lstm = layer.mode == "LSTM"
    block, solo, wave = widest_block(choice), is_solo(choice), int(waves(choice))

    def run(
        x_TBI: Tensor,
        state: Any,
        room: tuple[int, int] | None = None,
        rows: tuple[int, ...] | None = None,
    ) -> tuple[Tensor, Any]:
        between, kept = room or (0, 0)
        x_TBI = x_TBI if x_TBI.stride(-1) == 1 else x_TBI.contiguous()
        h, c = state if is_lstm else (state, state)
        h, c = h.contiguous(), c.contiguous()
        y_TBO = x_TBI.new_empty((*x_TBI.shape[:-1], width))
        h_after = torch.empty_like(h)
        c_after = torch.empty_like(c) if is_lstm else h_after
        by_step, by_row = (0, x_TBI.stride(0)) if rows else x_TBI.stride()[:2]
        by_rows = _ByRows(rows) if rows else None
        steps = len(rows) if rows else x_TBI.shape[0]

        def call(packed: Packed) -> bytes:
            return _CALL.pack(
                packed.panels.address,
                library.pool,
                *(x_TBI.data_ptr(), by_step, by_row),
                *(h.data_ptr(), c.data_ptr()),
                *(y_TBO.data_ptr(), h.shape[1] * width, width),
                between,
                *(h_after.data_ptr(), c_after.data_ptr()),
                kept,
                *((by_rows.rows, by_rows.firsts) if by_rows else (0, 0)),
                *(steps, h.shape[1]),
                *(block, until(choice, steps)),
                *(1 if solo else torch.get_num_threads(), wave),
                plan.address,  # and so the plan lives as long as this function
                0,
            )

        _run(library, net, call)
        return y_TBO, ((h_after, c_after) if is_lstm else h_after)

    return run


class _ByRows:
    """The addresses of two lists that the kernels read: the rows of each step, and its first."""

    __slots__ = ("_kept", "firsts", "rows")

    def __init__(self, rows: tuple[int, ...]) -> None:
        firsts = itertools.accumulate(rows, initial=0)
        self._kept = array("q", rows), array("q", firsts)
        self.rows, self.firsts = (part.buffer_info()[0] for part in self._kept)


def _run(library: Library, net: Net, call: Callable[[Packed], bytes]) -> None:
    """Run a call, with the weights packed anew where they turn out to have changed."""
    packed = net.fresh()
    while (answer := library.run(call(packed))) != _RAN:
        if answer != _STALE:
            raise MemoryError("there is no memory for the kernels' scratch")
        packed = net.renew()
