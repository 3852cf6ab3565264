"""What Queries and Lessons say, read with care: masks, priors, rewards. Draws nothing."""

import numpy as np
from numpy.typing import NDArray

from grainshift.core.proposal import Lesson, Query

__all__ = [
    "LARGEST_REWARD",
    "MASKED_SCORE",
    "allowed",
    "best",
    "fault",
    "following",
    "priors",
    "reward",
    "told",
]

LARGEST_REWARD = 5.0  # log(t_baseline / t_choice): 148 times faster or slower says it all
MASKED_SCORE = -1e9  # finite, so that a Proposal stays plain JSON


def allowed(query: Query) -> NDArray[np.bool_]:
    """The mask of a Query, or ValueError when it allows nothing or does not fit its Choices."""
    if not len(query.choices) == len(query.mask) == len(query.prior):
        raise ValueError(
            f"a query at {query.site_key} has {len(query.choices)} choices, {len(query.mask)} mask"
            f" entries and {len(query.prior)} priors; give as many of each"
        )
    mask = np.array(query.mask, dtype=np.bool_)
    if not mask.any():
        raise ValueError(
            f"a query at {query.site_key} ({query.bucket}) allows no choice; allow the live one"
        )
    return mask


def priors(query: Query) -> NDArray[np.float64]:
    """The prior log gains; what is not a number counts as none, and giants are clipped."""
    return _clipped(np.array(query.prior, dtype=np.float64))


def best(scores: NDArray[np.floating], mask: NDArray[np.bool_]) -> int:
    """The number of the highest allowed score, the first of equals."""
    return int(np.where(mask, scores, -np.inf).argmax())


def told(scores: NDArray[np.floating], mask: NDArray[np.bool_]) -> tuple[float, ...]:
    """Scores as a Proposal carries them: what is masked is marked so."""
    return tuple(np.where(mask, scores, MASKED_SCORE).tolist())


def fault(lesson: Lesson) -> str | None:
    """Why a Lesson teaches nothing, or None when it can be learnt from."""
    if not 0 <= lesson.arm < len(lesson.query.choices):
        return "the answer is none of the choices"
    if not len(lesson.query.choices) == len(lesson.query.mask) == len(lesson.query.prior):
        return "the mask or the prior does not fit the choices"
    if not lesson.query.mask[lesson.arm]:
        return "the answer was masked"
    if np.isnan(lesson.reward) or lesson.reward == np.inf:
        return "the reward is not a number"
    return None


def reward(lesson: Lesson) -> float:
    """The reward of a Lesson, clipped; minus infinity is a failure like any other."""
    return float(_clipped(np.array(lesson.reward)))


def following(lesson: Lesson) -> Query | None:
    """The Query that follows, or None at an end and where what follows allows nothing."""
    query = lesson.following
    if query is None or not any(query.mask):
        return None
    return query if len(query.mask) == len(query.choices) == len(query.prior) else None


def _clipped(values: NDArray[np.float64]) -> NDArray[np.float64]:
    finite = np.nan_to_num(values, nan=0.0, posinf=LARGEST_REWARD, neginf=-LARGEST_REWARD)
    return np.clip(finite, -LARGEST_REWARD, LARGEST_REWARD)
