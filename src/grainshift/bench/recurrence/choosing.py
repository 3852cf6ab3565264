"""What the policies choose beside the best that could have been chosen. Knows no peer."""

import time
from collections.abc import Iterator

import numpy as np

from grainshift.bench.contender import Workload
from grainshift.bench.measure import measure, ratio
from grainshift.bench.recurrence.effort import Effort
from grainshift.bench.recurrence.ours import remark
from grainshift.bench.recurrence.profiles import best_fixed, fixed_turns, layer_turn, stage, tuned
from grainshift.bench.row import Row
from grainshift.bench.workloads.recurrence import CHOOSING

METRIC = "median as tuned, beside the best fixed profile"
BEST = "best fixed"
_SETTLE_S = 6.0
_MEASURE_S = 7.0


def choosing(effort: Effort) -> Iterator[Row]:
    """A Row a workload: the default policy, a plain bandit, a random pick, every fixed profile."""
    for workload in effort.chosen(CHOOSING):
        effort.tell(f"{workload.name}: every profile, and the policies")
        yield _row(workload, effort)


def _row(workload: Workload, effort: Effort) -> Row:
    staged = stage(workload)
    fixed = fixed_turns(staged)
    settle_s = effort.seconds(_SETTLE_S)
    with tuned(workload, settle_s) as ours, tuned(workload, settle_s, "bandit") as bandit:
        said = remark(ours), remark(bandit)
        turns = {
            **fixed,
            "": layer_turn(ours, staged.x),
            "policy bandit": layer_turn(bandit, staged.x),
        }
        seen = measure(turns, effort.plan(_MEASURE_S), time.perf_counter)
    mine, plain_bandit = seen.pop(""), seen.pop("policy bandit")
    names, best = best_fixed(seen)
    compared = ratio(best, mine)
    peers = {
        BEST: best.median,
        "bandit": plain_bandit.median,
        "random pick": float(np.mean([timings.median for timings in seen.values()])),
        "stock": seen["stock"].median,
    }
    return Row(
        workload.name,
        METRIC,
        "ms",
        1e3 * mine.median,
        {name: 1e3 * seconds for name, seconds in peers.items()},
        BEST,
        compared.value,
        compared.low,
        compared.high,
        notes=f"{len(mine.blocks)} blocks; best of {len(seen)}: {' or '.join(dict.fromkeys(names))}"
        f"; default policy: {said[0]}; bandit: {said[1]}; a random pick is the mean of all",
    )
