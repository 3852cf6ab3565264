"""Profiles recurrent layers on this machine into Traces. Trains nothing, knows no policy.

A grid of layers is visited in an order drawn from a seed, until the time is over. At each visit
one layer is run in some shapes under every load. The Choices take turns beside the baseline, in
rounds of an order drawn anew each time, so that what passes over the machine meets all of them. One
that is hopelessly behind runs no more: how much it loses need not be known well.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any, Protocol

import torch
from torch import nn

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.family import Family
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.machine import Machine
from grainshift.core.trace import Cost, Trace
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.shape import GATES, Shape
from grainshift.machine.cache_model import Work, model_traffic

_LAYERS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN_TANH": nn.RNN}
_HIDDEN = (64, 128, 256, 512, 1024)
_BATCH, _STEPS = (1, 4, 16, 64), (1, 4, 16, 64, 256, 1024)
_INPUTS = (0, 80)  # 0: as many as there are hidden units
_SHAPES_A_VISIT = 3
_MOST_FLOPS = 4e8  # in a call; more would leave time for few layers
_LEFT_OUT_EVERY = 5  # layers
_LEFT_OUT = frozenset({(4, 16), (1, 64), (16, 256), (64, 4)})  # shapes
_LIMITS = Limits(error_ratio=1.0)  # so that lower precision is offered as well
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 9
_TRACE_S = 0.25  # after which no round beyond the least begins
_LONG_S = 1.0  # after which one round is enough
_HOPELESS = math.log(4.0)  # behind the best, in two rounds
_READING_S = 50e-6  # shorter calls are read several at a time
_MOST_CALLS = 16
_DIGITS = 4  # of a gain, as it is kept

Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Load:
    """What else the machine does: so many busy cores; one that is left out is never trained on."""

    name: str
    busy_cores: int
    left_out: bool = False


LOADS = (Load("calm", 0), Load("busy", 1), Load("crowded", 2, left_out=True))


class Senses(Protocol):
    """The machine's sensors."""

    def restart(self) -> float:
        """Begin a new window."""

    def sample(self, at_s: float) -> Conditions:
        """The Conditions since the window began."""

    def tell(self, work: Work | None) -> None:
        """What runs, for the figures that are modelled."""


@dataclass(frozen=True, slots=True)
class Stand:
    """What profiling needs of the world; `burden` keeps so many cores busy meanwhile."""

    family: Family
    machine: Machine
    senses: Senses
    clock: Callable[[], float]
    burden: Callable[[int], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Visit:
    """One layer, and the (batch, steps) in which it is run; some are left out of training."""

    shape: Shape
    calls: tuple[tuple[int, int], ...]
    left_out: bool = False


def grid(seed: int = 0) -> tuple[Visit, ...]:
    """Every layer of the grid, in an order drawn from the seed, with some of its shapes."""
    draw = Random(seed)
    sizes = itertools.product(_LAYERS, _HIDDEN, (1, 2, 3), (1, 2), _INPUTS)
    shapes = [
        Shape(kind, inputs or hidden, hidden, layers, directions, True)
        for kind, hidden, layers, directions, inputs in sizes
    ]
    draw.shuffle(shapes)
    return tuple(
        Visit(shape, _calls(shape, draw), number % _LEFT_OUT_EVERY == 1)
        for number, shape in enumerate(shapes)
    )


def profile(
    stand: Stand, visits: Sequence[Visit], seconds: float, seed: int = 0
) -> Iterator[Trace]:
    """Traces, until the time is over; the visit under way ends early, after a whole trace."""
    draw = Random(seed)
    until_s = stand.clock() + seconds
    for visit in visits:
        layer = _layer(visit.shape)
        for load in LOADS:
            with stand.burden(load.busy_cores):
                for batch, steps in visit.calls[: 1 if load.left_out else None]:
                    if stand.clock() >= until_s:
                        return
                    yield _trace(stand, visit, layer, load, (batch, steps), draw)


def _calls(shape: Shape, draw: Random) -> tuple[tuple[int, int], ...]:
    open_ = [
        (batch, steps)
        for batch, steps in itertools.product(_BATCH, _STEPS)
        if 0.5 * shape.matrix_bytes * batch * steps <= _MOST_FLOPS  # two for each weight
    ]
    return tuple(draw.sample(open_, min(_SHAPES_A_VISIT, len(open_))))


def _layer(shape: Shape) -> nn.RNNBase:
    torch.manual_seed(0)
    make: Any = _LAYERS[shape.kind]
    bidirectional = shape.directions == 2
    layer: nn.RNNBase = make(
        shape.inputs, shape.hidden, shape.layers, bias=shape.bias, bidirectional=bidirectional
    )
    return layer.eval()


@torch.inference_mode()
def _trace(
    stand: Stand,
    visit: Visit,
    layer: nn.RNNBase,
    load: Load,
    sizes: tuple[int, int],
    draw: Random,
) -> Trace:
    family, (batch, steps) = stand.family, sizes
    bucket = buckets.name(batch, steps)
    (site,), _ = family.find(layer)
    choices = family.offer(site, bucket, _LIMITS)
    args = _arguments(visit.shape, batch, steps)
    runs: list[Run] = []
    held: list[int] = []
    for choice in choices:
        runner = family.build(layer, site, bucket, choice, "")
        runs.append(_bound(runner.run, args))
        held.append(runner.held_bytes)
    forecasts = [
        family.forecast(site, bucket, choice, stand.machine, Conditions(0.0)) for choice in choices
    ]
    baseline_s, gains, conditions = _measure(stand, runs, _work(forecasts[0]), draw)
    return Trace(
        site.fingerprint,
        bucket,
        load.name,
        site.features + family.features(site, bucket),
        conditions,
        baseline_s,
        tuple(map(_cost, choices, forecasts, held, gains, itertools.repeat(stand.machine))),
        _left_out(visit, load, sizes),
    )


def _left_out(visit: Visit, load: Load, sizes: tuple[int, int]) -> str:
    if visit.left_out:
        return "architecture"
    if load.left_out:
        return "load"
    return "shape" if sizes in _LEFT_OUT else ""


def _measure(
    stand: Stand, runs: Sequence[Run], work: Work, draw: Random
) -> tuple[float, list[tuple[float, ...]], Conditions]:
    """Seconds of the baseline, the gains of every Choice, and the Conditions meanwhile."""
    clock = stand.clock
    calls = [_calls_a_reading(clock, run) for run in runs]
    stand.senses.tell(work)
    began_s = stand.senses.restart()
    gains: list[list[float]] = [[] for _ in runs]
    baselines: list[float] = []
    while _goes_on(len(baselines), clock() - began_s):
        order = _in_the_race(gains)
        draw.shuffle(order)
        took = {n: _seconds(clock, runs[n], calls[n]) for n in (0, *order)}
        baseline_s = 0.5 * (took[0] + _seconds(clock, runs[0], calls[0]))
        baselines.append(baseline_s)
        for number in order:
            gains[number].append(round(math.log(baseline_s / took[number]), _DIGITS))
        gains[0].append(0.0)
    return median(baselines), [tuple(each) for each in gains], stand.senses.sample(clock())


def _in_the_race(gains: Sequence[Sequence[float]]) -> list[int]:
    """The Choices that are not hopelessly behind the best, so far."""
    best = max((median(each) for each in gains if each), default=0.0)
    return [
        number
        for number, each in enumerate(gains)
        if number and (len(each) < 2 or median(each) > best - _HOPELESS)
    ]


def _goes_on(rounds: int, seconds: float) -> bool:
    least = _LEAST_ROUNDS if seconds < _LONG_S else 1
    return rounds < least or (rounds < _MOST_ROUNDS and seconds < _TRACE_S)


def _calls_a_reading(clock: Callable[[], float], run: Run) -> int:
    """How often a call is repeated for one Reading; its first runs, which warm it, tell."""
    first_s = _seconds(clock, run, 1)
    warm_s = _seconds(clock, run, 1) if first_s < _TRACE_S / 100 else first_s
    return min(_MOST_CALLS, math.ceil(_READING_S / warm_s))


def _seconds(clock: Callable[[], float], run: Run, calls: int) -> float:
    """Seconds of one call, over so many."""
    began_s = clock()
    for _ in range(calls):
        run()
    return max(clock() - began_s, 1e-9) / calls


def _arguments(shape: Shape, batch: int, steps: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    x_TBI = torch.randn((steps, batch, shape.inputs), generator=generator)
    zero = torch.zeros((shape.sweeps, batch, shape.hidden))
    return x_TBI, ((zero, zero.clone()) if GATES[shape.kind] == GATES["LSTM"] else zero)


def _bound(run: Callable[..., Any], args: tuple[Any, ...]) -> Run:
    return lambda: run(*args)


def _work(forecast: Forecast) -> Work:
    return Work(float(forecast.working_set_bytes), float(forecast.touched_bytes))


def _cost(
    choice: Choice, forecast: Forecast, held: int, gains: tuple[float, ...], machine: Machine
) -> Cost:
    traffic = model_traffic(_work(forecast), machine.caches, len(machine.cores))
    return Cost(
        choice,
        gains,
        max(held, forecast.extra_bytes),
        round(traffic.hit_ratio, _DIGITS) if traffic else 0.0,
        round(forecast.log_gain, _DIGITS),
    )
