"""Fixed: no learning. A named Choice, or the Forecasts' ranking tried in order. Reads no state."""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.core.policy import Actor, Arrays
from grainshift.core.proposal import Lesson, Proposal, Query
from grainshift.policies.allowed import allowed, best, fault, priors, told
from grainshift.policies.arrays import checked
from grainshift.policies.describe import key

__all__ = ["Fixed", "FixedActor"]

_MOST_REFUSED = 65536


@final
class Fixed:
    """Proposes the Choice that was named: `unrolled(8)`, or any `unrolled`.

    Without a name, the highest prior that no Lesson has refused yet; when all are, what is live.
    A Lesson refuses an answer when the reward is not above nought.
    """

    def __init__(self, choice: str | None = None) -> None:
        self._choice = choice
        self._refused: dict[int, None] = {}  # the oldest first

    @property
    def name(self) -> str:
        """The policy's word in the vocabulary."""
        return "fixed"

    def propose(self, query: Query) -> Proposal:
        """The named Choice, or the next in the order of the priors."""
        mask, scores = allowed(query), priors(query)
        if self._choice is not None:
            open_ = mask & [_is(choice, self._choice) for choice in query.choices]
        else:
            open_ = mask & [_address(query, c) not in self._refused for c in query.choices]
        if open_.any():
            return Proposal(best(scores, open_), told(scores, mask))
        arm = query.live if 0 <= query.live < mask.size and mask[query.live] else best(scores, mask)
        return Proposal(arm, told(scores, mask))

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Remember what was refused."""
        for lesson in lessons:
            if fault(lesson) is None:
                address = _address(lesson.query, lesson.query.choices[lesson.arm])
                self._refused.pop(address, None)
                if lesson.reward <= 0.0:
                    self._refused[address] = None
        while len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        """The named Choice; None without a name, since an actor is told no priors."""
        if self._choice is None:
            return None
        return FixedActor(tuple(i for i, c in enumerate(choices) if _is(c, self._choice)))

    def arrays(self) -> Arrays:
        """What was refused."""
        return {"refused": np.array(list(self._refused), dtype=np.uint64)}

    def restore(self, arrays: Arrays) -> None:
        """Take back what `arrays` gave."""
        self._refused = dict.fromkeys(checked(arrays, "refused", np.uint64, (None,)).tolist())


@final
class FixedActor:
    """Picks the first of its Choices that is allowed, else the first allowed at all."""

    def __init__(self, arms: tuple[int, ...]) -> None:
        self._arms = arms

    def pick(self, state: NDArray[np.float32], mask: NDArray[np.bool_]) -> int:
        """The number of the Choice to run next."""
        for arm in self._arms:
            if mask[arm]:
                return arm
        arm = int(mask.argmax())
        if mask[arm]:
            return arm
        raise ValueError("the mask allows no choice; allow the live one")


def _is(choice: Choice, wanted: str) -> bool:
    return wanted in (choice.name, str(choice))


def _address(query: Query, choice: Choice) -> int:
    return key(query.site_key, query.bucket, choice)
