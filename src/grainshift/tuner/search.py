"""Searches for a better Choice in a Case: ask, build, compare, try, go live. Pure."""

import math
from dataclasses import replace

from grainshift.core.instructions import Ask, Build, Compare, Deal, Note, Quarantine, Remember
from grainshift.tuner import rules
from grainshift.tuner.evidence import LEVEL_MEMORY, Bounds, bounds
from grainshift.tuner.moves import Said, Step, arm_at, drop_trial, go_live, lesson, reject
from grainshift.tuner.state import BASELINE, Case, Phase, State, Trial

_LOOK_AGAIN = 64  # part of all calls so far until what may be tried is looked at again
_STAY_CALLS = 64  # calls until the Policy is asked again after it answered: stay
_HOPELESS_RATIO = 4.0  # a first run this much slower is not worth a second
_MOST_DEALT = 4


def ask(state: State, case: Case, out: Said) -> Case:
    """Ask the Policy what to try next, if anything may be tried."""
    warm = state.settings.warm_calls
    enough = min(warm, LEVEL_MEMORY) if case.live == BASELINE else 4
    if (
        case.phase is not Phase.IDLE
        or case.calls < max(case.next_ask_calls, warm)
        or case.baseline.count < enough
    ):
        return case
    mask = tuple(not rules.refusal(state, case, number) for number in range(len(case.arms)))
    if not any(mask):  # what may be spent grows with the calls: look again once there are more
        return replace(case, next_ask_calls=case.calls + max(1, case.calls // _LOOK_AGAIN))
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


def built(state: State, case: Case, number: int, held_bytes: int) -> Step:
    """A Choice is ready: compare it with the baseline before anything else."""
    case = _with_memory(arm_at(case, number, built=True, held_bytes=held_bytes), number)
    if case.arms[number].quarantined:  # it failed elsewhere while it was being built
        return case, [Quarantine(*case.key, number, "ready, but out")]
    if case.phase is not Phase.BUILDING or case.candidate != number:
        return case, []
    if reason := rules.guarded(state, case, number):
        case = reject(state, case, number)
        note = Note(*case.key, reason)
        return replace(case, phase=Phase.IDLE, query=None, candidate=BASELINE), [note]
    return _compare_or_try(state, case, number)


def _with_memory(case: Case, number: int) -> Case:
    """The Case where a Forecast of memory gives way to what was built."""
    arm = case.arms[number]
    forecast = arm.offer.forecast
    if arm.held_bytes <= forecast.extra_bytes:
        return case
    offer = replace(arm.offer, forecast=replace(forecast, extra_bytes=arm.held_bytes))
    return arm_at(case, number, offer=offer)


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
    case = reject(state, case, number)  # one run proves little: no longer wait than usual
    learnt = lesson(case, number, -math.log(ratio))
    note = Note(*case.key, f"{case.arms[number].offer.choice} took {ratio:.1f} times as long")
    return replace(case, phase=Phase.IDLE, query=None, candidate=BASELINE), [*learnt, note]


def _begin_trial(state: State, case: Case, number: int, ratio: float) -> Step:
    live = case.live
    trial = Trial(case.trials + 1, number, (live, number, number, live), case.query, ratio)
    case = replace(case, phase=Phase.TRYING, trial=trial, trials=trial.number)
    out: Said = []
    case = _deal(state, case, trial, 1, out)
    return case, out


def _deal(state: State, case: Case, trial: Trial, wanted: int, out: Said) -> Case:
    """Deal as many further blocks as the budget holds; none when it holds none."""
    if not math.isfinite(case.call_s):  # the level moved: the baseline is to be measured first
        return case
    block_s = 2.0 * max(_likely_ratio(case, trial) * case.call_s - case.live_s, 0.0)
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
    if not trial.gains:
        return trial.first_ratio
    told = bounds(trial.gains, case.baseline.noise, 0.05)
    slower = math.exp(told.deviation / math.sqrt(trial.done) - told.mean)
    return slower * case.live_s / case.call_s


def judge_trial(state: State, case: Case, at_s: float, out: Said) -> Case:
    """Go live, give up, or deal more blocks, once all dealt blocks have run."""
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
    spent = runs >= settings.canary_calls[2] or _is_futile(told, trial, state)
    if told.high < settings.margin or spent:
        reason = "slower" if told.high < settings.margin else "no clear gain"
        out.append(Note(*case.key, f"{arm.offer.choice}: {reason} ({math.expm1(told.mean):+.1%})"))
        case = _end_trial(state, case, trial, out)
        return reject(state, case, trial.arm, max(-told.mean, 0.0))
    if state.frozen:
        return drop_trial(case, out)
    return _deal(state, case, trial, min(trial.done, _MOST_DEALT), out)


def _is_futile(told: Bounds, trial: Trial, state: State) -> bool:
    """Whether a gain has become unlikely: giving up early risks a later look, no wrong switch."""
    error = told.deviation / math.sqrt(trial.done)
    return trial.done >= state.settings.canary_calls[1] and told.mean + error < (
        state.settings.margin
    )


def _end_trial(state: State, case: Case, trial: Trial, out: Said) -> Case:
    """Take in what a trial told: the gain over the live Choice, and by that over the baseline."""
    arm = case.arms[trial.arm]
    told = bounds(trial.gains, case.baseline.noise, rules.error_of(state, case, arm))
    live = _live_gain(case)
    gain = told.mean + live.mean
    out.extend(lesson(case, trial.arm, gain))
    if trial.done >= 4:
        out.append(Remember(*case.key, trial.arm, gain, trial.done))
    low = told.low + live.mean - live.deviation / math.sqrt(max(len(case.gains), 1))
    case = arm_at(case, trial.arm, gain=gain, gain_low=low)
    return replace(case, trial=None, phase=Phase.IDLE, query=None, candidate=BASELINE)


def _live_gain(case: Case) -> Bounds:
    """What the live Choice gains over the baseline; nothing, for certain, if it is that."""
    if case.live == BASELINE:
        return Bounds(0.0, 0.0, 0.0, 0.0)
    return bounds(case.gains, case.baseline.noise, 0.05)


def _win(state: State, case: Case, trial: Trial, at_s: float, out: Said) -> Case:
    before, case = case, _end_trial(state, case, trial, out)
    case = arm_at(case, trial.arm, rejections=0)
    told = case.arms[trial.arm]
    reason = f"gains {math.expm1(told.gain or 0.0):.1%} over the baseline, by {trial.done} blocks"
    over_live = _live_gain(before).mean
    gains = tuple(gain + over_live for gain in trial.gains)
    case = go_live(case, trial.arm, at_s, reason, gains, out)
    compare = case.calls + state.settings.canary_calls[2]
    watch = case.calls + state.settings.watch_calls
    return replace(case, watch_until_calls=watch, compare_at_calls=compare)
