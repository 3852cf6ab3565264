"""Sends the calls of a layer through a Door, segment by segment, and takes that back again.

The layer gets an entry in place of its forward. Copies and pickles of the layer come out without
it: they are untuned layers that run PyTorch's own forward.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from grainshift.core.family import Door
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.call import read
from grainshift.families.recurrence.capture import are_same, is_traced, trace
from grainshift.families.recurrence.dynamo import admit, dismiss, stock
from grainshift.families.recurrence.find import shape_of
from grainshift.families.recurrence.operator import enter, leave
from grainshift.families.recurrence.segment import LEAST_STEPS, Rhythm, cut_costs
from grainshift.families.recurrence.swift import Entrance
from grainshift.families.recurrence.weights import current

_MOST_SHAPES = 4096
_OURS = ("forward", "__getstate__", "__prepare_scriptable__")


def install(
    layer: nn.RNNBase, door: Door, segment_s: float, entrance: Entrance, *, trains: bool = False
) -> Callable[[], None]:
    """Put the entry in place; the answer takes it out.

    Calls that want gradients go through the Door too where there is something to tune in them.
    """
    entry = _Entry(layer, door, segment_s, entrance, trains)
    untuned = partial(copy.copy, layer)  # for TorchScript, which reads source code
    ours = dict(zip(_OURS, (entry, _bare_state(layer), untuned), strict=True))
    layer.__dict__.update(ours)
    admit(layer)

    def undo() -> None:
        leave(entry.site, entry)
        for name, value in ours.items():
            if layer.__dict__.get(name) is value:
                del layer.__dict__[name]
        if "forward" not in layer.__dict__:
            dismiss(layer)

    return undo


class _Case:
    """The calls of one bucket: its name and the Rhythm of its segments."""

    __slots__ = ("bucket", "rhythm", "train_bucket")

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.train_bucket = buckets.train(bucket)
        self.rhythm = Rhythm()


class _Entry:
    """What a tuned layer runs as its forward; threads may share it, all it keeps is a pace."""

    def __init__(
        self, layer: nn.RNNBase, door: Door, segment_s: float, entrance: Entrance, trains: bool
    ) -> None:
        self._layer = layer
        self._entrance = entrance
        self._kind = type(layer)
        self._door = door
        self._segment_s = segment_s
        self._trains = trains
        self._shape = shape_of(layer)
        self._facts = _facts(layer)
        self._stock_cost, self._profile_cost = cut_costs(self._shape)
        self._cases: dict[str, _Case] = {}
        self._by_shape: dict[tuple[int, int], _Case] = {}
        self.site = enter(layer, self)
        self.__signature__ = inspect.signature(layer.forward)
        self.__code__ = type(layer).forward.__code__  # torch.export asks where a forward stands

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer, swift = self._layer, self._entrance.read
        is_own = type(layer) is self._kind
        if swift is not None and is_own and not kwargs and not torch.compiler.is_compiling():
            told = swift(args)
            if told is not None:
                return self._brief(*told)
        call = read(layer, args, kwargs) if is_own else None
        if call is None or self._facts != _facts(layer):
            return self._pass(args, kwargs)
        if call.flat is not None:
            if not self._trains:
                return stock(layer, args, kwargs)
            return call.answer(*self._train(call.x, call.state, call.flat))
        if call.packing is not None:
            return call.answer(*self._run_ragged(call.x, call.state, call.rows))
        return call.answer(*self._run(call.x, call.state))

    def _brief(self, x_TBI: Tensor, state: Any, steps: int, batch: int) -> tuple[Tensor, Any]:
        """A plain call that was read in C++; one too short to be cut needs no Rhythm."""
        if steps > LEAST_STEPS:
            y_TBO, state = self._run(x_TBI, state)
        else:
            case = self._by_shape.get((batch, steps)) or self._case(batch, steps)
            y_TBO, state = self._door.call(case.bucket, float(steps * batch), x_TBI, state)
        return (y_TBO.transpose(0, 1) if self._layer.batch_first else y_TBO), state

    def answer(self, x: Tensor, hx: Any, weights: Sequence[Tensor], batch_first: bool) -> Any:
        """What a captured program asks for, or None once that is not this layer any more."""
        layer = self._layer
        call = read(layer, (x, hx), {}) if layer.batch_first == batch_first else None
        if call is None or call.flat is not None or self._facts != _facts(layer):
            return None
        if not are_same(weights, current(layer)):
            return None
        return call.answer(*self._run(call.x, call.state))

    def _pass(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A traced call becomes one operator; every other one runs PyTorch's forward."""
        layer = self._layer
        if type(layer) is self._kind and self._facts == _facts(layer) and is_traced():
            answer = trace(self.site, layer, args, kwargs)
            if answer is not None:
                return answer
        return stock(layer, args, kwargs)

    def __reduce__(self) -> Any:
        return getattr, (self._layer, "forward")

    def _train(self, x_TBI: Tensor, state: Any, flat: list[Tensor]) -> tuple[Tensor, Any]:
        steps, batch = x_TBI.shape[:2]
        case = self._by_shape.get((batch, steps)) or self._case(batch, steps)
        work = float(steps * batch)
        return self._door.train(case.train_bucket, work, x_TBI, state, flat)  # type: ignore[no-any-return]

    def _run(self, x_TBI: Tensor, state: Any) -> tuple[Tensor, Any]:
        steps, batch = x_TBI.shape[:2]
        case = self._by_shape.get((batch, steps)) or self._case(batch, steps)
        lengths: tuple[int, ...] = (steps,)
        if self._shape.directions == 1:
            is_stock = self._door.is_stock(case.bucket)
            cost = self._stock_cost if is_stock else self._profile_cost
            lengths = case.rhythm.cut(steps, batch, self._segment_s, cost)
        begin_s = perf_counter()
        if len(lengths) == 1:
            answer = self._door.call(case.bucket, float(steps * batch), x_TBI, state)
        else:
            answer = self._run_segments(case.bucket, lengths, x_TBI, state)
        case.rhythm.learn((perf_counter() - begin_s) / steps, len(lengths))
        return answer  # type: ignore[no-any-return]

    def _run_ragged(self, x_NI: Tensor, state: Any, rows: tuple[int, ...]) -> tuple[Tensor, Any]:
        bucket = buckets.name(rows[0], len(rows), buckets.RAGGED)
        answer = self._door.call(bucket, float(len(x_NI)), x_NI, state, None, rows)
        return answer  # type: ignore[no-any-return]

    def _run_segments(
        self, bucket: str, lengths: tuple[int, ...], x_TBI: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        steps, batch = x_TBI.shape[:2]
        y_TBO = x_TBI.new_empty((steps, batch, self._shape.outputs))
        at = 0
        for length in lengths:
            part = slice(at, at + length)
            y, state = self._door.call(bucket, float(length * batch), x_TBI[part], state)
            y_TBO[part] = y
            at += length
        return y_TBO, state

    def _case(self, batch: int, steps: int) -> _Case:
        bucket = buckets.name(batch, steps)
        case = self._cases.setdefault(bucket, _Case(bucket))
        if len(self._by_shape) >= _MOST_SHAPES:
            self._by_shape.clear()
        self._by_shape[batch, steps] = case
        return case


def _facts(layer: nn.RNNBase) -> tuple[Any, ...]:
    """What a built Choice relies on; whoever changes one of these gets PyTorch's own forward."""
    return (
        layer.mode,
        layer.input_size,
        layer.hidden_size,
        layer.num_layers,
        layer.bidirectional,
        layer.bias,
        layer.proj_size,
    )


def _bare_state(layer: nn.RNNBase) -> Callable[[], dict[str, Any]]:
    """What copy and pickle take from the layer: everything but what `install` put there.

    They look `__getstate__` up on the layer itself, so that even a shallow copy is untuned.
    """

    def state() -> dict[str, Any]:
        whole = type(layer).__getstate__(layer)  # type: ignore[no-untyped-call]
        return {name: value for name, value in whole.items() if name not in _OURS}

    return state
