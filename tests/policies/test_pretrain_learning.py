"""Training improves the regret, on what was left out as well; and the report says what is true."""

import numpy as np
import pytest
from small_traces import CHOICES, trace, traces

import grainshift.policies.pretrain as pretraining
from grainshift.policies.ppo import Ppo
from grainshift.policies.pretrain import Pretrained, gym, pretrain
from grainshift.policies.pretrain.regret import (
    Regret,
    best_single,
    plain_pickers,
    policy_picker,
    questions,
    regrets,
)
from grainshift.policies.pretrain.train import Phase, train_ppo

LESSONS = 4096
TRAINED = tuple(one for one in traces() if not one.left_out)


@pytest.fixture(scope="module")
def taught() -> Ppo:
    return train_ppo(TRAINED, LESSONS)


def by_group(policy: Ppo) -> dict[str, Regret]:
    return {row.group: row for row in regrets(questions(traces()), {"it": policy_picker(policy)})}


def test_training_improves_the_regret_where_it_was_trained_and_where_not(taught: Ppo) -> None:
    before, after = by_group(Ppo()), by_group(taught)
    assert len(after) == 4
    for group, row in after.items():
        assert row.mean_ratio < 1.03 < 1.2 < before[group].mean_ratio
        assert row.worst_ratio < 1.2


def test_the_same_seed_trains_the_same_policy_and_another_seed_another(taught: Ppo) -> None:
    again, other = train_ppo(TRAINED, LESSONS), train_ppo(TRAINED, LESSONS, seed=1)
    first, second = (
        {name: array.tobytes() for name, array in policy.arrays().items()}
        for policy in (taught, again)
    )
    assert first == second
    assert not np.array_equal(other.arrays()["weights"], taught.arrays()["weights"])


def test_a_trained_policy_fits_one_of_the_usual_making(taught: Ppo) -> None:
    usual = Ppo(seed=7)
    usual.restore(taught.arrays())
    assert by_group(usual) == by_group(taught)
    assert int(taught.arrays()["ring_written"][0]) == 0  # nothing under way


def test_few_lessons_still_make_whole_rounds() -> None:
    policy = train_ppo(TRAINED, 10, phases=(Phase(1.0, 1e-2, 0.1, 0.01),))
    assert int(policy.arrays()["ring_written"][0]) == 0
    assert np.any(policy.arrays()["weights"] != Ppo().arrays()["weights"])


def test_regret_is_time_over_the_best_choices() -> None:
    one = trace(256, "calm", "shape")
    without, with_lower = questions([one])
    assert (without.group, with_lower.group) == ("shape", "shape, lower allowed")
    assert without.query.choices == CHOICES[:4] and with_lower.query.choices == CHOICES
    stock = np.exp(one.costs[2].gain)
    rows = list(regrets([without], {"stock": lambda _: [0], "two": lambda _: [0, 2]}))
    assert [row.mean_ratio for row in rows] == pytest.approx([stock, (stock + 1.0) / 2.0])
    assert [row.within for row in rows] == [0.0, 0.0] and rows[0].questions == 1


def test_what_it_is_held_beside_picks_as_its_name_says() -> None:
    asked = questions([trace(1024, "calm", "shape")])[:1]
    pickers = plain_pickers(TRAINED)
    picks = {name: list(pick(asked[0])) for name, pick in pickers.items()}
    single = best_single(TRAINED)
    assert single == CHOICES[3]  # solo gains everywhere, and the most nowhere when it is calm
    assert picks[f"always {single}"] == [3]
    assert picks["stock"] == [0] and picks["random"] == [0, 1, 2, 3]
    assert picks["best of half"] == [2]
    assert picks["bandit"].count(2) > 16 and len(picks["bandit"]) == 32


def test_the_report_has_every_contender_and_tells_whether_foresight_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pretraining, "maskable_ppo", lambda *args: lambda question: [0])
    found = pretrain(traces(), LESSONS)
    names = {row.picker for row in found.regrets}
    assert {"ppo", "ppo, gamma 0.9", "MaskablePPO", "bandit", "random", "stock"} <= names
    assert len(found.regrets) == 4 * len(names)
    assert len(found.notes) == 1 and "bandit" in found.notes[0]
    assert (
        row(found, "architecture", "ppo").mean_ratio
        < row(found, "architecture", f"always {CHOICES[3]}").mean_ratio
    )
    kept = by_group(found.policy)["architecture"]
    assert kept.mean_ratio == row(found, "architecture", "ppo").mean_ratio


def row(found: Pretrained, group: str, picker: str) -> Regret:
    (one,) = [row for row in found.regrets if (row.group, row.picker) == (group, picker)]
    return one


def test_without_the_extra_the_crosscheck_is_left_out_and_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(gym, "import_module", absent)
    found = pretrain(traces(), 256)
    assert "MaskablePPO was left out" in found.notes[0] and "pip install" in found.notes[0]
    assert not any("Maskable" in row.picker for row in found.regrets)


def test_what_was_left_out_is_not_trained_on() -> None:
    spoilt = tuple(
        one if not one.left_out else trace(512, one.load, one.left_out, seed=9) for one in traces()
    )
    one, other = (
        pretrain(told, 256, crosscheck=False).policy.arrays()["weights"]
        for told in (traces(), spoilt)
    )
    assert np.array_equal(one, other)


@pytest.mark.slow
def test_maskable_ppo_learns_the_same_world() -> None:
    pytest.importorskip("sb3_contrib")
    from grainshift.policies.pretrain.crosscheck import maskable_ppo

    pick = maskable_ppo(TRAINED, 4 * LESSONS)
    for found in regrets(questions(TRAINED), {"MaskablePPO": pick}):
        assert found.mean_ratio < 1.1
