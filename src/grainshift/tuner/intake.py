"""Takes Readings into a Case: levels, drift, paired blocks and the ledger. Decides nothing."""

import math
from dataclasses import replace

from grainshift.core.events import Read
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.tuner.evidence import Cusum, Level
from grainshift.tuner.rules import settle_pending, spend
from grainshift.tuner.state import BASELINE, Block, Case, Trial

_STEADY = 8  # runs before a level is trusted to tell drift
_OPEN_BLOCKS = 16  # blocks of a trial that may be incomplete at once, when threads interleave
_WORK_MEMORY = 0.1
_CLEARLY = 3.0  # deviations of one run
_MOST = 1e15  # seconds, units of work or calls; beyond it a Reading is nonsense
_LEAST = 1e-9  # seconds or units of work of one run; the clock may be too coarse to tell


def take(settings: Settings, case: Case, event: Read) -> Case:
    """The Case after these Readings; nonsense among them is passed over."""
    if all(is_amount(total) for total in (event.calls, event.live_s, event.live_work)):
        case = _count(case, event)
    for reading in event.readings:
        if not is_amount(reading.seconds) or not _LEAST <= reading.work <= _MOST:
            continue
        if not 0 <= reading.arm < len(case.arms):
            continue
        if reading.trial:
            case = _take_trial(settings, case, reading)
        elif reading.seconds >= _LEAST:
            case = _take_live(settings, case, reading)
    return case


def is_amount(value: float) -> bool:
    """Whether this can be an amount of something: a number, not negative, not beyond reason."""
    return 0.0 <= value <= _MOST


def _count(case: Case, event: Read) -> Case:
    ledger, live = case.ledger, case.live
    ran_s = ledger.ran_s + event.live_s
    work = case.work
    if event.calls and event.live_work >= _LEAST * event.calls:
        per_call = event.live_work / event.calls
        work = per_call if not case.calls else work + _WORK_MEMORY * (per_call - work)
    if live == BASELINE or not case.baseline.count:
        ledger = replace(ledger, ran_s=ran_s, baseline_s=ledger.baseline_s + event.live_s)
    else:
        ledger = replace(
            ledger,
            ran_s=ran_s,
            pending_s=ledger.pending_s + event.live_s,
            pending_work=ledger.pending_work + event.live_work,
        )
    return replace(case, calls=case.calls + event.calls, work=work, ledger=ledger)


def _take_live(settings: Settings, case: Case, reading: Reading) -> Case:
    log_unit_s = math.log(reading.unit_s)
    if reading.arm != case.live:  # it was under way when the live Choice changed
        is_baseline = reading.arm == BASELINE
        return _take_baseline(settings, case, log_unit_s) if is_baseline else case
    level, drift = case.level, case.drift
    if level.count >= _STEADY:
        drift = drift.add(level.standard(log_unit_s), settings.drift_slack)
    baseline = case.baseline.add(log_unit_s) if case.live == BASELINE else case.baseline
    return replace(case, level=level.add(log_unit_s), drift=drift, baseline=baseline)


def _take_trial(settings: Settings, case: Case, reading: Reading) -> Case:
    case = _charge(case, reading)
    log_unit_s = math.log(max(reading.seconds, _LEAST) / reading.work)
    if reading.arm == BASELINE:
        case = _take_baseline(settings, case, log_unit_s)
    for name in ("trial", "probe"):
        trial: Trial | None = getattr(case, name)
        if trial is not None and trial.number == reading.trial:
            filled = _fill(trial, reading.block, (reading.arm, log_unit_s), case.live)
            if filled.done > trial.done and BASELINE in filled.order:
                case = settle_pending(case, _told_unit_s(case, filled))
            case = _set_trial(case, name, filled)
    return case


def _take_baseline(settings: Settings, case: Case, log_unit_s: float) -> Case:
    baseline, drift = case.baseline, case.baseline_drift
    if baseline.count >= _STEADY:
        drift = drift.add(baseline.standard(log_unit_s), settings.drift_slack)
    return replace(case, baseline=baseline.add(log_unit_s), baseline_drift=drift)


def _set_trial(case: Case, name: str, trial: Trial) -> Case:
    return replace(case, trial=trial) if name == "trial" else replace(case, probe=trial)


def _charge(case: Case, reading: Reading) -> Case:
    ledger = replace(case.ledger, ran_s=case.ledger.ran_s + reading.seconds)
    expected_s = reading.work * case.baseline.unit_s if case.baseline.count else reading.seconds
    if reading.arm == BASELINE:
        ledger = replace(ledger, baseline_s=ledger.baseline_s + reading.seconds)
    elif reading.arm == case.live:
        ledger = replace(
            ledger,
            pending_s=ledger.pending_s + reading.seconds,
            pending_work=ledger.pending_work + reading.work,
        )
    else:
        ledger = replace(ledger, baseline_s=ledger.baseline_s + expected_s)
        lost_s = reading.seconds - min(case.live_s / case.work * reading.work, expected_s)
        ledger = spend(ledger, lost_s)
    return replace(case, calls=case.calls + 1, ledger=ledger)


def _fill(trial: Trial, number: int, run: tuple[int, float], live: int) -> Trial:
    found = next((block for block in trial.blocks if block.number == number), Block(number))
    missing = trial.order.count(run[0]) > sum(arm == run[0] for arm, _ in found.runs)
    if not missing:
        return trial
    block = replace(found, runs=(*found.runs, run))
    others = tuple(other for other in trial.blocks if other.number != number)
    if len(block.runs) < len(trial.order):
        return replace(trial, blocks=(*others, block)[-_OPEN_BLOCKS:])
    over_live, over_baseline = _mean(block, live), _mean(block, BASELINE)
    own = _mean(block, trial.arm)
    trial = replace(
        trial, blocks=others, done=trial.done + 1, gains=(*trial.gains, over_live - own)
    )
    if BASELINE not in trial.order:
        return trial
    gains = (*trial.baseline_gains, over_baseline - own)
    return replace(trial, baseline_gains=gains, baseline_log=over_baseline)


def _told_unit_s(case: Case, trial: Trial) -> float:
    """The baseline's seconds a unit; the last block's own where the level is clearly behind it."""
    level = case.baseline
    if trial.baseline_log < level.mean - _CLEARLY * level.noise:
        return math.exp(trial.baseline_log)
    return level.unit_s


def _mean(block: Block, arm: int) -> float:
    times = [log_unit_s for run_arm, log_unit_s in block.runs if run_arm == arm]
    return sum(times) / len(times) if times else 0.0


def forget(settings: Settings, case: Case) -> Case:
    """The Case after its level moved: what was proven before may hold no longer."""
    arms = tuple(
        arm
        if arm.reversals and case.calls < arm.wait_until_calls
        else replace(arm, rejections=0, wait_until_calls=case.calls, gain=None, gain_low=None)
        for arm in case.arms
    )
    moved = case.live == BASELINE or case.baseline_drift.hit(settings.drift_limit)
    stale = replace(case.baseline, count=min(case.baseline.count, 2))
    baseline = Level() if moved else stale
    return replace(
        case,
        arms=arms,
        baseline=baseline,
        level=Level(),
        drift=Cusum(),
        baseline_drift=Cusum(),
        gains=(),
        next_ask_calls=case.calls,
        next_probe_calls=case.calls,
    )
