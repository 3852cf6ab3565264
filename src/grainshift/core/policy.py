"""The contract of a Policy: it proposes and learns. Knows no Site, Guard or clock."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.core.proposal import Lesson, Proposal, Query

Arrays = Mapping[str, NDArray[np.generic]]


class Actor(Protocol):
    """A frozen copy of a policy's judgement that answers inside a call, in microseconds."""

    def pick(self, state: NDArray[np.float32], mask: NDArray[np.bool_]) -> int:
        """The number of the Choice to run next, among those that the mask allows."""


class Policy(Protocol):
    """Proposes a Choice and learns from what came of it."""

    @property
    def name(self) -> str:
        """The policy's word in the vocabulary."""

    def propose(self, query: Query) -> Proposal:
        """Answer with an allowed Choice."""

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Take in what came of earlier answers."""

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        """A frozen copy for these Choices that answers inside a call; None when there is none."""

    def arrays(self) -> Arrays:
        """All that was learnt, as plain arrays."""

    def restore(self, arrays: Arrays) -> None:
        """Take back what `arrays` gave."""
