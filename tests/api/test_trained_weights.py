"""Trained weights start a policy; those that are broken or missing leave it untrained, told so."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn
from tuned_models import speaker

import grainshift
from grainshift.api import weights
from grainshift.core.choice import Choice
from grainshift.core.policy import Policy
from grainshift.core.proposal import Lesson, Query
from grainshift.environment import environment
from grainshift.policies import make_policy
from grainshift.policies.store import save

CHOICES = (Choice("stock"), Choice("rolled"), Choice("unrolled", (8,)))
QUERY = Query("s", "b", (1.0, 2.0), CHOICES, (True,) * 3, (0.0,) * 3)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has no weights yet, and a package that ships none."""
    monkeypatch.setenv("GRAINSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "_SHIPPED", tmp_path / "shipped")


def own() -> Path:
    file = environment().weights_file("recurrence", "ppo")
    file.parent.mkdir(parents=True)
    return file


def shipped(tmp_path: Path) -> Path:
    file = tmp_path / "shipped" / "recurrence" / "ppo.npz"
    file.parent.mkdir(parents=True)
    return file


def taught(favourite: int, file: Path) -> None:
    """Keep a PPO that was taught one Choice is better than the others."""
    policy = make_policy("ppo", seed=5)
    for number in range(640):
        policy.learn([Lesson(QUERY, number % 3, 1.0 if number % 3 == favourite else -1.0)])
    save(policy, file)


def started(name: str = "ppo", seed: int = 0, epsilon: float = 0.0) -> tuple[Policy, str]:
    policy = make_policy(name, seed, epsilon)
    return policy, weights.start_trained(policy, name, "recurrence")


def preferred() -> tuple[int, str]:
    policy, note = started()
    return int(np.argmax(policy.propose(QUERY).scores)), note


def test_weights_that_ship_start_the_policy(tmp_path: Path) -> None:
    taught(2, shipped(tmp_path))
    assert preferred() == (2, "")


def test_what_was_trained_here_comes_before_what_ships(tmp_path: Path) -> None:
    taught(2, shipped(tmp_path))
    taught(1, own())
    assert preferred() == (1, "")


def test_it_draws_from_the_users_own_seed(tmp_path: Path) -> None:
    taught(2, shipped(tmp_path))
    draws = []
    for seed in (1, 1, 2):
        policy, _ = started(seed=seed, epsilon=1.0)
        draws.append([policy.propose(QUERY).arm for _ in range(24)])
    assert draws[0] == draws[1] != draws[2]


def test_without_weights_it_starts_untrained_and_says_so() -> None:
    policy, note = started(seed=3)
    fresh = make_policy("ppo", seed=3).arrays()
    assert all(np.array_equal(array, fresh[name]) for name, array in policy.arrays().items())
    assert "no trained weights for ppo at recurrence" in note and "grainshift pretrain" in note
    assert note.endswith("It starts untrained.")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello" * 99])
def test_a_broken_file_leaves_it_untrained_and_is_named(tmp_path: Path, content: bytes) -> None:
    file = shipped(tmp_path)
    file.write_bytes(content)
    policy, note = started()
    assert np.array_equal(policy.arrays()["weights"], make_policy("ppo").arrays()["weights"])
    assert str(file) in note and note.endswith("It starts untrained.")


def test_broken_weights_of_ones_own_give_way_to_those_that_ship(tmp_path: Path) -> None:
    taught(2, shipped(tmp_path))
    own().write_bytes(b"broken")
    arm, note = preferred()
    assert arm == 2 and "could not be used" in note and "untrained" not in note


def test_weights_of_another_policy_are_refused(tmp_path: Path) -> None:
    save(make_policy("dqn"), shipped(tmp_path))
    _, note = preferred()
    assert "holds 'dqn', not 'ppo'" in note


def test_a_policy_that_nobody_trains_says_nothing() -> None:
    for name in ("bandit", "fixed", "dqn", "qlearning"):
        assert started(name)[1] == ""


def test_the_report_says_how_its_policy_started(tmp_path: Path) -> None:
    model = grainshift.tune(speaker(), policy="ppo")
    assert any("no trained weights" in note for note in grainshift.report(model).notes)
    grainshift.untune(model)
    taught(2, shipped(tmp_path))
    model = grainshift.tune(speaker(), policy="ppo")
    assert not any("weights" in note for note in grainshift.report(model).notes)
    grainshift.untune(model)


def test_where_nothing_is_tuned_nothing_is_said_of_weights() -> None:
    model = grainshift.tune(nn.Linear(2, 2), policy="ppo")
    assert not any("weights" in note for note in grainshift.report(model).notes)
    grainshift.untune(model)
