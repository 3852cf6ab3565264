"""Sends the calls of a layer through a Door, segment by segment, and takes that back again.

The layer gets an entry in place of its forward. Copies and pickles of the layer come out without
it: they are untuned layers that run PyTorch's own forward.
"""

import copy
import inspect
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from torch import Tensor, nn

from grainshift.core.family import Door
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.call import read
from grainshift.families.recurrence.find import shape_of
from grainshift.families.recurrence.segment import Rhythm, cut_cost

_MOST_SHAPES = 4096
_OURS = ("forward", "__getstate__", "__prepare_scriptable__")


def install(
    layer: nn.RNNBase, door: Door, segment_s: float, *, trains: bool = False
) -> Callable[[], None]:
    """Put the entry in place; the answer takes it out.

    Calls that want gradients go through the Door too where there is something to tune in them.
    """
    entry = _Entry(layer, door, segment_s, trains)
    untuned = partial(copy.copy, layer)  # for TorchScript, which reads source code
    ours = dict(zip(_OURS, (entry, _bare_state(layer), untuned), strict=True))
    layer.__dict__.update(ours)

    def undo() -> None:
        for name, value in ours.items():
            if layer.__dict__.get(name) is value:
                del layer.__dict__[name]

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

    def __init__(self, layer: nn.RNNBase, door: Door, segment_s: float, trains: bool) -> None:
        self._layer = layer
        self._kind = type(layer)
        self._door = door
        self._segment_s = segment_s
        self._trains = trains
        self._shape = shape_of(layer)
        self._facts = _facts(layer)
        self._cut_cost = cut_cost(self._shape)
        self._cases: dict[str, _Case] = {}
        self._by_shape: dict[tuple[int, int], _Case] = {}
        self.__signature__ = inspect.signature(layer.forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer = self._layer
        call = read(layer, args, kwargs) if type(layer) is self._kind else None
        if call is None or self._facts != _facts(layer):
            return type(layer).forward(layer, *args, **kwargs)
        if call.flat is None:
            return call.answer(*self._run(call.x, call.state))
        if self._trains:
            return call.answer(*self._train(call.x, call.state, call.flat))
        return type(layer).forward(layer, *args, **kwargs)

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
            lengths = case.rhythm.cut(steps, batch, self._segment_s, self._cut_cost)
        begin_s = perf_counter()
        if len(lengths) == 1:
            answer = self._door.call(case.bucket, float(steps * batch), x_TBI, state)
        else:
            answer = self._run_segments(case.bucket, lengths, x_TBI, state)
        case.rhythm.learn((perf_counter() - begin_s) / steps, len(lengths))
        return answer  # type: ignore[no-any-return]

    def _run_segments(
        self, bucket: str, lengths: tuple[int, ...], x_TBI: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        steps, batch = x_TBI.shape[:2]
        y_TBO = x_TBI.new_empty((steps, batch, self._shape.hidden))
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
