"""What is saved comes back whole; what is foreign, broken or hostile is refused in one sentence."""

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from grainshift.core.choice import Choice
from grainshift.core.errors import NotTunable
from grainshift.core.policy import Policy
from grainshift.core.proposal import Lesson, Query
from grainshift.policies import POLICIES, make_policy
from grainshift.policies.store import load, save

QUERY = Query(
    "s", "b", (1.0, 2.0), (Choice("stock"), Choice("fast", (2,))), (True, True), (0.0, 0.1)
)


def taught(name: str) -> Policy:
    policy = make_policy(name, seed=3)
    policy.learn([Lesson(QUERY, number % 2, 0.1 * (number % 2), QUERY) for number in range(40)])
    return policy


@pytest.mark.parametrize("name", POLICIES)
def test_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    policy, path = taught(name), tmp_path / "policy.npz"
    save(policy, path)
    save(policy, path)  # over what is there
    again = make_policy(name, seed=99)
    load(again, path)
    assert [again.propose(QUERY) for _ in range(20)] == [policy.propose(QUERY) for _ in range(20)]
    assert [file.name for file in tmp_path.iterdir()] == ["policy.npz"]


def test_refuses_another_policy_and_another_format(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    save(taught("dqn"), path)
    with pytest.raises(NotTunable, match="holds 'dqn', not 'ppo'"):
        load(make_policy("ppo"), path)
    content = dict(np.load(path))
    np.savez(path, **{**content, "format": np.array([99])})
    with pytest.raises(NotTunable, match=r"format \[99\]"):
        load(make_policy("dqn"), path)


def refused(path: Path) -> None:
    policy = taught("qlearning")
    before = {name: array.tobytes() for name, array in policy.arrays().items()}
    with pytest.raises(NotTunable) as caught:
        load(policy, path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert {name: array.tobytes() for name, array in policy.arrays().items()} == before


def test_refuses_what_is_no_policy(tmp_path: Path) -> None:
    path = tmp_path / "given"
    refused(path)
    for content in (b"", b"PK\x03\x04", b"hello" * 99, pickle.dumps({"a": 1})):
        path.write_bytes(content)
        refused(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    refused(path)
    with path.open("wb") as file:
        np.savez(file, other=np.zeros(3))
    refused(path)


def test_never_unpickles(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (Path(tmp_path / "sprung"),)  # type: ignore[return-value]

    path = tmp_path / "given"
    with path.open("wb") as file:
        np.savez(file, format=np.array([Trap()], dtype=object), policy=np.array(["qlearning"]))
    refused(path)
    assert not (tmp_path / "sprung").exists()


def test_refuses_every_damage_or_reads_the_same(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "broken"
    policy, draw = taught("qlearning"), random.Random(0)
    save(policy, whole)
    expected = {name: array.tobytes() for name, array in policy.arrays().items()}
    content, refusals = whole.read_bytes(), 0
    for _ in range(150):
        broken = bytearray(content[: draw.choice([len(content), draw.randrange(len(content))])])
        for _ in range(draw.choice([1, 3]) if broken else 0):
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(broken))
        again = make_policy("qlearning")
        try:
            load(again, path)
        except NotTunable:
            refusals += 1
        else:
            found = {name: array.tobytes() for name, array in again.arrays().items()}
            assert found == expected
    assert refusals > 75


@pytest.mark.parametrize(
    ("name", "array", "value"),
    [
        ("dqn", "weights", np.zeros(3, dtype=np.float32)),
        ("dqn", "ring_mask", np.zeros((2, 3, 4), dtype=np.bool_)),
        ("ppo", "ring_arm", np.full(8, 77, dtype=np.int64)),
        ("qlearning", "values", np.array([np.nan])),
        ("bandit", "sums", np.zeros((1, 2))),
        ("fixed", "refused", np.zeros(2)),
    ],
)
def test_arrays_that_do_not_fit_change_nothing(name: str, array: str, value: np.ndarray) -> None:
    policy = taught(name)
    before = {key: kept.tobytes() for key, kept in policy.arrays().items()}
    with pytest.raises(NotTunable, match=array):
        policy.restore({**policy.arrays(), array: value})
    with pytest.raises(NotTunable, match=array):
        policy.restore({key: kept for key, kept in policy.arrays().items() if key != array})
    assert {key: kept.tobytes() for key, kept in policy.arrays().items()} == before


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.npz"
    save(taught("dqn"), path)
    before = path.read_bytes()

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(taught("dqn"), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["policy.npz"]


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(NotTunable, match="no policy 'sarsa'; give one of fixed, bandit, qlearning"):
        make_policy("sarsa")
    with pytest.raises(NotTunable, match=r"epsilon=1\.5"):
        make_policy("dqn", epsilon=1.5)


def test_the_same_in_another_process() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from test_policy_store import taught, QUERY;"
        "print([taught(n).propose(QUERY) for n in ('bandit', 'qlearning', 'dqn', 'ppo')])"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] != ""
