"""What a policy's actor takes inside a sequence that really runs. Knows no peer."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from grainshift.bench.mode import Mode, plain, surroundings
from grainshift.bench.recurrence.effort import Effort
from grainshift.bench.recurrence.profiles import Stage, stage
from grainshift.bench.row import Row
from grainshift.bench.workloads.recurrence import DECIDING
from grainshift.core.conditions import Conditions, condition_state
from grainshift.core.policy import Actor
from grainshift.core.proposal import state_of
from grainshift.core.settings import Settings
from grainshift.policies import make_policy
from grainshift.runtime.slot import Slot
from grainshift.tuner.picks import Pick

DECISION = "a decision inside the sequence, p50"
SHARE = "deciding, share of the time"
_DECISION_LIMIT_US, _SHARE_LIMIT = 10.0, 0.01
_MEASURE_S = 4.0
_WARM_CALLS = 8  # before them no sequence is cut


class _Timed:
    """A Pick whose every answer is timed, where it is asked."""

    def __init__(self, pick: Pick) -> None:
        self._pick = pick
        self._sensed_s = 0.0
        self.seconds: list[float] = []

    def __call__(self) -> int:
        start_s = time.perf_counter()
        if start_s - self._sensed_s > Settings().sense_s:  # as often as Conditions are sampled
            self._pick.sense(condition_state(Conditions(start_s)))
            self._sensed_s = start_s
        arm = self._pick()
        self.seconds.append(time.perf_counter() - start_s)
        return arm


def deciding(effort: Effort) -> Iterator[Row]:
    """Two Rows a workload: the time of one decision, and the share of all."""
    for workload in effort.chosen(DECIDING):
        effort.tell(f"{workload.name}: deciding at every segment's edge")
        yield from decision_rows(workload.name, stage(workload), effort.seconds(_MEASURE_S))


def decision_rows(name: str, staged: Stage, measure_s: float) -> Iterator[Row]:
    """The time of a decision, and the share that all decisions take."""
    policy, actor = _actor(staged)
    slot = Slot(staged.site, next(iter(staged.runs.values())))
    undo = staged.family.install(staged.layer, staged.site, slot)
    try:
        call = plain(staged.layer, (staged.x,), Mode.CALL)
        with surroundings(Mode.CALL):
            pick = _let_pick(slot, staged, actor, call)
            calls, wall_s = _call_for(call, measure_s)
    finally:
        undo()
    notes = f"policy {policy}, {len(pick.seconds)} decisions in {calls} calls"
    p50_us, p99_us = 1e6 * np.percentile(pick.seconds, (50, 99))
    share = sum(pick.seconds) / wall_s
    told = f"{notes}; p99 {p99_us:.1f} us"
    yield Row(name, DECISION, "us", float(p50_us), {}, limit=_DECISION_LIMIT_US, notes=told)
    yield Row(name, SHARE, "share", share, {}, limit=_SHARE_LIMIT, notes=notes)


def _actor(staged: Stage) -> tuple[str, Actor]:
    """The actor of the family's own policy; PPO's where that decides nothing inside a call."""
    for name in (staged.family.policy, "ppo"):
        actor = make_policy(name).actor(tuple(staged.runs))
        if actor is not None:
            return name, actor
    raise AssertionError("ppo has an actor")


def _let_pick(slot: Slot, staged: Stage, actor: Actor, call: Callable[[], object]) -> _Timed:
    """Have every profile at hand, and the actor pick among all but the baseline."""
    for _ in range(_WARM_CALLS):
        call()
    for number, run in enumerate(staged.runs.values()):
        slot.put(staged.bucket, number, run)
    features = (*staged.site.features, *staged.family.features(staged.site, staged.bucket))
    state = np.array(state_of(features, Conditions(0.0)), dtype=np.float32)
    mask = np.ones(len(staged.runs), dtype=np.bool_)
    mask[0] = False
    pick = _Timed(Pick(actor, state, mask))
    slot.let_pick(staged.bucket, pick)
    return pick


def _call_for(call: Callable[[], object], measure_s: float) -> tuple[int, float]:
    """So many calls, and the seconds they took."""
    calls, begin_s = 0, time.perf_counter()
    while (wall_s := time.perf_counter() - begin_s) < measure_s or not calls:
        call()
        calls += 1
    return calls, wall_s
