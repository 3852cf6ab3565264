"""Times what a policy's actor takes to answer inside a call. Knows no model and no tuner."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from grainshift.bench.measure import Plan, Timings, Turn, measure, ratio
from grainshift.bench.row import Row
from grainshift.core.choice import Choice
from grainshift.core.policy import Actor
from grainshift.core.proposal import Lesson, Query
from grainshift.policies import POLICIES, make_policy

__all__ = ["run"]

_Pick = Callable[[NDArray[np.float32], NDArray[np.bool_]], int]

_FLOATS, _CHOICES, _HIDDEN = 24, 10, 32
_LIMITS_US = {50: 10.0, 99: 30.0}


def run(blocks: int = 30, readings: int = 1000) -> list[Row]:
    """Decision times of the networks' actors at p50 and p99, beside the same in eager torch.

    Each reading is one decision, timed alone, on a fresh state and mask.
    """
    query = _query()
    turns: dict[str, Turn] = {"torch": _single_threaded(_turn(_torch_pick()))}
    for name in POLICIES:
        actor = _taught(name, query)
        if actor is not None:
            turns[name] = _turn(actor.pick)
    plan = Plan(blocks=blocks, warm_readings=readings, most_readings=readings, budget_s=60.0)
    timings = measure(turns, plan, time.perf_counter)
    theirs = timings.pop("torch")
    return [
        _row(name, percent, ours, theirs)
        for name, ours in timings.items()
        for percent in _LIMITS_US
    ]


def _row(name: str, percent: int, ours: Timings, theirs: Timings) -> Row:
    compared = ratio(_at(theirs, percent), _at(ours, percent))
    return Row(
        workload=f"actor {name}",
        metric=f"decision p{percent}",
        unit="us",
        ours=ours.percentile(percent) * 1e6,
        peers={"torch": theirs.percentile(percent) * 1e6},
        best_peer="torch",
        ratio=compared.value,
        ratio_low=compared.low,
        ratio_high=compared.high,
        limit=_LIMITS_US[percent],
        notes=f"{_FLOATS} floats, 2x{_HIDDEN} hidden, {_CHOICES} choices, one thread;"
        f" {len(ours.blocks)} blocks of {len(ours.blocks[0])}",
    )


def _at(timings: Timings, percent: int) -> Timings:
    """Each block's percentile as its only reading, so that whole blocks are resampled."""
    return Timings(tuple((float(np.percentile(block, percent)),) for block in timings.blocks))


def _query() -> Query:
    choices = (Choice("stock"), *(Choice("unrolled", (2**n,)) for n in range(1, _CHOICES)))
    state = tuple(float(number) for number in range(_FLOATS))
    return Query("bench", "b", state, choices, (True,) * _CHOICES, (0.0,) * _CHOICES)


def _taught(name: str, query: Query) -> Actor | None:
    policy = make_policy(name)
    policy.learn([Lesson(query, n % _CHOICES, 0.1 * (n % _CHOICES), query) for n in range(200)])
    return policy.actor(query.choices)


def _turn(pick: _Pick) -> Turn:
    draw = np.random.default_rng(0)
    states = draw.normal(size=(64, _FLOATS)).astype(np.float32)
    masks = draw.random((64, _CHOICES)) < 0.7
    masks[:, 0] = True

    def turn(readings: int) -> list[float]:
        seconds, clock = [], time.perf_counter
        for number in range(readings):
            state, mask = states[number % 64], masks[number % 64]
            start = clock()
            pick(state, mask)
            seconds.append(clock() - start)
        return seconds

    return turn


def _single_threaded(turn: Turn) -> Turn:
    """torch at its best here: with a team of threads its small products wait for one another."""

    def alone(readings: int) -> Sequence[float]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return turn(readings)
        finally:
            torch.set_num_threads(threads)

    return alone


def _torch_pick() -> _Pick:
    """What one would write first: the same network as a module, in inference mode."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((_FLOATS, _HIDDEN), (_CHOICES, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN,))
    rows, offered, second, third = (torch.randn(shape, generator=generator) for shape in shapes)

    @torch.inference_mode()
    def pick(state: NDArray[np.float32], mask: NDArray[np.bool_]) -> int:
        first = torch.relu(offered + torch.asinh(torch.from_numpy(state)) @ rows)
        scores = torch.relu(first @ second) @ third
        return int(scores.masked_fill(~torch.from_numpy(mask), -torch.inf).argmax())

    return pick
