"""Measuring, on a simulated clock."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from grainshift.bench.measure import (
    Plan,
    Timings,
    calls_per_reading,
    measure,
    ratio,
    row,
    timed,
)


class World:
    """A clock that only work moves; `factor` slows all work from some moment on."""

    def __init__(self, seed: int = 0) -> None:
        self.now_s = 0.0
        self.order: list[str] = []
        self.factor: Callable[[float], float] = lambda now_s: 1.0
        self.draw = random.Random(seed)

    def clock(self) -> float:
        return self.now_s

    def work(self, name: str, seconds: float, noise: float = 0.0) -> Callable[[], None]:
        def call() -> None:
            self.order.append(name)
            self.now_s += seconds * self.factor(self.now_s) * self.draw.lognormvariate(0.0, noise)

        return call

    def turns(self, noise: float = 0.05, **seconds: float):
        return {
            name: timed(self.work(name, each_s, noise), self.clock)
            for name, each_s in seconds.items()
        }


def test_the_ratio_is_found_with_an_interval_that_holds_it() -> None:
    world = World()
    timings = measure(world.turns(a=0.010, b=0.020), Plan(budget_s=30.0), world.clock)
    found = ratio(timings["b"], timings["a"])
    assert found.low < 2.0 < found.high
    assert found.high - found.low < 0.2
    assert len(timings["a"].blocks) == 30


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = 0
    for seed in range(100):
        draw = np.random.default_rng(seed)
        a, b = (
            Timings(tuple((x,) for x in size * np.exp(draw.normal(0.0, 0.1, 30))))
            for size in (1.0, 1.5)
        )
        found = ratio(b, a, resamples=400)
        held += found.low <= 1.5 <= found.high
    assert 85 <= held <= 100


def test_drift_falls_on_all() -> None:
    world = World()
    world.factor = lambda now_s: 1.0 if now_s < 3.0 else 4.0
    timings = measure(world.turns(a=0.010, b=0.015), Plan(budget_s=30.0), world.clock)
    assert ratio(timings["b"], timings["a"]).value == pytest.approx(1.5, rel=0.03)
    assert timings["a"].medians.max() > 3 * timings["a"].medians.min()


def test_every_block_gives_everyone_a_turn_in_an_order_that_changes() -> None:
    world = World()
    plan = Plan(blocks=12, warm_readings=1, most_readings=1, budget_s=100.0)
    measure(world.turns(a=0.1, b=0.1, c=0.1), plan, world.clock)
    played = world.order[6:]  # after the warm-up
    rounds = [tuple(played[start : start + 3]) for start in range(0, len(played), 3)]
    assert len(rounds) == 12
    assert all(sorted(block) == ["a", "b", "c"] for block in rounds)
    assert len({*rounds}) > 2


def test_the_same_seed_gives_the_same_order() -> None:
    orders = []
    for seed in (1, 1, 2):
        world = World()
        measure(world.turns(a=0.1, b=0.1, c=0.1), Plan(seed=seed, budget_s=5.0), world.clock)
        orders.append(world.order)
    assert orders[0] == orders[1] != orders[2]


def test_warming_up_is_not_counted() -> None:
    world = World()
    world.factor = lambda now_s: 1000.0 if now_s < 50.0 else 1.0
    timings = measure(world.turns(0.0, a=0.01), Plan(warm_readings=10, budget_s=3.0), world.clock)
    assert max(timings["a"].medians) == pytest.approx(0.01)


def test_outliers_are_kept() -> None:
    world = World()
    strikes = iter(range(10_000))
    world.factor = lambda now_s: 50.0 if next(strikes) % 40 == 39 else 1.0
    timings = measure(world.turns(0.0, a=0.01), Plan(budget_s=10.0), world.clock)
    assert timings["a"].percentile(100) == pytest.approx(0.5)
    assert timings["a"].median == pytest.approx(0.01)


def test_the_budget_ends_it_but_not_before_the_least() -> None:
    world = World()
    timings = measure(world.turns(0.0, a=1.0, b=1.0), Plan(budget_s=20.0), world.clock)
    assert 10 <= len(timings["a"].blocks) <= 12
    slow = measure(world.turns(0.0, a=60.0), Plan(budget_s=20.0, least_blocks=5), world.clock)
    assert len(slow["a"].blocks) == 5


def test_short_calls_are_read_together() -> None:
    world = World()
    call = world.work("a", 1e-6)
    calls = calls_per_reading(call, world.clock, reading_s=20e-6)
    assert 20 <= calls <= 40
    assert timed(call, world.clock, calls)(3) == pytest.approx([1e-6] * 3)
    assert calls_per_reading(world.work("a", 1.0), world.clock) == 1


def test_what_was_not_measured_together_is_not_compared() -> None:
    with pytest.raises(ValueError, match="one run"):
        ratio(Timings(((1.0,),) * 3), Timings(((1.0,),) * 4))


def test_a_row_names_the_best_peer_and_a_loss() -> None:
    ours = Timings(((0.002,),) * 5)
    peers = {"slow": Timings(((0.004,),) * 5), "quick": Timings(((0.001,),) * 5)}
    made = row("mlp", "median", ours, peers, limit_s=0.0005, notes="said")
    assert (made.best_peer, made.ratio, made.lost) == ("quick", pytest.approx(0.5), True)
    assert made.peers == {"slow": 4.0, "quick": 1.0}
    assert (made.ours, made.unit, made.limit) == (2.0, "ms", 0.5)
    assert made.notes == "5 blocks; said"


def test_a_row_without_peers_has_no_ratio() -> None:
    made = row("mlp", "median", Timings(((0.002,),) * 5), {})
    assert (made.best_peer, made.ratio, made.ratio_low, made.lost) == (None, None, None, False)


def test_who_is_set_aside_is_shown_but_is_not_the_best() -> None:
    ours = Timings(((0.002,),) * 5)
    peers = {"slow": Timings(((0.004,),) * 5), "quick": Timings(((0.001,),) * 5)}
    made = row("mlp", "median", ours, peers, aside={"quick"})
    assert made.peers == {"slow": 4.0, "quick": 1.0}
    assert (made.best_peer, made.ratio) == ("slow", pytest.approx(2.0))
