"""Bandit: Thompson sampling with discounting, one arm for each Choice of a case. Reads no state."""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.core.policy import Actor, Arrays
from grainshift.core.proposal import Lesson, Proposal, Query
from grainshift.policies.allowed import allowed, best, fault, priors, reward, told
from grainshift.policies.arrays import checked, pour
from grainshift.policies.describe import key
from grainshift.policies.dice import Dice

__all__ = ["Bandit"]

_MOST_CASES = 4096  # a case is a Site in one shape bucket; the oldest is forgotten


@final
class Bandit:
    """Believes that each reward is normal with unknown mean and variance, and draws a belief.

    discount: how much of what was learnt of a case each further Lesson there leaves standing.
    prior_spread: standard deviation of the priors, as a log ratio.
    """

    def __init__(
        self,
        seed: int = 0,
        epsilon: float = 0.0,
        discount: float = 0.98,
        prior_spread: float = 0.25,
    ) -> None:
        self._dice = Dice(seed)
        self._epsilon = epsilon
        self._discount = discount
        self._prior_spread = prior_spread
        self._cases: dict[int, dict[int, NDArray[np.float64]]] = {}

    @property
    def name(self) -> str:
        """The policy's word in the vocabulary."""
        return "bandit"

    def propose(self, query: Query) -> Proposal:
        """First what is expected best; from then on, the best of one draw from the beliefs."""
        mask = allowed(query)
        mean, spread, freedom = self._beliefs(query)
        if key(query.site_key, query.bucket) not in self._cases:
            return Proposal(best(mean, mask), told(mean, mask))
        arm = self._dice.explore(self._epsilon, mask)
        if arm is None:
            arm = best(mean + spread * self._dice.throw().standard_t(freedom), mask)
        return Proposal(arm, told(mean, mask))

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Discount what the case knew, and add what the Lesson says."""
        for lesson in lessons:
            if fault(lesson) is None:
                self._take(lesson.query, lesson.query.choices[lesson.arm], reward(lesson))

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        """None: beliefs belong to a case, which an actor is not told."""
        return None

    def arrays(self) -> Arrays:
        """Discounted counts, sums and squares of each case and Choice."""
        flat = [(c, a, s) for c, arms in self._cases.items() for a, s in arms.items()]
        return {
            "dice": self._dice.state.copy(),
            "addresses": np.array([[c, a] for c, a, _ in flat], dtype=np.uint64).reshape(-1, 2),
            "sums": np.array([s for _, _, s in flat], dtype=np.float64).reshape(-1, 3),
        }

    def restore(self, arrays: Arrays) -> None:
        """Take back what `arrays` gave."""
        addresses = checked(arrays, "addresses", np.uint64, (None, 2))
        sums = checked(arrays, "sums", np.float64, (len(addresses), 3))
        pour(arrays, {"dice": self._dice.state})
        self._cases = {}
        for (case, arm), row in zip(addresses.tolist(), sums, strict=True):
            self._cases.setdefault(case, {})[arm] = np.array(row, dtype=np.float64)

    def _take(self, query: Query, choice: Choice, gain: float) -> None:
        case = key(query.site_key, query.bucket)
        arms = self._cases.pop(case, {})
        self._cases[case] = arms  # now the youngest
        for sums in arms.values():
            sums *= self._discount
        arms.setdefault(key(choice), np.zeros(3))[:] += (1.0, gain, gain * gain)
        if len(self._cases) > _MOST_CASES:
            del self._cases[next(iter(self._cases))]

    def _beliefs(
        self, query: Query
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Mean, spread and degrees of freedom of each arm (a normal-inverse-gamma posterior)."""
        arms, none = self._cases.get(key(query.site_key, query.bucket), {}), np.zeros(3)
        count, total, squares = np.array([arms.get(key(c), none) for c in query.choices]).T
        prior = priors(query)
        mean = (prior + total) / (1.0 + count)
        shape = 2.0 + count / 2.0
        residual = np.maximum(squares + prior * prior - (1.0 + count) * mean * mean, 0.0)
        rate = self._prior_spread**2 + residual / 2.0
        return mean, np.sqrt(rate / (shape * (1.0 + count))), 2.0 * shape
