"""Measures contenders in turn, block by block, and compares them. Knows no model and no peer.

Whoever runs meets the same machine: each block gives every contender its turn, in an order drawn
anew, so that what drifts or disturbs falls on all of them. Nothing that was measured is dropped.
"""

import random
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grainshift.bench.row import Row

Clock = Callable[[], float]
Turn = Callable[[int], Sequence[float]]  # runs so many readings, answers seconds for one call each


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often to measure.

    blocks: rounds in which every contender has its turn.
    least_blocks: rounds that are run even when the budget is spent.
    warm_readings: readings of each contender before the first block, not counted.
    budget_s: seconds for all blocks together, warm-up apart.
    most_readings: most readings of one turn.
    seed: seed of the order of turns.
    """

    blocks: int = 30
    least_blocks: int = 5
    warm_readings: int = 5
    budget_s: float = 20.0
    most_readings: int = 50
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """All readings of one contender in seconds, block by block."""

    blocks: tuple[tuple[float, ...], ...]

    @property
    def medians(self) -> NDArray[np.float64]:
        """The median of each block."""
        return np.array([np.median(block) for block in self.blocks])

    @property
    def median(self) -> float:
        """The median of the blocks' medians."""
        return float(np.median(self.medians))

    def percentile(self, percent: float) -> float:
        """A percentile of all readings."""
        return float(
            np.percentile(np.concatenate([np.array(block) for block in self.blocks]), percent)
        )


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with its 95 % interval."""

    value: float
    low: float
    high: float


def timed(function: Callable[[], Any], clock: Clock, calls: int = 1) -> Turn:
    """The turn of a function in this process; a reading is the mean of `calls` calls."""

    def turn(readings: int) -> list[float]:
        seconds = []
        for _ in range(readings):
            start = clock()
            for _ in range(calls):
                function()
            seconds.append((clock() - start) / calls)
        return seconds

    return turn


def calls_per_reading(
    function: Callable[[], Any], clock: Clock, reading_s: float = 20e-6, most: int = 1 << 20
) -> int:
    """How many calls a reading needs to last `reading_s`, far above the clock's own cost."""
    calls = 1
    while calls < most:
        start = clock()
        for _ in range(calls):
            function()
        if clock() - start >= reading_s:
            break
        calls *= 2
    return calls


def measure(contenders: Mapping[str, Turn], plan: Plan, clock: Clock) -> dict[str, Timings]:
    """Give every contender its turn in every block, until the blocks or the budget are used up."""
    round_s = sum(_warm(turn, plan, clock) for turn in contenders.values())
    draw = random.Random(plan.seed)
    seen: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    start, rounds = clock(), 0
    for block in range(plan.blocks):
        spent_s = clock() - start
        if block >= plan.least_blocks and spent_s > plan.budget_s:
            break
        readings = _readings(plan, block, spent_s, spent_s / rounds if rounds else round_s)
        rounds += readings
        for name in draw.sample(list(contenders), len(contenders)):
            seen[name].append(tuple(contenders[name](readings)))
    return {name: Timings(tuple(blocks)) for name, blocks in seen.items()}


def ratio(over: Timings, under: Timings, resamples: int = 2000, seed: int = 0) -> Ratio:
    """Median of `over` divided by median of `under`; the interval by resampling whole blocks."""
    above, below = over.medians, under.medians
    if len(above) != len(below):
        raise ValueError(f"measured in one run? {len(above)} blocks beside {len(below)}")
    draw = np.random.default_rng(seed).integers(0, len(above), (resamples, len(above)))
    spread = np.median(above[draw], axis=1) / np.median(below[draw], axis=1)
    low, high = np.percentile(spread, (2.5, 97.5))
    return Ratio(float(np.median(above) / np.median(below)), float(low), float(high))


def row(
    workload: str,
    metric: str,
    ours: Timings,
    peers: Mapping[str, Timings],
    *,
    aside: Container[str] = (),
    limit_s: float | None = None,
    notes: str = "",
) -> Row:
    """A Row of times in milliseconds: ours, every peer's, and how far the best peer is from us.

    The peers in `aside` are shown, but none of them is the best.
    """
    medians = {name: timings.median * 1e3 for name, timings in peers.items()}
    best = min((name for name in peers if name not in aside), key=medians.__getitem__, default=None)
    compared = None if best is None else ratio(peers[best], ours)
    return Row(
        workload=workload,
        metric=metric,
        unit="ms",
        ours=ours.median * 1e3,
        peers=medians,
        best_peer=best,
        ratio=compared.value if compared else None,
        ratio_low=compared.low if compared else None,
        ratio_high=compared.high if compared else None,
        limit=None if limit_s is None else limit_s * 1e3,
        notes="; ".join(part for part in (f"{len(ours.blocks)} blocks", notes) if part),
    )


def _warm(turn: Turn, plan: Plan, clock: Clock) -> float:
    """Warm a contender up; what one more reading of it takes."""
    turn(plan.warm_readings)
    start = clock()
    turn(1)
    return clock() - start


def _readings(plan: Plan, block: int, spent_s: float, round_s: float) -> int:
    """How many readings a turn of this block has, so that all blocks fit, with a tenth to spare."""
    if round_s <= 0.0:
        return plan.most_readings
    left_s = (0.9 * plan.budget_s - spent_s) / (plan.blocks - block)
    return max(1, min(plan.most_readings, int(left_s / round_s)))
