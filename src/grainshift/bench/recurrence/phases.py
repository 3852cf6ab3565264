"""Tuned layers while another process takes a core and gives it back. Knows no peer."""

import time
from collections.abc import Iterator
from contextlib import nullcontext

from torch import nn

from grainshift.bench.contender import Workload
from grainshift.bench.load import busy_core
from grainshift.bench.measure import Turn, measure, ratio
from grainshift.bench.recurrence.choosing import BEST
from grainshift.bench.recurrence.effort import Effort
from grainshift.bench.recurrence.ours import remark
from grainshift.bench.recurrence.profiles import best_fixed, fixed_turns, layer_turn, stage, tuned
from grainshift.bench.row import Row
from grainshift.bench.workloads.recurrence import UNDER_LOAD

METRIC = "median as tuned, {} another process keeps a core busy"
_PHASES = (("before", 0), ("while", 1), ("after", 0))
_SETTLE_S = 6.0
_MEASURE_S = 8.0
_SHARE = 8  # a tuned layer learns from its own calls, and no user calls it once in twenty times


def under_load(effort: Effort) -> Iterator[Row]:
    """A Row a phase; every profile and the tuned layer meet in every block of it."""
    for workload in effort.chosen(UNDER_LOAD):
        effort.tell(f"{workload.name}: calm, one core busy, calm")
        staged = stage(workload)
        fixed = fixed_turns(staged)
        with tuned(workload, effort.seconds(_SETTLE_S)) as ours:
            turns = {**fixed, "": layer_turn(ours, staged.x, _SHARE)}
            for phase, busy in _PHASES:
                with busy_core(busy) if busy else nullcontext():
                    yield _row(workload, phase, turns, ours, effort)


def _row(
    workload: Workload, phase: str, turns: dict[str, Turn], ours: nn.Module, effort: Effort
) -> Row:
    seen = measure(turns, effort.plan(_MEASURE_S), time.perf_counter)
    mine = seen.pop("")
    names, best = best_fixed(seen)
    compared = ratio(best, mine)
    return Row(
        workload.name,
        METRIC.format(phase),
        "ms",
        1e3 * mine.median,
        {BEST: 1e3 * best.median, "stock": 1e3 * seen["stock"].median},
        BEST,
        compared.value,
        compared.low,
        compared.high,
        notes=f"{len(mine.blocks)} blocks from the first moment of the phase; best:"
        f" {' or '.join(dict.fromkeys(names))}; live at its end: {remark(ours)}",
    )
