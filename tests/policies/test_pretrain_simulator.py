"""Episodes on recorded Traces: the same for the same seed, masked as they must be, as Gymnasium."""

import random
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from small_traces import CHOICES, gains, trace, traces

from grainshift.core.choice import Exactness
from grainshift.core.errors import MissingExtra, NotTunable
from grainshift.core.proposal import Query, state_of
from grainshift.policies.describe import squash
from grainshift.policies.pretrain import gym
from grainshift.policies.pretrain.simulator import Rules, Simulator, Weights, ask, reward

FREE = Rules(limited_share=0.0, lower_share=1.0, dwell_s=0.0)
History = list[tuple[Query, int, float]]


def played(simulator: Simulator, seed: int, episodes: int = 3) -> History:
    """Episodes in which any allowed Choice is picked."""
    draw, history = random.Random(seed), []
    for episode in range(episodes):
        query: Query | None = simulator.begin(seed if not episode else None)
        while query is not None:
            arm = draw.choice([n for n, allowed in enumerate(query.mask) if allowed])
            outcome = simulator.step(arm)
            history.append((query, arm, outcome.reward))
            query = outcome.following
    return history


def test_equal_seeds_give_equal_episodes() -> None:
    first, again = (played(Simulator(traces()), 3) for _ in range(2))
    assert first == again
    assert first != played(Simulator(traces()), 4)
    assert len(first) == 3 * Rules().stretches


def test_rewards_are_measured_gains_and_a_little_for_memory_and_hits() -> None:
    (one,) = [trace(256, "calm")]
    simulator = Simulator([one], FREE, Weights(memory=0.0, cache=0.0))
    assert {round(worth, 4) for _, arm, worth in played(simulator, 0, 40) if arm == 2} == {
        *one.costs[2].gains
    }
    weights = Weights(time=2.0, memory=0.5, cache=0.1)
    baseline, cost = one.costs[0], replace(one.costs[1], extra_bytes=300, hit_ratio=0.75)
    assert reward(cost, baseline, 0.5, None, weights) == pytest.approx(1.0 + 0.025)
    assert reward(cost, baseline, 0.5, 600, weights) == pytest.approx(1.0 - 0.25 + 0.025)


def test_the_state_is_the_layers_under_conditions_of_that_load() -> None:
    seen = {one.load: set() for one in traces()}
    for one in traces():
        seen[one.load].add(one.conditions)
    for query, _, _ in played(Simulator(traces()), 1, 20):
        (layer,) = {one.features for one in traces() if one.architecture == query.site_key}
        load = {
            load
            for load, known in seen.items()
            if any(query.state == state_of(layer, conditions) for conditions in known)
        }
        assert len(load) == 1


def test_what_exceeds_the_limit_of_an_episode_is_masked() -> None:
    simulator = Simulator([trace(256, "calm")], replace(FREE, limited_share=1.0))
    masks = [query.mask for query, _, _ in played(simulator, 2, 60)]
    assert all(mask[0] for mask in masks)
    assert all(list(mask) == sorted(mask, reverse=True) for mask in masks)  # bytes rise with place
    assert {sum(mask) for mask in masks} >= {1, 3, 4}
    one = trace(256, "calm")
    assert ask(one, one.conditions, True, limit_bytes=2500).mask == (True, True, True, False, False)


def test_after_a_switch_only_the_live_choice_may_run_for_the_dwell_time() -> None:
    simulator = Simulator(traces(), replace(FREE, dwell_s=0.5, stretch_s=0.2, stretches=200))
    history = played(simulator, 5, episodes=1)
    bound = 0
    for (asked, arm, _), (query, _, _) in pairwise(history):
        if arm != asked.live and query.live == arm:
            assert [n for n, allowed in enumerate(query.mask) if allowed] == [arm]
            bound += 1
    assert bound > 20
    simulator.begin(0)
    simulator.step(2)
    with pytest.raises(ValueError, match="pick what the mask allows"):
        simulator.step(1)


def test_lower_precision_is_offered_in_its_share_of_episodes() -> None:
    offered = {
        share: {
            query.choices
            for query, _, _ in played(Simulator(traces(), replace(FREE, lower_share=share)), 0, 20)
        }
        for share in (0.0, 0.5, 1.0)
    }
    rounding = tuple(choice for choice in CHOICES if choice.exactness is not Exactness.LOWER)
    assert offered == {0.0: {rounding}, 0.5: {rounding, CHOICES}, 1.0: {CHOICES}}


def test_the_load_turns_within_an_episode() -> None:
    simulator = Simulator([trace(256, load) for load in ("calm", "busy")], FREE)
    loads = [query.state[4] > 0.2 for query, _, _ in played(simulator, 0, 1)]
    assert len(set(loads)) == 2
    assert gains(256, "calm") != gains(256, "busy")


def test_nothing_to_play_is_refused() -> None:
    with pytest.raises(NotTunable, match="no trace"):
        Simulator([])


def environment() -> gym.Any:
    pytest.importorskip("gymnasium")
    return gym.make_environment(Simulator(traces()), gym.vocabulary(traces()))


def test_the_environment_passes_gymnasiums_own_checks() -> None:
    made = environment()
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*spec.*")
        check_env(made, skip_render_check=True)


def test_the_environment_shows_masks_and_is_deterministic() -> None:
    def run(seed: int) -> list[tuple[bytes, float]]:
        made = environment()
        seen, _ = made.reset(seed=seed)
        found, ended = [(seen.tobytes(), 0.0)], False
        while not ended:
            open_ = np.flatnonzero(made.action_masks())
            seen, worth, ended, cut, _ = made.step(int(open_[len(found) % len(open_)]))
            assert not cut and seen.dtype == np.float32 and made.observation_space.contains(seen)
            found.append((seen.tobytes(), worth))
        return found

    assert run(1) == run(1) != run(2)
    assert len(run(1)) == Rules().stretches + 1


def test_actions_are_choices_wherever_they_stand_in_an_offer() -> None:
    one = trace(256, "calm")
    actions = gym.vocabulary(traces())
    query = ask(one, one.conditions, lower=False, limit_bytes=1500)
    mask = gym.mask_of(query, actions)
    assert {actions[place] for place in np.flatnonzero(mask)} == {CHOICES[0], CHOICES[1]}
    assert np.array_equal(gym.observed(query), squash(query.state, gym.STATE_WIDTH))


def test_a_masked_action_stays() -> None:
    pytest.importorskip("gymnasium")
    one = trace(256, "calm")
    rules = Rules(limited_share=0.0, lower_share=0.0)
    made = gym.make_environment(Simulator([one], rules), actions := gym.vocabulary([one]))
    made.reset(seed=0)
    _, worth, *_ = made.step(actions.index(CHOICES[4]))  # of lower precision: not offered
    assert worth == 0.0


def test_a_missing_package_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(gym, "import_module", absent)
    with pytest.raises(MissingExtra, match=r"gymnasium is not installed; pip install 'grainshift"):
        gym.make_environment(Simulator(traces()), CHOICES)
