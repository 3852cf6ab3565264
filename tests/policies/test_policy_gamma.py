"""Is it a bandit? The figures of the policies' README, from a Site whose load wanders by itself."""

import numpy as np
import pytest

from grainshift.core.choice import Choice
from grainshift.core.policy import Policy
from grainshift.core.proposal import Lesson, Query
from grainshift.policies import make_policy

CHOICES = (
    Choice("stock"),
    Choice("rolled"),
    *(Choice("unrolled", (u,)) for u in (2, 4, 8, 16)),
    Choice("hybrid", (4,)),
)


def gains(load: float) -> np.ndarray:
    return np.array([0, -0.3, 0.05, 0.12, 0.2 - 0.5 * load, 0.3 - 0.9 * load, -0.1 + 0.4 * load])


def ask(load: float) -> Query:
    state, prior = (load, 8.0, 1e9 * (1 - 0.3 * load)), tuple((gains(0.1) / 2).tolist())
    return Query("site", "b", state, CHOICES, (True,) * len(CHOICES), prior)


def regret(policy: Policy, seed: int, decisions: int = 600) -> float:
    """The mean regret of the later half; no answer moves the load."""
    draw, load, lost = np.random.default_rng(seed), 0.1, []
    query = ask(load)
    for _ in range(decisions):
        gain, arm = gains(load), policy.propose(query).arm
        lost.append(gain.max() - gain[arm])
        reward = gain[arm] + draw.normal(0, 0.05)
        jump = 1.0 - 2 * load if draw.random() < 0.01 else 0.0
        load = float(np.clip(load + draw.normal(0, 0.03) + jump, 0, 1))
        following = ask(load)
        policy.learn([Lesson(query, arm, reward, following)])
        query = following
    return float(np.mean(lost[decisions // 2 :]))


def table(name: str, gamma: float, seeds: range = range(6)) -> tuple[float, float]:
    """Mean regret over seeds and its standard error."""

    found = [regret(make_policy(name, seed, gamma=gamma), seed) for seed in seeds]
    return float(np.mean(found)), float(np.std(found) / len(found) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qlearning", "dqn", "ppo"])
def test_gamma_gains_nothing_where_no_answer_moves_the_load(name: str) -> None:
    without, with_ = table(name, 0.0), table(name, 0.9)
    print(name, without, table(name, 0.5), with_)
    assert without[0] <= with_[0] + with_[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qlearning", "dqn"])
def test_reading_the_load_beats_the_bandit_that_does_not(name: str) -> None:
    print("bandit", table("bandit", 0.0))
    assert table(name, 0.0)[0] < table("bandit", 0.0)[0]
