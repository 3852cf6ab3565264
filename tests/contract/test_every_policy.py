"""What every policy owes, whatever it learns: masks, determinism, round trips, toughness."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grainshift.core.choice import Choice
from grainshift.core.policy import Policy
from grainshift.core.proposal import Lesson, Proposal, Query
from grainshift.policies import POLICIES, make_policy

NUMBERS = st.floats(-1e15, 1e15) | st.sampled_from([0.0, np.nan, np.inf, -np.inf, 1e300])
CHOICES = st.builds(
    Choice,
    st.sampled_from(["stock", "unrolled", "rolled", "plan"]),
    st.lists(st.integers(-9, 1 << 40) | st.text(max_size=3), max_size=6).map(tuple),
)
every_policy = pytest.mark.parametrize("name", POLICIES)
few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def queries(draw: st.DrawFn) -> Query:
    choices = tuple(draw(st.lists(CHOICES, min_size=1, max_size=20, unique=True)))
    count, live = len(choices), draw(st.integers(0, len(choices) - 1))
    mask = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    mask[live] = True
    return Query(
        draw(st.sampled_from(["recurrence:a", "regions:b"])),
        draw(st.sampled_from(["1", "2"])),
        tuple(draw(st.lists(NUMBERS, max_size=24))),
        choices,
        tuple(mask),
        tuple(draw(st.lists(NUMBERS, min_size=count, max_size=count))),
        live,
    )


@st.composite
def lessons(draw: st.DrawFn) -> Lesson:
    query = draw(queries())
    arm = draw(st.integers(-1, len(query.choices)))
    return Lesson(query, arm, draw(NUMBERS), draw(st.none() | queries()))


def answers(policy: Policy, asked: list[Query], times: int = 3) -> list[Proposal]:
    return [policy.propose(query) for query in asked for _ in range(times)]


@every_policy
@few
@given(st.lists(lessons(), max_size=8), st.lists(queries(), min_size=1, max_size=4))
def test_answers_stay_inside_the_mask_whatever_was_learnt(
    name: str, learnt: list[Lesson], asked: list[Query]
) -> None:
    policy = make_policy(name, seed=1, epsilon=0.5)
    policy.learn(learnt * 5)
    for query in asked:
        for _ in range(3):
            proposal = policy.propose(query)
            assert query.mask[proposal.arm]
            assert len(proposal.scores) == len(query.choices)
            assert np.isfinite(proposal.scores).all()
        actor = policy.actor(query.choices)
        if actor is not None:
            state = np.clip(np.array(query.state), -1e30, 1e30).astype(np.float32)
            assert query.mask[actor.pick(state, np.array(query.mask))]


@every_policy
@few
@given(st.lists(lessons(), max_size=6), st.lists(queries(), min_size=1, max_size=3))
def test_same_seed_same_answers_and_arrays_carry_everything(
    name: str, learnt: list[Lesson], asked: list[Query]
) -> None:
    first, second = (make_policy(name, seed=5, epsilon=0.3) for _ in range(2))
    for policy in (first, second):
        policy.learn(learnt * 6)
    assert answers(first, asked) == answers(second, asked)
    third = make_policy(name, seed=77, epsilon=0.3)
    third.restore(first.arrays())
    assert answers(first, asked) == answers(third, asked)
    for policy in (first, third):
        policy.learn(learnt * 6)
    assert answers(first, asked) == answers(third, asked)


def ask(count: int, mask: tuple[bool, ...] | None = None, load: float = 0.2) -> Query:
    choices = (Choice("stock"), *(Choice("unrolled", (2**n,)) for n in range(1, count)))
    prior = tuple(0.01 * number for number in range(count))
    return Query("site", "b", (load, 4.0, 1e9), choices, mask or (True,) * count, prior)


def school(policy: Policy, count: int = 4, rounds: int = 60) -> None:
    """Lessons from which `unrolled(2)` comes out best."""
    for number in range(rounds):
        query, arm = ask(count, load=0.1 * (number % 5)), number % count
        policy.learn([Lesson(query, arm, 0.4 if arm == 1 else -0.3, query)])


@every_policy
def test_when_only_live_is_allowed_it_is_live(name: str) -> None:
    policy = make_policy(name, epsilon=1.0)
    school(policy)
    for live in range(4):
        mask = tuple(number == live for number in range(4))
        query = replace(ask(4, mask), live=live)
        assert {proposal.arm for proposal in answers(policy, [query], 20)} == {live}


@every_policy
def test_a_mask_that_allows_nothing_is_refused_in_words(name: str) -> None:
    policy = make_policy(name)
    with pytest.raises(ValueError, match=r"at site \(b\) allows no choice; allow the live one"):
        policy.propose(ask(3, (False,) * 3))
    with pytest.raises(ValueError, match="3 choices, 2 mask entries"):
        policy.propose(replace(ask(3), mask=(True, True)))
    actor = make_policy(name, choice="unrolled").actor(ask(3).choices)
    if actor is not None:
        with pytest.raises(ValueError, match="allow the live one"):
            actor.pick(np.zeros(3, dtype=np.float32), np.zeros(3, dtype=np.bool_))


@every_policy
def test_new_choices_may_join_and_old_ones_move(name: str) -> None:
    policy = make_policy(name, epsilon=0.0)
    school(policy)
    before = policy.propose(ask(4)).scores
    wide = ask(40)
    assert len(policy.propose(wide).scores) == 40
    shuffled = replace(ask(4), choices=ask(4).choices[::-1], prior=ask(4).prior[::-1])
    assert policy.propose(shuffled).scores == pytest.approx(before[::-1], rel=1e-4, abs=1e-5)
    for arm in range(40):
        policy.learn([Lesson(wide, arm, 0.1, wide)])
    again = make_policy(name, epsilon=0.0)
    again.restore(policy.arrays())
    assert again.propose(wide) == policy.propose(wide)


@every_policy
def test_what_is_broken_does_not_poison(name: str) -> None:
    clean, tried = (make_policy(name, seed=2, epsilon=0.0) for _ in range(2))
    query = ask(4)
    useless = [
        Lesson(query, 2, np.nan),
        Lesson(query, 2, np.inf),
        Lesson(query, 9, 1.0),
        Lesson(query, -1, 1.0),
        Lesson(ask(4, (True, True, False, True)), 2, 5.0),
        Lesson(replace(query, mask=(True,)), 0, 1.0),
    ]
    for policy, extra in ((clean, []), (tried, useless)):
        for _ in range(10):
            policy.learn(extra)
            school(policy, rounds=20)
    assert answers(clean, [query]) == answers(tried, [query])


@every_policy
def test_broken_states_and_ruinous_rewards_leave_a_working_policy(name: str) -> None:
    policy = make_policy(name, seed=2, epsilon=0.05, choice="unrolled(2)")
    query = ask(4)
    nowhere = replace(query, state=(np.nan, np.inf, -np.inf), prior=(np.nan, 0.0, np.inf, 0.0))
    for _ in range(20):
        policy.learn([Lesson(nowhere, 3, -np.inf, nowhere), Lesson(query, 2, -1e300, nowhere)])
        policy.learn([Lesson(query, 0, 0.1, replace(query, mask=(False,) * 4))])
    school(policy, rounds=600)
    arrays = policy.arrays()
    assert all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f")
    assert np.bincount([p.arm for p in answers(policy, [query], 40)]).argmax() == 1
    assert all(np.isfinite(policy.propose(nowhere).scores))


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "fixed"])
def test_epsilon_explores_all_that_is_allowed_and_nothing_else(name: str) -> None:
    mask = (True, True, False, True)
    query = ask(4, mask)
    eager, calm = (make_policy(name, seed=4, epsilon=epsilon) for epsilon in (1.0, 0.0))
    for policy in (eager, calm):
        school(policy, rounds=600)
    seen = np.bincount([p.arm for p in answers(eager, [query], 300)], minlength=4)
    assert seen[2] == 0 and (seen[[0, 1, 3]] > 60).all()
    settled = np.bincount([p.arm for p in answers(calm, [query], 300)], minlength=4)
    assert settled[1] > 240


@every_policy
def test_leaves_the_process_as_it_was(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs = np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index]
    threads, kind = torch.get_num_threads(), torch.get_default_dtype()
    policy = make_policy(name)
    school(policy, rounds=80)
    answers(policy, [ask(4)])
    assert (np.random.get_state()[1] == ours).all()  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), theirs)
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, kind)


@every_policy
def test_an_actor_is_frozen_and_agrees_with_what_was_learnt(name: str) -> None:
    policy = make_policy(name, epsilon=0.05, choice="unrolled(2)")
    school(policy, rounds=600)
    query = ask(4)
    actor = policy.actor(query.choices)
    if actor is None:
        assert name in ("bandit", "qlearning")
        return
    state, mask = np.array(query.state, dtype=np.float32), np.array(query.mask)
    assert actor.pick(state, mask) == 1
    for _ in range(400):
        policy.learn([Lesson(query, 1, -3.0), Lesson(query, 0, 3.0)])
    assert actor.pick(state, mask) == 1
    if name != "fixed":
        later = policy.actor(query.choices)
        assert later is not None and later.pick(state, mask) == 0
