"""Lets a policy's actor pick inside a call, among the Choices that the loop admitted."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.policy import Actor


@final
class Pick:
    """An actor bound to one lane. Its answer is kept until the Conditions change.

    Threads may share one: an answer that was thought out under older Conditions is not kept.
    """

    __slots__ = ("_actor", "_arm", "_mask", "_state", "_turn")

    def __init__(self, actor: Actor, state: NDArray[np.float32], mask: NDArray[np.bool_]) -> None:
        self._actor = actor
        self._state = state
        self._mask = mask
        self._arm: int | None = None
        self._turn = 0

    def __call__(self) -> int:
        """The number of the Choice to run."""
        arm = self._arm
        return self._think() if arm is None else arm

    def sense(self, figures: tuple[float, ...]) -> None:
        """Take in the Conditions of now, the last figures of the state."""
        self._state[-len(figures) :] = figures
        self._turn += 1
        self._arm = None

    def _think(self) -> int:
        turn = self._turn
        arm = int(self._actor.pick(self._state, self._mask))
        if not self._mask[arm]:
            raise ValueError(f"the actor picked {arm}, which is not admitted")
        if turn == self._turn:
            self._arm = arm
        return arm
