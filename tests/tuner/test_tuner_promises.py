"""The promises of the design on every seeded table, with the real Slot and driver."""

from functools import cache

import pytest

from grainshift.bench.tables import TABLES
from grainshift.bench.tuner import POLICIES, Outcome, simulate

NAMES = tuple(make.__name__ for make in TABLES)
SEEDS = range(3)
outcome = cache(simulate)


def outcomes(name: str) -> list[Outcome]:
    return [outcome(name, "bandit", seed) for seed in SEEDS]


@pytest.mark.parametrize("name", NAMES)
def test_never_slower_for_long_and_never_wrong(name: str) -> None:
    for told in outcomes(name):
        assert told.overrun <= told.trial
        assert told.wrong == 0


@pytest.mark.parametrize(("name", "decisions"), [("stationary", 200), ("shifted", 100)])
def test_near_the_optimum_before_long(name: str, decisions: int) -> None:
    for told in outcomes(name):
        assert told.near_decisions <= decisions
        assert 1.0 < told.speedup < told.best_speedup


@pytest.mark.parametrize("name", ["equal", "lying"])
def test_where_nothing_is_better_the_baseline_stays(name: str) -> None:
    for told in outcomes(name):
        assert told.baseline_share > 0.95
        assert told.speedup > 0.96


@pytest.mark.parametrize("name", ["heavy_tailed", "correlated", "faulty"])
def test_a_gain_is_found_in_noise_and_among_faults(name: str) -> None:
    assert sum(told.speedup > 1.1 for told in outcomes(name)) >= len(SEEDS) - 1


@pytest.mark.parametrize("name", ["hidden", "turncoat", "resonant"])
def test_the_hostile_tables_hurt_who_promises_nothing(name: str) -> None:
    """A plain bandit breaks the promise here, so that keeping it says something."""
    assert any(told.bandit_overrun > told.trial for told in outcomes(name))


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "bandit"])
@pytest.mark.parametrize(("name", "seed"), [("stationary", 1), ("turncoat", 2)])
def test_the_promise_is_the_tuners_whatever_the_policy(name: str, policy: str, seed: int) -> None:
    told = outcome(name, policy, seed)
    assert told.overrun <= told.trial
    assert told.wrong == 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_the_promise_on_many_seeds(name: str, policy: str) -> None:
    seeds = range(100, 130 if policy == "bandit" else 108)
    told = [simulate(name, policy, seed) for seed in seeds]
    assert [one for one in told if one.overrun > one.trial or one.wrong] == []


def test_what_failing_choices_took_is_spent_from_the_budget() -> None:
    outcome = simulate("faulty", "bandit", 119)  # several of them fail, one after the other
    assert outcome.overrun <= outcome.trial
