"""What the tuner asks a Policy, what it answers, and what it learns from. Knows no learner."""

from dataclasses import dataclass

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions, condition_state
from grainshift.core.site import Named


def state_of(features: Named, conditions: Conditions) -> tuple[float, ...]:
    """What a Policy sees: features of Site and bucket by their order, then the Conditions."""
    return tuple(value for _, value in features) + condition_state(conditions)


@dataclass(frozen=True, slots=True)
class Query:
    """A question to a Policy: which of the allowed Choices to put to trial next.

    `state` is the Site's features, the bucket's, and the Conditions (`state_of`); `prior` is the
    log gain that Forecasts and experience expect; `mask` says what may be answered. `live` is
    always allowed and means: stay.
    """

    site_key: str
    bucket: str
    state: tuple[float, ...]
    choices: tuple[Choice, ...]
    mask: tuple[bool, ...]
    prior: tuple[float, ...]
    live: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """A Policy's answer: the number of a Choice, and the score it gave to each."""

    arm: int
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """What came of an answer: the reward, and the question that follows unless it is the end."""

    query: Query
    arm: int
    reward: float
    following: Query | None = None
