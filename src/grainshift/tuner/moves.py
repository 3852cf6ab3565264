"""Small moves on a Case that every judgement is made of. Pure."""

import math
from dataclasses import replace

from grainshift.core.instructions import AnyInstruction, Recall, Swap, Teach
from grainshift.core.proposal import Lesson
from grainshift.tuner import rules
from grainshift.tuner.evidence import Cusum, Level
from grainshift.tuner.state import BASELINE, Case, Phase, State

Said = list[AnyInstruction]
Step = tuple[Case, Said]

WINDOW = 16  # probes that tell what the live Choice gains now
_LONGEST_WAIT = 64.0
_MOST_TIMES = 32  # that a wait is multiplied: by then it has no end
_ENDLESS_CALLS = 1 << 53


def arm_at(case: Case, number: int, **changes: object) -> Case:
    """The Case with one Arm changed."""
    arms = list(case.arms)
    arms[number] = replace(arms[number], **changes)  # type: ignore[arg-type]
    return replace(case, arms=tuple(arms))


def drop_trial(case: Case, out: Said) -> Case:
    """Give up whatever is being tried or probed."""
    out.append(Recall(*case.key))
    return replace(case, trial=None, probe=None, phase=Phase.IDLE, candidate=BASELINE)


def go_live(
    case: Case,
    number: int,
    at_s: float,
    reason: str,
    gains: tuple[float, ...],
    out: Said,
) -> Case:
    """Make a Choice the live one; `gains` are what its trial measured over the baseline."""
    out.append(Swap(*case.key, number, reason))
    if case.live != BASELINE:
        case = rules.settle_pending(case, case.baseline.unit_s)
    return replace(
        case,
        live=number,
        suspended=False,
        probe=None,
        level=case.baseline if number == BASELINE else Level(),
        drift=Cusum(),
        gains=gains[-WINDOW:],
        switched_s=(*case.switched_s, at_s)[-64:],
        next_ask_calls=case.calls,
        next_probe_calls=case.calls + 4,
    )


def reject(state: State, case: Case, number: int, behind: float = 0.0) -> Case:
    """Put an Arm back, the longer the further it fell behind the live one (in logarithms)."""
    arm = case.arms[number]
    times = min(arm.rejections + arm.reversals, _MOST_TIMES)
    wait = state.settings.retry_calls * state.settings.backoff**times
    wait *= math.exp(min(2.0 * behind, math.log(_LONGEST_WAIT)))  # the worse, the later
    return arm_at(
        case,
        number,
        rejections=arm.rejections + 1,
        wait_until_calls=case.calls + min(math.ceil(wait), _ENDLESS_CALLS),
    )


def lesson(case: Case, number: int, reward: float) -> Said:
    """What the Policy may learn from the answer that is now told."""
    if case.query is None:
        return []
    return [Teach(*case.key, Lesson(case.query, number, reward))]
