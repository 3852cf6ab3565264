"""Q-learning: a table of values by case, discretised state and Choice. Knows no network."""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.core.policy import Actor, Arrays
from grainshift.core.proposal import Lesson, Proposal, Query
from grainshift.policies.allowed import allowed, best, fault, following, priors, reward, told
from grainshift.policies.arrays import checked, pour
from grainshift.policies.describe import key, squash
from grainshift.policies.dice import Dice

__all__ = ["QLearning"]

_STATE_WIDTH = 256


@final
class QLearning:
    """Values start from the Choice's mean in the case, and that from the prior.

    So a state never seen before is judged by what its Site showed in others, and a new Choice by
    its Forecast. gamma weighs what follows; least_rate keeps the table moving when the world does;
    bin_width is the size of a cell of the squashed state; the oldest cells are forgotten.
    """

    def __init__(
        self,
        seed: int = 0,
        epsilon: float = 0.05,
        gamma: float = 0.0,
        least_rate: float = 0.1,
        bin_width: float = 0.5,
        most_cells: int = 65536,
    ) -> None:
        self._dice = Dice(seed)
        self._epsilon = epsilon
        self._gamma = gamma
        self._least_rate = least_rate
        self._bin_width = bin_width
        self._most_cells = most_cells
        self._cells: dict[int, tuple[float, int]] = {}  # value and Lessons, the youngest last

    @property
    def name(self) -> str:
        """The policy's word in the vocabulary."""
        return "qlearning"

    def propose(self, query: Query) -> Proposal:
        """The highest value, or with probability epsilon anything allowed."""
        mask, values = allowed(query), self._values(query)
        arm = self._dice.explore(self._epsilon, mask)
        return Proposal(best(values, mask) if arm is None else arm, told(values, mask))

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Move the answer's value towards the reward and the best that is allowed to follow."""
        for lesson in lessons:
            if fault(lesson) is None:
                self._take(lesson)

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        """None: the table is kept by Site and bucket, which an actor is not told."""
        return None

    def arrays(self) -> Arrays:
        """The table."""
        cells = self._cells
        return {
            "dice": self._dice.state.copy(),
            "cells": np.array(list(cells), dtype=np.uint64),
            "values": np.array([value for value, _ in cells.values()], dtype=np.float64),
            "visits": np.array([visits for _, visits in cells.values()], dtype=np.int64),
        }

    def restore(self, arrays: Arrays) -> None:
        """Take back what `arrays` gave."""
        cells = checked(arrays, "cells", np.uint64, (None,))
        values = checked(arrays, "values", np.float64, cells.shape).tolist()
        visits = checked(arrays, "visits", np.int64, cells.shape).tolist()
        pour(arrays, {"dice": self._dice.state})
        self._cells = dict(zip(cells.tolist(), zip(values, visits, strict=True), strict=True))

    def _take(self, lesson: Lesson) -> None:
        query, then = lesson.query, following(lesson)
        target = reward(lesson)
        if then is not None:
            mask = np.array(then.mask, dtype=np.bool_)
            target += self._gamma * float(self._values(then)[mask].max())
        start = float(self._values(query)[lesson.arm])
        choice = query.choices[lesson.arm]
        self._move(_mean_cell(query, choice), float(priors(query)[lesson.arm]), target)
        self._move(_cell(query, self._bins(query), choice), start, target)

    def _move(self, cell: int, start: float, target: float) -> None:
        value, visits = self._cells.pop(cell, (start, 0))
        rate = max(1.0 / (1.0 + visits), self._least_rate)
        self._cells[cell] = (value + rate * (target - value), visits + 1)
        if len(self._cells) > self._most_cells:
            del self._cells[next(iter(self._cells))]

    def _values(self, query: Query) -> NDArray[np.float64]:
        bins, cells = self._bins(query), self._cells
        values = priors(query)
        for arm, choice in enumerate(query.choices):
            found = cells.get(_cell(query, bins, choice)) or cells.get(_mean_cell(query, choice))
            if found is not None:
                values[arm] = found[0]
        return values

    def _bins(self, query: Query) -> bytes:
        squashed = np.nan_to_num(squash(query.state, _STATE_WIDTH)[: len(query.state)])
        bins: NDArray[np.int16] = np.rint(squashed / self._bin_width).astype(np.int16)
        return bins.tobytes()


def _cell(query: Query, bins: bytes, choice: Choice) -> int:
    return key("cell", query.site_key, query.bucket, bins, choice)


def _mean_cell(query: Query, choice: Choice) -> int:
    return key("mean", query.site_key, query.bucket, choice)
