"""How far a learner's score is to be trusted beside the prior. Knows no network and no table."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.policies.describe import key

__all__ = ["Trust"]

_SLOTS = 1024


@final
class Trust:
    """Counts Lessons by the name of the Choice: of `unrolled(16)` much is known from the others."""

    def __init__(self, prior_lessons: float) -> None:
        self._prior_lessons = prior_lessons
        self.counts = np.zeros(_SLOTS, dtype=np.int64)

    def note(self, choice: Choice) -> None:
        """One more Lesson about Choices of this name."""
        self.counts[key(choice.name) % _SLOTS] += 1

    def in_prior(self, choices: tuple[Choice, ...]) -> NDArray[np.float64]:
        """The share of the prior for each Choice: 1 before any Lesson, less with each."""
        known = self.counts[[key(choice.name) % _SLOTS for choice in choices]].astype(np.float64)
        shares: NDArray[np.float64] = self._prior_lessons / (self._prior_lessons + known)
        return shares
