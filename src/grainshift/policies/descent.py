"""Adam on one flat array of weights. Knows no network and no policy, and draws nothing."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.policies.network import Floats

__all__ = ["Descent"]

_BETA_1, _BETA_2, _TINY = 0.9, 0.999, 1e-8


@final
class Descent:
    """Weights, and the moments of their gradient."""

    def __init__(self, weights: Floats, rate: float, largest_norm: float = 10.0) -> None:
        self.weights = weights
        self._rate = rate
        self._largest_norm = largest_norm
        self._first = np.zeros_like(weights)
        self._second = np.zeros_like(weights)
        self._steps = np.zeros(1, dtype=np.int64)

    def step(self, gradient: Floats) -> bool:
        """One step against the gradient; False, and no step, when that is no number."""
        norm = float(np.sqrt(gradient.dot(gradient)))
        if not np.isfinite(norm):
            return False
        gradient = gradient * min(1.0, self._largest_norm / max(norm, _TINY))
        self._steps += 1
        steps = int(self._steps[0])
        self._first += (1 - _BETA_1) * (gradient - self._first)
        self._second += (1 - _BETA_2) * (gradient * gradient - self._second)
        scaled = np.sqrt(self._second / (1 - _BETA_2**steps)) + _TINY
        self.weights -= self._rate / (1 - _BETA_1**steps) * self._first / scaled
        return True

    @property
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All that it holds, under names of its own."""
        return {
            "weights": self.weights,
            "adam_first": self._first,
            "adam_second": self._second,
            "adam_steps": self._steps,
        }
