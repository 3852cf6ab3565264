"""Picks: an answer is kept until the Conditions change, and no longer."""

import numpy as np
import pytest
from numpy.typing import NDArray

from grainshift.tuner.picks import Pick


class Listening:
    """Picks 1 while the last figure is 0, else 2; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.meanwhile: Pick | None = None

    def pick(self, state: NDArray[np.float32], mask: NDArray[np.bool_]) -> int:
        self.asked += 1
        arm = 2 if state[-1] else 1
        if self.meanwhile is not None:  # another thread, just now
            other, self.meanwhile = self.meanwhile, None
            other.sense((1.0,))
        return arm


def picking(*allowed: bool) -> tuple[Listening, Pick]:
    actor = Listening()
    return actor, Pick(actor, np.zeros(3, dtype=np.float32), np.array(allowed))


def test_an_answer_is_kept_until_the_conditions_change() -> None:
    actor, pick = picking(False, True, True)
    assert [pick() for _ in range(5)] == [1] * 5
    assert actor.asked == 1
    pick.sense((1.0,))
    assert [pick() for _ in range(5)] == [2] * 5
    assert actor.asked == 2


def test_an_answer_to_older_conditions_is_not_kept() -> None:
    actor, pick = picking(False, True, True)
    actor.meanwhile = pick
    assert pick() == 1
    assert pick() == 2


def test_what_is_not_admitted_is_refused_each_time() -> None:
    _, pick = picking(False, False, True)
    for _ in range(2):
        with pytest.raises(ValueError, match="not admitted"):
            pick()
