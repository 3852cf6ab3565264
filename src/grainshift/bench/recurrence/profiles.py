"""Every profile of a layer by itself, and tuned layers, called in this process in turn.

Knows no promise.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import grainshift
from grainshift.api.arguments import read_families
from grainshift.bench.contender import READING_S, Workload
from grainshift.bench.measure import Timings, Turn, calls_per_reading, timed
from grainshift.bench.mode import Mode, plain, surroundings
from grainshift.bench.recurrence.ours import settle
from grainshift.core.choice import Choice
from grainshift.core.family import Family
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.core.site import Site
from grainshift.families.recurrence import bucket as buckets

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """One layer with all its profiles built, as the family offers them; `x` is steps first."""

    family: Family
    layer: nn.Module
    site: Site
    bucket: str
    x: torch.Tensor
    runs: Mapping[Choice, Run]


class _Fixed:
    """A Door that always runs the same."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def call(self, bucket: str, work: float, /, *args: Any) -> Any:
        """Run it."""
        return self._run(*args)

    def is_stock(self, bucket: str) -> bool:
        """It may be, for all that is known here."""
        return True

    def train(self, bucket: str, work: float, /, *args: Any) -> Any:
        """Run it."""
        return self._run(*args)


def stage(workload: Workload, family: Family | None = None) -> Stage:
    """Build every profile that is offered for the workload's one layer, by the user's family."""
    layer, (x_TBI,) = workload.build()
    if family is None:
        (family,) = read_families(["recurrence"], Settings())
    (site,), _ = family.find(layer)
    bucket = buckets.name(x_TBI.shape[1], x_TBI.shape[0])
    offered = family.offer(site, bucket, Limits())
    runs = {choice: family.build(layer, site, bucket, choice, "").run for choice in offered}
    return Stage(family, layer, site, bucket, x_TBI, runs)


def fixed_turns(staged: Stage) -> dict[str, Turn]:
    """The turn of each profile, without a Slot: the layer's calls go straight to its Runner."""
    return {
        str(choice): layer_turn(_fixed(staged, run), staged.x)
        for choice, run in staged.runs.items()
    }


def _fixed(staged: Stage, run: Run) -> nn.Module:
    alone = copy.copy(staged.layer)  # the same weights, an entry of its own
    staged.family.install(alone, staged.site, _Fixed(run))
    return alone


@contextmanager
def tuned(workload: Workload, settle_s: float, policy: str | None = None) -> Iterator[nn.Module]:
    """The workload's layer tuned and settled; None is the policy that users get."""
    layer, inputs = workload.build()
    model: nn.Module = grainshift.tune(layer, policy=policy)
    try:
        with surroundings(Mode.CALL):
            settle(model, plain(model, inputs, Mode.CALL), settle_s)
        yield model
    finally:
        grainshift.untune(model)


def layer_turn(layer: nn.Module, x_TBI: torch.Tensor, share: int = 1) -> Turn:
    """The turn of a layer in this process, `share` times as long as the others'."""
    call = plain(layer, (x_TBI,), Mode.CALL)
    with surroundings(Mode.CALL):
        calls = calls_per_reading(call, time.perf_counter, READING_S)
    turn = timed(call, time.perf_counter, calls)

    def run(readings: int) -> Sequence[float]:
        with surroundings(Mode.CALL):
            call()  # the caches were another's until now
            return turn(share * readings)

    return run


def best_fixed(timings: Mapping[str, Timings]) -> tuple[tuple[str, str], Timings]:
    """The fastest profile's names and readings; no block is read that it was picked by.

    The fastest of many looks faster than it is on the readings that made it the fastest. So the
    even blocks are those of the fastest in the odd ones, and the other way round.
    """
    names = tuple(_fastest(timings, other) for other in (1, 0))
    count = len(next(iter(timings.values())).blocks)
    blocks = tuple(timings[names[number % 2]].blocks[number] for number in range(count))
    return (names[0], names[1]), Timings(blocks)


def _fastest(timings: Mapping[str, Timings], first: int) -> str:
    """The fastest in every other block, from the first or the second on."""
    return min(timings, key=lambda name: float(np.median(timings[name].medians[first::2])))
