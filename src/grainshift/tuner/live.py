"""Watches the live Choice: drift, probes, guards, trips and failures. Pure."""

import math
from dataclasses import replace
from statistics import fmean

from grainshift.core.choice import Exactness
from grainshift.core.instructions import Admit, Compare, Deal, Note, Quarantine, Release, Swap, Trip
from grainshift.tuner import rules
from grainshift.tuner.evidence import bounds
from grainshift.tuner.intake import forget
from grainshift.tuner.moves import WINDOW, Said, Step, arm_at, drop_trial, go_live, lesson, reject
from grainshift.tuner.state import BASELINE, Arm, Case, Phase, State, Trial

FAILURE_REWARD = -3.0
_TIGHT_CALLS = 16.0  # slack, in calls, under which the Slot watches by itself
_TRIP_RATIO = 1.5
_RESERVE_CALLS = 1.5
_SURE = 1.5  # deviations; returning to the baseline is safe, so it takes less than a proof


def notice_drift(state: State, case: Case, out: Said) -> Case:
    """Look again at everything when a level has moved."""
    limit = state.settings.drift_limit
    if state.frozen:
        return case
    if not case.drift.hit(limit) and not case.baseline_drift.hit(limit):
        return case
    out.append(Note(*case.key, "the level has moved: looking again"))
    case = forget(state.settings, case)
    return drop_trial(case, out) if case.phase is Phase.TRYING else case


def take_probe(state: State, case: Case, out: Said) -> Case:
    """Take in what a finished probe told, and set when the next is due."""
    probe, gains = case.probe, case.gains
    if probe is not None and probe.done >= probe.dealt:
        gains = (*gains, *probe.baseline_gains)[-WINDOW:]
        interval = rules.probe_interval(state, case)
        if gains[-1] < 0.0:  # look again at once
            interval = 1
        elif case.suspended:
            out.append(Swap(*case.key, case.live, "the slow run was an exception"))
            case = replace(case, suspended=False)
        return replace(case, probe=None, gains=gains, next_probe_calls=case.calls + interval)
    return case


def judge_live(state: State, case: Case, at_s: float, out: Said) -> Case:
    """Return to the baseline where a Guard, the promise or the probes demand it."""
    if case.live == BASELINE:
        return case
    arm = case.arms[case.live]
    live_s = case.level.unit_s * case.work if case.level.count else 0.0
    for guard in state.guards:
        verdict = guard.keep(arm.offer, live_s, case.call_s, state.conditions)
        if not verdict.admitted:
            return revert(state, case, at_s, f"{verdict.guard}: {verdict.reason}", out)
    if case.ledger.debt_s > 0.0 and rules.slack_s(state, case) < _RESERVE_CALLS * case.call_s:
        return revert(state, case, at_s, "lost more than exploring may cost", out)
    if _is_losing(case):
        return revert(state, case, at_s, "no longer faster", out)
    return case


def _is_losing(case: Case) -> bool:
    if not case.gains:
        return False
    noise = case.baseline.noise
    newest = case.gains[-2:]
    if max(newest) < 0.0 and fmean(newest) < -3.0 * noise / math.sqrt(len(newest)):
        return True
    if len(case.gains) < 3:
        return False
    told = bounds(case.gains, noise, 0.05)
    return told.mean + _SURE * told.deviation / math.sqrt(len(case.gains)) < 0.0


def revert(state: State, case: Case, at_s: float, reason: str, out: Said) -> Case:
    """Return to the baseline at once; no hysteresis holds this back."""
    old = case.live
    if case.trial is not None or case.probe is not None:
        case = drop_trial(case, out)
    case = reject(state, case, old)
    case = arm_at(case, old, reversals=case.arms[old].reversals + 1, gain_low=None)
    case = go_live(case, BASELINE, at_s, f"revert: {reason}", (), out)
    return replace(case, ledger=replace(case.ledger, debt_s=0.0))


def probe(state: State, case: Case, out: Said) -> Case:
    """Measure the live Choice beside the baseline when that is due."""
    due = case.live != BASELINE and case.calls >= case.next_probe_calls
    if not due or case.probe is not None:
        return case
    live = case.live
    order = (BASELINE, live, live, BASELINE)
    probe = Trial(case.trials + 1, live, order, dealt=1)
    out.append(Deal(*case.key, probe.number, order, 1))
    return replace(case, probe=probe, trials=probe.number)


def _has_runs_to_come(case: Case) -> bool:
    return case.trial is not None and case.trial.is_under_way


def compare_live(state: State, case: Case, out: Said) -> Case:
    """Check the live Choice's numbers on a live input when that is due."""
    exactness = case.arms[case.live].offer.choice.exactness
    due = case.live != BASELINE and case.calls >= case.compare_at_calls
    if not due or case.phase is Phase.COMPARING or _has_runs_to_come(case):
        return case
    out.append(Compare(*case.key, case.live))
    wait = rules.probe_interval(state, case)
    if exactness is not Exactness.LOWER:
        wait = max(wait, case.calls)  # ever rarer: these differ by rounding at most
    return replace(case, compare_at_calls=case.calls + wait)


def set_trip(state: State, case: Case, out: Said) -> Case:
    """Where little slack is left, have the Slot go back by itself, without asking first."""
    risky = case.live != BASELINE or case.phase is Phase.TRYING
    tight = rules.slack_s(state, case) < _TIGHT_CALLS * case.call_s
    unit_s = _TRIP_RATIO * case.baseline.unit_s if risky and tight else math.inf
    known = case.trip_unit_s
    if unit_s == known or (math.isfinite(unit_s) and 0.8 < unit_s / known < 1.25):
        return case
    out.append(Trip(*case.key, unit_s))
    return replace(case, trip_unit_s=unit_s)


def tripped(state: State, case: Case, number: int, at_s: float) -> Step:
    """A run took so long that the Slot went back by itself: measure before it may go on.

    The Slot has dropped what was dealt, the probe too, and no actor picks any more.
    """
    out: Said = []
    trial, is_live = case.trial, number == case.live
    case = replace(case, probe=None, next_probe_calls=min(case.next_probe_calls, case.calls))
    if case.phase is Phase.TRYING:
        case = drop_trial(case, out)
        if trial is not None and trial.arm == number:
            case = reject(state, case, number, 1.0)
    if number == BASELINE or not 0 <= number < len(case.arms):
        return case, out
    if not is_live:
        case = arm_at(case, number, gain_low=None)
    elif case.suspended or state.frozen:
        reason = "too slow, and exploring is over" if state.frozen else "too slow twice in a row"
        case = revert(state, case, at_s, reason, out)
    else:
        case = replace(case, suspended=True)
    return admit(state, replace(case, admitted=()), out), out


def admit(state: State, case: Case, out: Said) -> Case:
    """Say among which Choices an actor may pick: those that measured as well as the live one.

    Where the baseline runs, because nothing is better or until a probe has told, nobody picks.
    """
    proven: tuple[int, ...] = (BASELINE,)
    if case.live != BASELINE and not case.suspended:
        gain = fmean(case.gains) if case.gains else case.arms[case.live].gain or 0.0
        proven = tuple(
            number
            for number, arm in enumerate(case.arms)
            if number in (BASELINE, case.live) or _is_as_good(arm, gain - state.settings.margin)
        )
    if proven == case.admitted:
        return case
    out.append(Admit(*case.key, proven))
    return replace(case, admitted=proven)


def _is_as_good(arm: Arm, gain: float) -> bool:
    if arm.quarantined or arm.gain is None or arm.gain_low is None:
        return False
    return arm.gain_low > 0.0 and arm.gain >= gain


def release(case: Case, out: Said) -> Case:
    """Let go of what idle Choices hold: neither live, nor on trial, nor an actor's."""
    kept = {BASELINE, case.live, case.candidate, *case.admitted}
    for number, arm in enumerate(case.arms):
        if arm.built and arm.held_bytes and number not in kept:
            out.append(Release(*case.key, number))
            case = arm_at(case, number, built=False, held_bytes=0)
    return case


def stop(state: State, case: Case, at_s: float) -> Step:
    """End exploring: take back whatever is tried, and leave nothing waiting for a probe."""
    out: Said = []
    if case.phase is not Phase.IDLE or case.probe is not None:
        case = replace(drop_trial(case, out), query=None)
    if case.suspended:
        case = revert(state, case, at_s, "too slow, and exploring is over", out)
    return case, out


def quarantine(state: State, case: Case, number: int, at_s: float, reason: str) -> Step:
    """Put a Choice out for good; the baseline takes over where it was live or on trial."""
    out: Said = [Quarantine(*case.key, number, reason)]
    out.extend(lesson(case, number, FAILURE_REWARD) if case.candidate == number else [])
    case = arm_at(case, number, quarantined=True, built=False, held_bytes=0)
    if case.live == number:
        case = revert(state, case, at_s, reason, out)
    elif case.candidate == number or case.phase in (Phase.TRYING, Phase.COMPARING):
        case = replace(drop_trial(case, out), query=None)
    return admit(state, replace(case, admitted=()), out), out  # the Slot let nobody pick
