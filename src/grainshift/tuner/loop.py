"""The tuner as a pure function: (state, event) -> (state, instructions).

Knows no clock, thread, torch, disk or environment: those arrive as events and leave as
instructions, so that any run can be played again from its Journal.
"""

import math
from dataclasses import replace
from types import MappingProxyType

from grainshift.core.events import (
    AnyEvent,
    Built,
    Compared,
    Extended,
    Failed,
    Frozen,
    Lost,
    Offer,
    Opened,
    Proposed,
    Read,
    Sensed,
    Tripped,
)
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.guard import Guard
from grainshift.core.instructions import AnyInstruction, Note
from grainshift.core.settings import Settings
from grainshift.core.site import Site
from grainshift.tuner import live, rules, search
from grainshift.tuner.intake import is_amount, take
from grainshift.tuner.look import look
from grainshift.tuner.state import Arm, Case, Instructions, Phase, State

Outcome = tuple[State, Instructions]


def begin(settings: Settings, limits: Limits, guards: tuple[Guard, ...]) -> State:
    """The state before anything happened."""
    return State(settings, limits, guards)


def step(state: State, event: AnyEvent) -> Outcome:
    """What an event changes, and what is to be done about it."""
    match event:
        case Opened():
            return _open(state, event)
        case Sensed():
            return replace(state, conditions=event.conditions), ()
        case Frozen():
            return _freeze(state, event.at_s)
        case Lost():
            kept = {key: case for key, case in state.cases.items() if key[0] != event.site_key}
            return replace(state, cases=MappingProxyType(kept)), ()
        case Failed():
            return _fail(state, event)
        case _:
            case = state.cases.get((event.site_key, event.bucket))
            if case is None or _is_astray(case, event):
                return state, ()
            return _at_case(state, case, event)


def settled(state: State) -> bool:
    """Whether exploring is over everywhere, until something changes."""
    return all(
        state.frozen
        or (
            case.phase is Phase.IDLE
            and not any(rules.is_waiting(state, case, n) for n in range(len(case.arms)))
        )
        for case in state.cases.values()
    )


def calm(state: State) -> bool:
    """Whether nothing is under way anywhere, so that Readings may wait longer."""
    return state.frozen or all(
        case.phase is Phase.IDLE and case.probe is None for case in state.cases.values()
    )


def _put(state: State, case: Case) -> State:
    return replace(state, cases=MappingProxyType({**state.cases, case.key: case}))


def _arms(state: State, site: Site, offers: tuple[Offer, ...]) -> tuple[Arm, ...]:
    return tuple(
        Arm(offer, quarantined=(*_name(site), str(offer.choice)) in state.quarantine)
        if _makes_sense(offer.forecast)
        else Arm(replace(offer, forecast=Forecast()), quarantined=True)
        for offer in offers
    )


def _name(site: Site) -> tuple[str, str]:
    return site.key, site.fingerprint


def _makes_sense(forecast: Forecast) -> bool:
    """Whether all that is computed from a Forecast is a number."""
    ratio, spread = forecast.time_ratio, forecast.spread
    return 1e-9 <= ratio <= 1e9 and 0.0 <= spread <= 100.0 and not math.isnan(forecast.build_s)


def _open(state: State, event: Opened) -> Outcome:
    if not event.offers:
        return state, ()
    first, *rest = _arms(state, event.site, event.offers)
    baseline = replace(first, built=True, compared=True, quarantined=False)
    case = Case(event.site, event.bucket, (baseline, *rest), features=event.features)
    return _put(state, case), ()


def _freeze(state: State, at_s: float) -> Outcome:
    state = replace(state, frozen=True)
    out: list[AnyInstruction] = []
    for case in tuple(state.cases.values()):
        stopped, said = live.stop(state, case, at_s)
        state = _put(state, stopped)
        out.extend(said)
    return state, tuple(out)


def _fail(state: State, event: Failed) -> Outcome:
    """A Choice failed at a Site: it is out in every bucket of it."""
    failed_in = state.cases.get((event.site_key, event.bucket))
    if failed_in is None or not 0 < event.arm < len(failed_in.arms):
        return state, ()
    choice = failed_in.arms[event.arm].offer.choice
    name = (*_name(failed_in.site), str(choice))
    state = replace(state, quarantine=state.quarantine | {name})
    if is_amount(event.seconds):
        ledger = rules.spend(failed_in.ledger, event.seconds)
        ledger = replace(ledger, ran_s=ledger.ran_s + event.seconds)
        state = _put(state, replace(failed_in, ledger=ledger))
    out: list[AnyInstruction] = []
    for case in tuple(state.cases.values()):
        if case.site.key == event.site_key:
            for number, arm in enumerate(case.arms):
                if number and arm.offer.choice == choice and not arm.quarantined:
                    reason = f"{event.kind}: {event.reason}"
                    case, said = live.quarantine(state, case, number, event.at_s, reason)
                    state = _put(state, case)
                    out.extend(said)
    return state, tuple(out)


def _is_astray(case: Case, event: AnyEvent) -> bool:
    """Whether an event tells of an Arm that there is none of."""
    return isinstance(event, Built | Compared) and not 0 <= event.arm < len(case.arms)


def _at_case(state: State, case: Case, event: AnyEvent) -> Outcome:
    out: list[AnyInstruction] = []
    match event:
        case Read():
            case = take(state.settings, case, event)
        case Proposed():
            case, out = search.proposed(state, case, event.proposal.arm)
        case Built():
            case, out = search.built(state, case, event.arm, event.held_bytes)
        case Tripped():
            case, out = live.tripped(state, case, event.arm, event.at_s)
        case Extended():
            case = replace(case, arms=case.arms + _arms(state, case.site, event.offers))
        case Compared():
            return _compare(state, case, event)
    case, said = look(state, case, event.at_s)
    return _put(state, case), (*out, *said)


def _compare(state: State, case: Case, event: Compared) -> Outcome:
    choice_s = event.choice_s if is_amount(event.choice_s) else 0.0
    baseline_s = event.baseline_s if is_amount(event.baseline_s) else 0.0
    beyond_live_s = max(baseline_s - case.live_s, 0.0) if case.baseline.count else 0.0
    lost_s = choice_s + beyond_live_s if event.arm != case.live else 0.0
    ledger = rules.spend(case.ledger, lost_s)
    ledger = replace(
        ledger,
        baseline_s=ledger.baseline_s + baseline_s,
        ran_s=ledger.ran_s + baseline_s + choice_s,
    )
    case = replace(case, calls=case.calls + 1, ledger=ledger)
    choice = case.arms[event.arm].offer.choice
    for guard in state.guards:
        verdict = guard.accept(choice, event)
        if not verdict.admitted:
            state = _put(state, case)
            failed = Failed(
                event.at_s, *case.key, event.arm, "wrong", f"{verdict.guard}: {verdict.reason}"
            )
            return _fail(state, failed)
    if event.arm == case.live:
        return _put(state, case), (Note(*case.key, f"{choice} checked: {event.error_ratio:.2g}"),)
    ratio = choice_s / max(baseline_s, 1e-12)
    case, out = search.compared(state, case, event.arm, ratio)
    return _put(state, case), tuple(out)
