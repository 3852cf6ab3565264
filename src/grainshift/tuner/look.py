"""Looks at a Case after an event and says what follows from all it now knows. Pure."""

from grainshift.tuner import live, search
from grainshift.tuner.moves import Said, Step
from grainshift.tuner.state import Case, State


def look(state: State, case: Case, at_s: float) -> Step:
    """What follows from what the Case now knows."""
    out: Said = []
    case = live.notice_drift(state, case, out)
    case = live.take_probe(state, case, out)
    case = live.judge_live(state, case, at_s, out)
    case = search.judge_trial(state, case, at_s, out)
    if not state.frozen:
        case = live.probe(state, case, out)
        case = live.compare_live(state, case, out)
        case = search.ask(state, case, out)
    case = live.set_trip(state, case, out)
    case = live.admit(state, case, out)
    return live.release(case, out), out
