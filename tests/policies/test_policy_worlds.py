"""Each learner against processes whose optimum is known by value iteration and greed misses.

fixed and bandit are checked on bandits only: they have no notion of what follows an answer.
"""

from collections.abc import Callable

import numpy as np
import pytest
from small_worlds import GAMMA, chain, live, preferred, trap, unmasked

from grainshift.core.choice import Choice
from grainshift.core.policy import Policy
from grainshift.core.proposal import Lesson, Query
from grainshift.policies.bandit import Bandit
from grainshift.policies.dqn import Dqn
from grainshift.policies.fixed import Fixed
from grainshift.policies.ppo import Ppo
from grainshift.policies.qlearning import QLearning

Make = Callable[[int, float], Policy]  # of a seed and gamma
LEARNERS: dict[str, Make] = {
    "qlearning": lambda seed, gamma: QLearning(seed, 0.5 if gamma else 0.1, gamma),
    "dqn": lambda seed, gamma: Dqn(seed, 0.2, gamma),
    "ppo": lambda seed, gamma: Ppo(seed, 0.1, gamma),
}
BOOTSTRAPPING = ("qlearning", "dqn")
SEEDS = (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEARNERS)
def test_gets_past_the_temptation_of_the_chain(name: str, seed: int) -> None:
    world = chain()
    assert world.greedy() != [next(iter(best)) for best in world.optimum()]
    policy = LEARNERS[name](seed, GAMMA)
    live(policy, (world,), 1200)
    optimum = world.optimum()
    assert all(arm in optimum[s] for s, arm in enumerate(preferred(policy, world)))


@pytest.mark.parametrize("name", LEARNERS)
def test_without_gamma_the_chain_is_not_learnt(name: str) -> None:
    world = chain()
    policy = LEARNERS[name](0, 0.0)
    live(policy, (world,), 1200)
    assert preferred(policy, world)[0] not in world.optimum()[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEARNERS)
def test_does_not_walk_into_the_masked_trap(name: str, seed: int) -> None:
    masked, opened = trap()
    policy = LEARNERS[name](seed, GAMMA)
    live(policy, (masked, opened), 900)
    assert preferred(policy, masked)[0] in masked.optimum()[0] == {0}
    assert preferred(policy, opened)[1] == 1


@pytest.mark.parametrize("name", BOOTSTRAPPING)
def test_a_bootstrap_without_the_mask_would_walk_into_it(name: str) -> None:
    masked, opened = trap()
    policy = LEARNERS[name](0, GAMMA)
    live(policy, (masked, opened), 900, teach=unmasked)
    assert preferred(policy, masked)[0] == 1


def loaded(load: float) -> Query:
    """A question under a load: `wide` is right below 0.5 and `narrow` above."""
    choices = (Choice("stock"), Choice("wide"), Choice("narrow"))
    return Query("site", "b", (load, 3.0), choices, (True,) * 3, (0.0,) * 3)


def gain(load: float, arm: int) -> float:
    """The reward under a load."""
    return (0.0, 0.3, -0.3)[arm] if load < 0.5 else (0.0, -0.3, 0.3)[arm]


def share_right(policy: Policy, lessons: int) -> float:
    """Teach a policy the loaded questions, and how often it then prefers the right answer."""
    draw = np.random.default_rng(7)
    for _ in range(lessons):
        load = float(draw.choice([0.1, 0.2, 0.8, 0.9]))
        query = loaded(load)
        arm = policy.propose(query).arm
        policy.learn([Lesson(query, arm, gain(load, arm) + draw.normal(0.0, 0.05))])
    loads = (0.1, 0.15, 0.2, 0.8, 0.85, 0.9)
    right = [np.argmax(policy.propose(loaded(x)).scores) == (1 if x < 0.5 else 2) for x in loads]
    return float(np.mean(right))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEARNERS)
def test_the_best_choice_flips_with_the_load(name: str, seed: int) -> None:
    assert share_right(LEARNERS[name](seed, 0.0), 700) == 1.0


def test_without_the_state_the_flip_cannot_be_learnt() -> None:
    assert share_right(Bandit(0), 700) <= 0.5


def bandit_query() -> Query:
    choices = tuple(Choice("arm", (number,)) for number in range(4))
    return Query("site", "b", (), choices, (True,) * 4, (0.0, 0.1, 0.3, 0.2))


def regret(policy: Policy, means: list[tuple[float, ...]], seed: int = 3) -> list[float]:
    """The regret of each decision, where `means` are the arms' mean rewards at each one."""
    draw, lost = np.random.default_rng(seed), []
    for mean in means:
        arm = policy.propose(bandit_query()).arm
        policy.learn([Lesson(bandit_query(), arm, mean[arm] + draw.normal(0.0, 0.05))])
        lost.append(max(mean) - mean[arm])
    return lost


ALL: dict[str, Callable[[int], Policy]] = {
    "bandit": lambda seed: Bandit(seed),
    **{name: (lambda seed, make=make: make(seed, 0.0)) for name, make in LEARNERS.items()},
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ALL)
def test_finds_the_best_arm_though_the_priors_mislead(name: str, seed: int) -> None:
    policy = ALL[name](seed)
    lost = regret(policy, [(0.0, 0.4, 0.1, -0.2)] * 600, seed)
    assert np.argmax(policy.propose(bandit_query()).scores) == 1
    assert np.mean(lost[-200:]) < 0.1
    assert np.mean(lost[-200:]) < np.mean(regret(Fixed("arm(2)"), [(0.0, 0.4, 0.1, -0.2)] * 9)) / 2


@pytest.mark.parametrize("name", ALL)
def test_what_is_expected_best_is_tried_first(name: str) -> None:
    if name == "bandit":
        firsts = [ALL[name](seed).propose(bandit_query()).arm for seed in range(40)]
        assert set(firsts) == {2}
    assert np.argmax(ALL[name](0).propose(bandit_query()).scores) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_discounting_follows_a_change_that_the_sum_of_all_would_not(seed: int) -> None:
    before, after = (0.0, 0.4, 0.1, 0.0), (0.0, -0.4, 0.1, 0.3)
    means = [before] * 400 + [after] * 200
    discounted = regret(Bandit(seed), means, seed)
    assert np.mean(discounted[300:400]) < 0.05
    assert np.mean(discounted[500:]) < 0.05
    never = regret(Bandit(seed, discount=1.0), means, seed)
    assert np.mean(never[500:]) > 2 * np.mean(discounted[500:]) + 0.05


def test_the_table_follows_a_change() -> None:
    before, after = (0.0, 0.4, 0.1, 0.0), (0.0, -0.4, 0.1, 0.3)
    policy = QLearning(0, 0.1, 0.0)
    regret(policy, [before] * 400 + [after] * 200)
    assert np.argmax(policy.propose(bandit_query()).scores) == 3


def test_ppo_follows_a_change_since_its_logits_are_held_together() -> None:
    before, after = (0.0, 0.4, 0.1, 0.0), (0.0, -0.4, 0.1, 0.3)
    means = [before] * 400 + [after] * 500
    pulled = [np.mean(regret(Ppo(seed, 0.05, 0.0), means, seed)[-100:]) for seed in (0, 1)]
    free = [np.mean(regret(Ppo(seed, 0.05, 0.0, pull=0.0), means, seed)[-100:]) for seed in (0, 1)]
    assert max(pulled) < 0.1 < max(free)


def test_fixed_goes_down_the_priors_until_one_holds() -> None:
    policy, query = Fixed(), bandit_query()
    tried = []
    for reward in (-0.1, 0.0, 0.2, 0.2):
        arm = policy.propose(query).arm
        tried.append(arm)
        policy.learn([Lesson(query, arm, reward)])
    assert tried == [2, 3, 1, 1]
    policy.learn([Lesson(query, 1, -1.0), Lesson(query, 0, -1.0)])
    assert policy.propose(query).arm == query.live


def test_fixed_takes_the_named_choice_and_stays_where_it_is_not_offered() -> None:
    query = bandit_query()
    assert Fixed("arm(3)").propose(query).arm == 3
    assert Fixed("arm").propose(query).arm == 2  # of that name, the one expected best
    assert Fixed("other").propose(query).arm == query.live


def test_what_is_learnt_of_unrolled_8_carries_over_to_16() -> None:
    seen = (Choice("stock"), *(Choice("unrolled", (u,)) for u in (2, 4, 8)), Choice("hybrid", (4,)))
    gains = (0.0, 0.1, 0.2, 0.3, -0.3)
    policy = Dqn(0, 0.5, 0.0)
    for number in range(400):
        query = Query("a", "b", (float(number % 3),), seen, (True,) * 5, (0.0,) * 5)
        arm = policy.propose(query).arm
        policy.learn([Lesson(query, arm, gains[arm])])
    new = (Choice("stock"), Choice("hybrid", (8,)), Choice("unrolled", (16,)))
    scores = policy.propose(Query("c", "d", (1.0,), new, (True,) * 3, (0.0,) * 3)).scores
    assert scores[2] > scores[0] + 0.1 and scores[0] > scores[1] + 0.1
