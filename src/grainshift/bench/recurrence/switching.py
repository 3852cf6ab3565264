"""What a switch between profiles costs in the middle of a sequence, and what it does to numbers.

Knows no policy.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import numpy as np
import torch

from grainshift.bench.contender import READING_S
from grainshift.bench.measure import Plan, Timings, calls_per_reading, measure, timed
from grainshift.bench.mode import Mode, plain, surroundings
from grainshift.bench.recurrence.effort import Effort
from grainshift.bench.recurrence.profiles import Stage, stage
from grainshift.bench.row import Row
from grainshift.bench.workloads.recurrence import SWITCHING
from grainshift.runtime.slot import Slot

COST = "a switch at a segment's edge, beyond going on"
DEVIATION = "largest deviation from eager, random profiles at random edges"
_COST_LIMIT_US, _DEVIATION_LIMIT = 5.0, 1e-5
_SEGMENT = 16
_ROUNDS = 50
_MEASURE_S = 6.0
_PAIR = ("unrolled(4)", "unrolled(8)")


def switching(effort: Effort) -> Iterator[Row]:
    """Two Rows a workload: seconds and numbers."""
    for workload in effort.chosen(SWITCHING):
        effort.tell(f"{workload.name}: switching at every edge, and at random ones")
        with torch.inference_mode():
            staged = stage(workload)
            yield cost_row(workload.name, staged, effort.plan(_MEASURE_S))
            yield deviation_row(workload.name, staged)


def cost_row(name: str, staged: Stage, plan: Plan) -> Row:
    """Through one Slot: a pick that alternates beside two that stay."""
    pair = [number for number, choice in enumerate(staged.runs) if str(choice) in _PAIR]
    first, second = pair if len(pair) == 2 else (1, 2)
    edges = -(-len(staged.x) // _SEGMENT) - 1
    picks = {"switching": (first, second), "first": (first,), "second": (second,)}
    turns = {word: _turn(staged, _slot(staged), pick) for word, pick in picks.items()}
    seen = measure(turns, plan, time.perf_counter)
    costs_us = 1e6 * switch_costs_s(seen["switching"], seen["first"], seen["second"]) / edges
    low, high = _interval(costs_us)
    choices = list(staged.runs)
    return Row(
        name,
        COST,
        "us",
        float(np.median(costs_us)),
        {},
        limit=_COST_LIMIT_US,
        notes=f"{len(costs_us)} blocks, {edges} edges a sequence, {choices[first]} and"
        f" {choices[second]}; 95 % interval {low:.2f} to {high:.2f}",
    )


def switch_costs_s(switching: Timings, first: Timings, second: Timings) -> np.ndarray:
    """Block by block, what a sequence that switches takes beyond the mean of two that do not."""
    costs: np.ndarray = switching.medians - 0.5 * (first.medians + second.medians)
    return costs


def _interval(values: np.ndarray) -> tuple[float, float]:
    draw = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.percentile(np.median(values[draw], axis=1), (2.5, 97.5))
    return float(low), float(high)


def _slot(staged: Stage) -> Slot:
    """A Slot with every profile at hand, its lane open."""
    baseline, *others = staged.runs.values()
    slot = Slot(staged.site, baseline)
    slot.call(staged.bucket, 1.0, staged.x, zero_state(staged))
    for number, run in enumerate(others, start=1):
        slot.put(staged.bucket, number, run)
    return slot


def zero_state(staged: Stage) -> tuple[torch.Tensor, torch.Tensor] | torch.Tensor:
    """The state in front of a sequence, as Runners take it."""
    layers, batch = staged.layer.num_layers, staged.x.shape[1]
    assert isinstance(layers, int)
    size = (layers, batch, staged.layer.hidden_size)
    h = torch.zeros(size)  # type: ignore[arg-type]
    return (h, torch.zeros_like(h)) if staged.layer.mode == "LSTM" else h


def _turn(staged: Stage, slot: Slot, pick: tuple[int, ...]) -> Callable[[int], Sequence[float]]:
    turns = cycle(pick)
    slot.let_pick(staged.bucket, lambda: next(turns))
    parts = torch.split(staged.x, _SEGMENT)
    start = zero_state(staged)

    def call() -> None:
        state = start
        for part in parts:
            _, state = slot.call(staged.bucket, float(_SEGMENT), part, state)

    calls = calls_per_reading(call, time.perf_counter, READING_S)
    turn = timed(call, time.perf_counter, calls)

    def run(readings: int) -> Sequence[float]:
        call()
        return turn(readings)

    return run


def deviation_row(name: str, staged: Stage) -> Row:
    """Whole sequences cut at random, each part by a profile drawn at random."""
    draw = random.Random(0)
    with surroundings(Mode.CALL):
        expected, _ = plain(staged.layer, (staged.x,), Mode.CALL)()
    worst = max(
        float((_cut_at_random(staged, draw) - expected).abs().max()) for _ in range(_ROUNDS)
    )
    return Row(
        name,
        DEVIATION,
        "",
        worst,
        {},
        limit=_DEVIATION_LIMIT,
        notes=f"{_ROUNDS} sequences, {len(staged.runs)} profiles",
    )


def _cut_at_random(staged: Stage, draw: random.Random) -> torch.Tensor:
    steps, runs = len(staged.x), list(staged.runs.values())
    edges = sorted(draw.sample(range(1, steps), draw.randrange(1, min(40, steps))))
    state, outputs = zero_state(staged), []
    for begin, end in zip([0, *edges], [*edges, steps], strict=True):
        y, state = draw.choice(runs)(staged.x[begin:end], state)
        outputs.append(y)
    return torch.cat(outputs)
