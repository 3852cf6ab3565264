"""Dice: reproducible draws from a seed and a count. Knows no global generator."""

from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dice"]


@final
class Dice:
    """The n-th throw depends on the seed and n alone, so two numbers store the whole state."""

    def __init__(self, seed: int) -> None:
        self.state = np.array([seed & 0x7FFF_FFFF_FFFF_FFFF, 0], dtype=np.int64)

    def throw(self) -> np.random.Generator:
        """A fresh generator for the next draw."""
        self.state[1] += 1
        return np.random.default_rng(self.state.tolist())

    def explore(self, epsilon: float, mask: NDArray[np.bool_]) -> int | None:
        """With probability epsilon any allowed number, all equally likely; else None."""
        if epsilon <= 0.0:
            return None
        generator = self.throw()
        if generator.random() >= epsilon:
            return None
        return int(generator.choice(np.flatnonzero(mask)))
