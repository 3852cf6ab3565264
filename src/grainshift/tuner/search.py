"""Looks at a Case and says what to do next: ask, build, compare, try, switch, revert. Pure."""

import math
from dataclasses import replace
from statistics import fmean

from grainshift.core.choice import Exactness
from grainshift.core.instructions import (
    Admit,
    AnyInstruction,
    Ask,
    Build,
    Compare,
    Deal,
    Note,
    Quarantine,
    Recall,
    Remember,
    Swap,
    Teach,
    Trip,
)
from grainshift.core.proposal import Lesson
from grainshift.tuner import rules
from grainshift.tuner.evidence import Level, bounds
from grainshift.tuner.intake import forget
from grainshift.tuner.state import BASELINE, Arm, Case, Phase, State, Trial

Step = tuple[Case, list[AnyInstruction]]

FAILURE_REWARD = -3.0
_STAY_CALLS = 64  # calls until the Policy is asked again after it answered: stay
_HOPELESS_RATIO = 4.0  # a first run this much slower is not worth a second
_LONGEST_WAIT = 64.0
_WINDOW = 16  # probes that tell what the live Choice gains now
_TIGHT_CALLS = 16.0
_TRIP_RATIO = 1.5
_RESERVE_CALLS = 1.5
_SURE = 1.5  # deviations; returning to the baseline is safe, so it takes less than a proof


def look(state: State, case: Case, at_s: float) -> Step:
    """What follows from what the Case now knows."""
    out: list[AnyInstruction] = []
    case = _notice_drift(state, case, out)
    case = _take_probe(state, case, out)
    case = _judge_live(state, case, at_s, out)
    case = _judge_trial(state, case, at_s, out)
    if not state.frozen:
        case = _probe(state, case, out)
        case = _compare_live(state, case, out)
        case = _ask(state, case, out)
    case = _set_trip(state, case, out)
    return _admit(case, out), out


def tripped(state: State, case: Case, number: int, at_s: float) -> Step:
    """A run took so long that the Slot went back by itself: measure before it may go on."""
    out: list[AnyInstruction] = []
    if case.phase is Phase.TRYING:
        trial = case.trial
        case = _drop_trial(case, out)
        if trial is not None and trial.arm == number:
            return _reject(state, case, number, 1.0), out
    if number == case.live and case.suspended:
        return revert(state, case, at_s, "too slow twice in a row", out), out
    if number == case.live:
        case = replace(case, probe=None, suspended=True, next_probe_calls=case.calls)
    return case, out


def _set_trip(state: State, case: Case, out: list[AnyInstruction]) -> Case:
    """Where little slack is left, have the Slot go back by itself, without asking first."""
    risky = case.live != BASELINE or case.phase is Phase.TRYING
    tight = rules.slack_s(state, case) < _TIGHT_CALLS * case.call_s
    unit_s = _TRIP_RATIO * case.baseline.unit_s if risky and tight else math.inf
    known = case.trip_unit_s
    if unit_s == known or (math.isfinite(unit_s) and 0.8 < unit_s / known < 1.25):
        return case
    out.append(Trip(*case.key, unit_s))
    return replace(case, trip_unit_s=unit_s)


def arm_at(case: Case, number: int, **changes: object) -> Case:
    """The Case with one Arm changed."""
    arms = list(case.arms)
    arms[number] = replace(arms[number], **changes)  # type: ignore[arg-type]
    return replace(case, arms=tuple(arms))


def _notice_drift(state: State, case: Case, out: list[AnyInstruction]) -> Case:
    limit = state.settings.drift_limit
    if not case.drift.hit(limit) and not case.baseline_drift.hit(limit):
        return case
    out.append(Note(*case.key, "the level has moved: looking again"))
    case = forget(state.settings, case)
    return _drop_trial(case, out) if case.phase is Phase.TRYING else case


def _drop_trial(case: Case, out: list[AnyInstruction]) -> Case:
    out.append(Recall(*case.key))
    return replace(case, trial=None, probe=None, phase=Phase.IDLE, candidate=BASELINE)


def _take_probe(state: State, case: Case, out: list[AnyInstruction]) -> Case:
    probe, gains = case.probe, case.gains
    if probe is not None and probe.done >= probe.dealt:
        gains = (*gains, *probe.baseline_gains)[-_WINDOW:]
        interval = rules.probe_interval(state, case)
        if gains[-1] < 0.0:  # look again at once
            interval = 1
        elif case.suspended:
            out.append(Swap(*case.key, case.live, "the slow run was an exception"))
            case = replace(case, suspended=False)
        return replace(case, probe=None, gains=gains, next_probe_calls=case.calls + interval)
    return case


def _judge_live(state: State, case: Case, at_s: float, out: list[AnyInstruction]) -> Case:
    if case.live == BASELINE:
        return case
    live = case.arms[case.live]
    live_s = case.level.unit_s * case.work if case.level.count else 0.0
    for guard in state.guards:
        verdict = guard.keep(live.offer, live_s, case.call_s, state.conditions)
        if not verdict.admitted:
            return revert(state, case, at_s, f"{verdict.guard}: {verdict.reason}", out)
    if case.ledger.debt_s > 0.0 and rules.slack_s(state, case) < _RESERVE_CALLS * case.call_s:
        return revert(state, case, at_s, "lost more than exploring may cost", out)
    if _is_losing(case):
        return revert(state, case, at_s, f"gains {fmean(case.gains):+.1%} no longer", out)
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


def revert(state: State, case: Case, at_s: float, reason: str, out: list[AnyInstruction]) -> Case:
    """Return to the baseline at once; no hysteresis holds this back."""
    old = case.live
    if case.trial is not None or case.probe is not None:
        case = _drop_trial(case, out)
    case = _reject(state, case, old)
    case = arm_at(case, old, reversals=case.arms[old].reversals + 1)
    case = _go_live(case, BASELINE, at_s, f"revert: {reason}", (), out)
    return replace(case, ledger=replace(case.ledger, debt_s=0.0))


def _go_live(
    case: Case,
    number: int,
    at_s: float,
    reason: str,
    gains: tuple[float, ...],
    out: list[AnyInstruction],
) -> Case:
    out.append(Swap(*case.key, number, reason))
    case = rules.settle_pending(case) if case.live != BASELINE else case
    return replace(
        case,
        live=number,
        suspended=False,
        level=case.baseline if number == BASELINE else Level(),
        drift=type(case.drift)(),
        gains=gains[-_WINDOW:],
        switched_s=(*case.switched_s, at_s)[-64:],
        next_ask_calls=case.calls,
        next_probe_calls=case.calls + 4,
    )


def _reject(state: State, case: Case, number: int, behind: float = 0.0) -> Case:
    """Put an Arm back, the longer the further it fell behind the live one (in logarithms)."""
    arm = case.arms[number]
    times = arm.rejections + arm.reversals
    wait = state.settings.retry_calls * state.settings.backoff**times
    wait *= min(math.exp(2.0 * behind), _LONGEST_WAIT)  # the worse, the later
    return arm_at(
        case,
        number,
        rejections=arm.rejections + 1,
        wait_until_calls=case.calls + math.ceil(wait),
    )


def _ask(state: State, case: Case, out: list[AnyInstruction]) -> Case:
    enough = state.settings.warm_calls if case.live == BASELINE else 4
    if (
        case.phase is not Phase.IDLE
        or case.calls < case.next_ask_calls
        or case.baseline.count < enough
    ):
        return case
    mask = tuple(not rules.refusal(state, case, number) for number in range(len(case.arms)))
    if not any(mask):
        return case
    mask = tuple(allowed or number == case.live for number, allowed in enumerate(mask))
    query = rules.make_query(state, case, mask)
    out.append(Ask(*case.key, query))
    return replace(case, phase=Phase.ASKING, query=query)


def proposed(state: State, case: Case, number: int) -> Step:
    """The Policy answered: build what it proposes, if it still may be tried."""
    if case.phase is not Phase.ASKING:
        return case, []
    if not 0 <= number < len(case.arms) or rules.refusal(state, case, number):
        later = case.calls + _STAY_CALLS
        return replace(case, phase=Phase.IDLE, next_ask_calls=later), []
    case = replace(case, candidate=number)
    if not case.arms[number].built:
        return replace(case, phase=Phase.BUILDING), [Build(*case.key, number)]
    return _compare_or_try(state, case, number)


def built(state: State, case: Case, number: int) -> Step:
    """A Choice is ready: compare it with the baseline before anything else."""
    case = arm_at(case, number, built=True)
    if case.phase is not Phase.BUILDING or case.candidate != number:
        return case, []
    return _compare_or_try(state, case, number)


def _compare_or_try(state: State, case: Case, number: int) -> Step:
    arm = case.arms[number]
    if not arm.compared:
        return replace(case, phase=Phase.COMPARING), [Compare(*case.key, number)]
    return _begin_trial(state, case, number, rules.pessimistic_ratio(arm))


def compared(state: State, case: Case, number: int, ratio: float) -> Step:
    """A Choice put out what it should: begin its trial, unless it is hopelessly slow."""
    case = arm_at(case, number, compared=True)
    if case.phase is not Phase.COMPARING or case.candidate != number:
        return case, []
    if ratio <= _HOPELESS_RATIO:
        return _begin_trial(state, case, number, ratio)
    case = _reject(state, case, number, math.log(ratio))
    lesson = _lesson(case, number, -math.log(ratio))
    note = Note(*case.key, f"{case.arms[number].offer.choice} took {ratio:.1f} times as long")
    return replace(case, phase=Phase.IDLE, query=None), [*lesson, note]


def _lesson(case: Case, number: int, reward: float) -> list[AnyInstruction]:
    if case.query is None:
        return []
    return [Teach(*case.key, Lesson(case.query, number, reward))]


def _begin_trial(state: State, case: Case, number: int, ratio: float) -> Step:
    live = case.live
    half = (BASELINE, number) if live == BASELINE else (BASELINE, live, number)
    trial = Trial(case.trials + 1, number, half + half[::-1], case.query, ratio)
    case = replace(case, phase=Phase.TRYING, trial=trial, trials=trial.number)
    out: list[AnyInstruction] = []
    case = _deal(state, case, trial, 1, out)
    return case, out


def _deal(state: State, case: Case, trial: Trial, wanted: int, out: list[AnyInstruction]) -> Case:
    """Deal as many further blocks as the budget holds; none when it holds none."""
    block_s = 2.0 * max(_likely_ratio(case, trial) - 1.0, 0.0) * case.call_s
    budget_s = max(rules.budget_s(state, case), 0.0)
    most = int(budget_s / block_s) if block_s > 0.0 else wanted
    bold = rules.slack_s(state, case) / (2.0 * case.call_s)  # should it turn twice as slow
    most = min(most, max(int(bold), 1))
    blocks = min(wanted, most)
    if blocks < 1:
        return case
    out.append(Deal(*case.key, trial.number, trial.order, blocks, trial.dealt))
    return replace(case, trial=replace(trial, dealt=trial.dealt + blocks))


def _likely_ratio(case: Case, trial: Trial) -> float:
    if not trial.baseline_gains:
        return trial.first_ratio
    told = bounds(trial.baseline_gains, case.baseline.noise, 0.05)
    return math.exp(told.deviation / math.sqrt(trial.done) - told.mean)


def _judge_trial(state: State, case: Case, at_s: float, out: list[AnyInstruction]) -> Case:
    trial = case.trial
    if trial is None or trial.done < trial.dealt:
        return case
    if not trial.done:  # nothing dealt yet: the budget did not hold a block
        return _deal(state, case, trial, 1, out)
    arm, settings = case.arms[trial.arm], state.settings
    told = bounds(trial.gains, case.baseline.noise, rules.error_of(state, case, arm))
    runs = 2 * trial.done
    if told.low > settings.margin and runs >= settings.canary_calls[1]:
        if rules.may_switch(state, case, at_s):
            return _win(state, case, trial, at_s, out)
        return case
    if told.high < settings.margin or runs >= settings.canary_calls[2]:
        reason = "slower" if told.high < settings.margin else "no clear gain"
        out.append(Note(*case.key, f"{arm.offer.choice}: {reason} ({told.mean:+.1%})"))
        case = _end_trial(state, case, trial, out)
        return _reject(state, case, trial.arm, max(-told.mean, 0.0))
    if state.frozen:
        return _drop_trial(case, out)
    return _deal(state, case, trial, min(trial.done, 4), out)


def _end_trial(state: State, case: Case, trial: Trial, out: list[AnyInstruction]) -> Case:
    arm = case.arms[trial.arm]
    told = bounds(trial.baseline_gains, case.baseline.noise, rules.error_of(state, case, arm))
    out.extend(_lesson(case, trial.arm, told.mean))
    if trial.done >= 4:
        out.append(Remember(*case.key, trial.arm, told.mean, trial.done))
    case = arm_at(case, trial.arm, gain=told.mean, gain_low=told.low)
    if case.live != BASELINE:  # the same blocks measured the live Choice too
        seen = tuple(b - g for b, g in zip(trial.baseline_gains, trial.gains, strict=True))
        case = replace(case, gains=(*case.gains, *seen)[-_WINDOW:])
    return replace(case, trial=None, phase=Phase.IDLE, query=None, candidate=BASELINE)


def _win(state: State, case: Case, trial: Trial, at_s: float, out: list[AnyInstruction]) -> Case:
    case = _end_trial(state, case, trial, out)
    case = arm_at(case, trial.arm, rejections=0)
    told = case.arms[trial.arm]
    reason = f"gains {math.expm1(told.gain or 0.0):.1%} over the baseline, by {trial.done} blocks"
    case = _go_live(case, trial.arm, at_s, reason, trial.baseline_gains, out)
    compare = case.calls + state.settings.canary_calls[2]
    watch = case.calls + state.settings.watch_calls
    return replace(case, watch_until_calls=watch, compare_at_calls=compare)


def _probe(state: State, case: Case, out: list[AnyInstruction]) -> Case:
    due = case.live != BASELINE and case.calls >= case.next_probe_calls
    if not due or case.probe is not None or case.phase is Phase.TRYING:
        return case
    live = case.live
    order = (BASELINE, live, live, BASELINE)
    probe = Trial(case.trials + 1, live, order, dealt=1)
    out.append(Deal(*case.key, probe.number, order, 1))
    return replace(case, probe=probe, trials=probe.number)


def _compare_live(state: State, case: Case, out: list[AnyInstruction]) -> Case:
    live = case.arms[case.live]
    due = case.live != BASELINE and case.calls >= case.compare_at_calls
    if not due or case.phase is not Phase.IDLE:
        return case
    out.append(Compare(*case.key, case.live))
    wait = rules.probe_interval(state, case)
    if live.offer.choice.exactness is not Exactness.LOWER:
        wait = max(wait, case.calls)  # ever rarer: these differ by rounding at most
    return replace(case, compare_at_calls=case.calls + wait)


def _admit(case: Case, out: list[AnyInstruction]) -> Case:
    proven = tuple(
        number
        for number, arm in enumerate(case.arms)
        if number in (BASELINE, case.live) or _is_proven(arm)
    )
    if proven == case.admitted:
        return case
    out.append(Admit(*case.key, proven))
    return replace(case, admitted=proven)


def _is_proven(arm: Arm) -> bool:
    return not arm.quarantined and arm.gain_low is not None and arm.gain_low > 0.0


def stop(case: Case) -> Step:
    """Take back whatever is being tried."""
    out: list[AnyInstruction] = []
    return _drop_trial(case, out), out


def quarantine(state: State, case: Case, number: int, at_s: float, reason: str) -> Step:
    """Put a Choice out for good; the baseline takes over where it was live or on trial."""
    out: list[AnyInstruction] = [Quarantine(*case.key, number, reason)]
    out.extend(_lesson(case, number, FAILURE_REWARD) if case.candidate == number else [])
    case = arm_at(case, number, quarantined=True)
    if case.live == number:
        case = revert(state, case, at_s, reason, out)
    elif case.candidate == number:
        case = replace(_drop_trial(case, out), query=None)
    return _admit(case, out), out
