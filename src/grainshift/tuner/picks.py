"""Lets a policy's actor pick inside a call, among the Choices that the loop admitted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grainshift.core.policy import Actor


@dataclass(frozen=True, slots=True)
class Pick:
    """An actor bound to one lane; the driver writes the state in place as Conditions change."""

    actor: Actor
    state: NDArray[np.float32]
    mask: NDArray[np.bool_]

    def __call__(self) -> int:
        """The number of the Choice to run."""
        arm = int(self.actor.pick(self.state, self.mask))
        if not self.mask[arm]:
            raise ValueError(f"the actor picked {arm}, which is not admitted")
        return arm
