"""What the tuner is measured beside on the simulated machine: chance, and a plain bandit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grainshift.bench.simulate import Table, World
from grainshift.core.choice import Choice
from grainshift.core.policy import Actor, Arrays
from grainshift.core.proposal import Lesson, Proposal, Query


class Chance:
    """Proposes any allowed Choice with the same probability; learns nothing."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def propose(self, query: Query) -> Proposal:
        """Draw one."""
        return Proposal(int(self._rng.choice(np.flatnonzero(query.mask))))

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Nothing is learnt."""

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        """None."""
        return None

    def arrays(self) -> Arrays:
        """Nothing is kept."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing is taken back."""


@dataclass(frozen=True, slots=True)
class Course:
    """Seconds of each call of a rival, and how many of its answers were wrong."""

    taken_s: np.ndarray
    wrong: int


def plain_bandit(table: Table, calls: int, seed: int) -> Course:
    """Thompson sampling on the log seconds of every call, with no guard, budget or proof.

    What raises is run again by the baseline, as any caller would.
    """
    world, rng = World(table, calls, seed), np.random.default_rng(seed + 1)
    count = np.full(table.count, 1e-3)
    mean = np.full(table.count, -10.0)
    taken_s, wrong = np.zeros(calls), 0
    for call in range(calls):
        world.call = call
        draws = mean + rng.standard_normal(table.count) * 0.1 / np.sqrt(count)
        arm = int(np.argmin(draws))
        start_s = world.now_s
        try:
            wrong += world.run(arm) != 1.0
        except (MemoryError, RuntimeError):
            world.run(0)
        taken_s[call] = world.now_s - start_s
        count[arm] = count[arm] * 0.998 + 1.0
        mean[arm] += (np.log(taken_s[call]) - mean[arm]) / count[arm]
    return Course(taken_s, wrong)
