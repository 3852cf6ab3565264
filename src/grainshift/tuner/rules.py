"""What may be tried in a Case, and what it may cost: the allowed set and the budget. Pure."""

import math
from dataclasses import replace

from grainshift.core.proposal import Query, state_of
from grainshift.tuner.state import BASELINE, Arm, Case, Ledger, State

_TRUSTED_SPREAD = 0.1


def slack_s(state: State, case: Case) -> float:
    """Seconds by which all calls so far, exploring included, stay within what is promised."""
    promised = (1.0 + state.settings.explore_share) * baseline_s(case)
    return promised + _opening_s(state, case) - case.ledger.ran_s


def baseline_s(case: Case) -> float:
    """Seconds that the baseline would have taken for all calls so far, as far as is known."""
    ledger = case.ledger
    pending_s = ledger.pending_work * case.baseline.unit_s if case.baseline.count else 0.0
    return ledger.baseline_s + (pending_s or ledger.pending_s)


def budget_s(state: State, case: Case) -> float:
    """Seconds that exploring in this Case may still cost."""
    ledger = case.ledger
    share = state.settings.explore_share * min(baseline_s(case), ledger.ran_s)
    own = share + _opening_s(state, case) - ledger.spent_s
    return min(own, slack_s(state, case))


def _opening_s(state: State, case: Case) -> float:
    return state.settings.opening_calls * case.call_s if math.isfinite(case.call_s) else 0.0


def pessimistic_ratio(arm: Arm) -> float:
    """The time over the baseline's that an Arm may well take: as measured, else as forecast."""
    if arm.gain is not None:
        return math.exp(2.0 * _TRUSTED_SPREAD - arm.gain)
    return arm.offer.forecast.pessimistic_ratio


def opening_cost_s(case: Case, arm: Arm) -> float:
    """Seconds beyond the live Choice that an Arm's first runs may cost."""
    run_s = pessimistic_ratio(arm) * case.call_s
    compare_s = 0.0 if arm.compared else run_s + max(case.call_s - case.live_s, 0.0)
    return compare_s + 2.0 * max(run_s - case.live_s, 0.0)


def refusal(state: State, case: Case, number: int) -> str:
    """Why an Arm may not be tried now; empty when it may."""
    arm = case.arms[number]
    if arm.quarantined:
        return "in quarantine"
    if number in (case.live, BASELINE):
        return "live already" if number == case.live else "the baseline needs no trial"
    if case.calls < arm.wait_until_calls:
        return f"rejected, tried again after call {arm.wait_until_calls}"
    if arm.offer.forecast.build_s > state.settings.build_share * case.ledger.ran_s:
        return f"building takes {arm.offer.forecast.build_s:.3g} s, not yet worth it"
    if reason := guarded(state, case, number):
        return reason
    if opening_cost_s(case, arm) > budget_s(state, case):
        return "over the budget for exploring"
    return ""


def guarded(state: State, case: Case, number: int) -> str:
    """Why a Guard refuses an Arm now; empty when none does."""
    offer, held = case.arms[number].offer, held_bytes(state, case, number)
    for guard in state.guards:
        verdict = guard.admit(offer, case.call_s, state.conditions, held)
        if not verdict.admitted:
            return f"{verdict.guard}: {verdict.reason}"
    return _late_check(state, case, case.arms[number])


def _late_check(state: State, case: Case, arm: Arm) -> str:
    """Why the call that first checks an Arm may come too late: it runs the baseline as well."""
    most_s, call_s = state.limits.latency_s, case.call_s
    if most_s is None or arm.compared or call_s > most_s:
        return ""
    check_s = call_s * (1.0 + arm.offer.forecast.pessimistic_ratio)
    if check_s <= most_s:
        return ""
    return f"latency: its check may take {check_s:.3g} s in all, the limit is {most_s:.3g} s"


def is_waiting(state: State, case: Case, number: int) -> bool:
    """Whether an Arm is still to be tried: neither live, nor told, nor refused for good."""
    arm = case.arms[number]
    if arm.quarantined or number in (case.live, BASELINE) or case.calls < arm.wait_until_calls:
        return False
    return not guarded(state, case, number)


def held_bytes(state: State, case: Case, number: int) -> int:
    """What all Choices in the model but this one hold, or will once they are built."""
    cases = {**state.cases, case.key: case}
    return sum(
        arm.held_bytes if arm.built else arm.offer.forecast.extra_bytes
        for key, other in cases.items()
        for at, arm in enumerate(other.arms)
        if (arm.built or at == other.candidate) and (key, at) != (case.key, number)
    )


def make_query(state: State, case: Case, mask: tuple[bool, ...]) -> Query:
    """The question to the Policy: which of the allowed Choices next?"""
    return Query(
        case.site.key,
        case.bucket,
        state_of(case.site.features + case.features, state.conditions),
        tuple(arm.offer.choice for arm in case.arms),
        mask,
        tuple(_expected_gain(arm) for arm in case.arms),
        case.live,
    )


def _expected_gain(arm: Arm) -> float:
    for known in (arm.gain, arm.offer.remembered):
        if known is not None:
            return known
    return arm.offer.forecast.log_gain


def error_of(state: State, case: Case, arm: Arm) -> float:
    """How likely a proof about this Arm may be wrong, shared over Arms and repeated trials."""
    others = max(len(case.arms) - 1, 1)
    trial = arm.rejections + 1
    share = 1.0 / (trial * (trial + 1))  # these add up to one
    return (1.0 - state.settings.confidence) * share / others


def may_switch(state: State, case: Case, at_s: float) -> bool:
    """Hysteresis: the dwell time is over and this window has a switch left."""
    settings = state.settings
    if case.switched_s and at_s - case.switched_s[-1] < settings.dwell_s:
        return False
    recent = [s for s in case.switched_s if at_s - s < settings.window_s]
    return len(recent) < settings.switches_per_window


def probe_interval(state: State, case: Case) -> int:
    """Calls until the live Choice is measured beside the baseline again.

    Rare enough that its share holds of the time too, where the baseline is much slower, and
    never so far that a baseline which doubled its speed unseen would cost more than the budget.
    """
    settings = state.settings
    if settings.probe_share <= 0.0:
        return 1 << 60
    is_told = case.level.count and case.baseline.count  # neither is, after the level moved
    speedup = case.call_s / max(case.level.unit_s * case.work, 1e-12) if is_told else 1.0
    longest = math.ceil(2.0 * max(speedup, 1.0) / settings.probe_share)
    if case.calls < case.watch_until_calls:
        longest = max(settings.canary_calls[1], 1)
    affordable = slack_s(state, case) / (0.5 * case.call_s) if case.call_s > 0.0 else 0.0
    return int(min(max(affordable, 4.0), longest))


def settle_pending(case: Case, unit_s: float) -> Case:
    """Charge the live runs since the last probe against what the baseline would have taken."""
    ledger = case.ledger
    would_s = ledger.pending_work * unit_s if math.isfinite(unit_s) else ledger.pending_s
    excess_s = ledger.pending_s - would_s
    debt_s = max(0.0, ledger.debt_s + excess_s)
    return replace(
        case,
        ledger=replace(
            ledger,
            baseline_s=ledger.baseline_s + would_s,
            debt_s=debt_s,
            pending_s=0.0,
            pending_work=0.0,
        ),
    )


def spend(ledger: Ledger, seconds: float) -> Ledger:
    """The ledger after exploring cost (or saved) some seconds."""
    return replace(ledger, spent_s=max(0.0, ledger.spent_s + seconds))
