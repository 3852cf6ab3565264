"""Profiling on a simulated machine: what comes out is what the machine was made to cost."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.family import Runner
from grainshift.core.machine import Cache, Machine
from grainshift.core.proposal import state_of
from grainshift.core.trace import Trace
from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import uses_operators
from grainshift.families.recurrence.profile import LOADS, Stand, Visit, grid, profile
from grainshift.families.recurrence.shape import GATES, Shape
from grainshift.machine.cache_model import Work

MACHINE = Machine("m", "a processor", (0, 1), 2.0, 1 << 30, (Cache(2, 1 << 20, 1),))
SMALL = Shape("GRU", 5, 8, 1, 1, True)
VISITS = (
    Visit(SMALL, ((4, 4), (1, 64))),
    Visit(Shape("LSTM", 5, 8, 2, 1, True), ((4, 4),), left_out=True),
)
HELD = 12_345


@dataclass
class World:
    """A clock, and a family whose Choices take `cost_s` of it; a busy core makes stock slower."""

    now_s: float = 0.0
    busy: int = 0
    ran: list[tuple[str, int]] = field(default_factory=list)
    told: list[Work | None] = field(default_factory=list)
    inner: Recurrence = field(default_factory=Recurrence)
    step_s: float = 1e-3
    hopeless: str = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def build(self, model: Any, site: Any, bucket: str, choice: Choice, folder: str) -> Runner:
        def run(x_TBI: torch.Tensor, state: Any) -> None:
            assert x_TBI.shape[2] == 5 and not torch.is_grad_enabled()
            self.ran.append((str(choice), self.busy))
            self.now_s += self.cost_s(choice) * (1.0 + 1e-3 * self.now_s)  # the clock sinks

        return Runner(run, HELD)

    def cost_s(self, choice: Choice) -> float:
        if choice == Choice("stock"):
            return self.step_s * (1 + self.busy)
        if str(choice) == self.hopeless:
            return self.step_s * 20.0
        return self.step_s * (0.5 if choice.name == "rolled" else 0.8)

    def restart(self) -> float:
        return self.now_s

    def sample(self, at_s: float) -> Conditions:
        return Conditions(at_s, (Figure("cpu_others", 0.5 * self.busy),))

    def tell(self, work: Work | None) -> None:
        self.told.append(work)

    @contextmanager
    def burden(self, cores: int) -> Iterator[None]:
        self.busy = cores
        yield
        self.busy = 0

    @property
    def stand(self) -> Stand:
        return Stand(self, MACHINE, self, lambda: self.now_s, self.burden)


def profiled(world: World, seconds: float = 1e6, seed: int = 0) -> list[Trace]:
    return list(profile(world.stand, VISITS, seconds, seed))


def test_each_layer_is_run_in_its_shapes_under_every_load() -> None:
    found = profiled(World())
    assert [(one.architecture[:4], one.bucket, one.load, one.left_out) for one in found] == [
        ("GRU.", "B4.T4", "calm", ""),
        ("GRU.", "B1.T64", "calm", "shape"),
        ("GRU.", "B4.T4", "busy", ""),
        ("GRU.", "B1.T64", "busy", "shape"),
        ("GRU.", "B4.T4", "crowded", "load"),
        ("LSTM", "B4.T4", "calm", "architecture"),
        ("LSTM", "B4.T4", "busy", "architecture"),
        ("LSTM", "B4.T4", "crowded", "architecture"),
    ]


def test_gains_are_of_the_baseline_beside_them_under_that_load() -> None:
    world = World()
    for one in profiled(world):
        busy = next(load.busy_cores for load in LOADS if load.name == one.load)
        assert one.costs[0].choice == Choice("stock") and set(one.costs[0].gains) == {0.0}
        for cost in one.costs[1:]:
            share = 0.5 if cost.choice.name == "rolled" else 0.8
            assert cost.gain == pytest.approx(math.log((1 + busy) / share), abs=0.02)
            assert 3 <= len(cost.gains) <= 9
        assert one.conditions.value("cpu_others") == 0.5 * busy
    assert world.busy == 0 and None not in world.told


def test_every_offered_choice_is_in_a_trace_lower_precision_too(kernels: Recurrence) -> None:
    world = World(inner=kernels)
    first, *_ = profiled(world)
    names = {str(choice) for choice in first.choices}
    assert {"stock", "rolled", "rolled(solo)", "unrolled(4)", "unrolled(4, solo, bf16)"} <= names
    assert not any(map(uses_operators, first.choices[1:]))
    assert names == {name for name, _ in world.ran[: 4 * len(names)]}


def test_a_trace_says_what_a_policy_will_see() -> None:
    first, *_ = profiled(World())
    assert dict(first.features) == {**dict(SMALL.features), "batch": 4.0, "steps": 4.0}
    assert len(state_of(first.features, first.conditions)) == len(first.features) + 11
    assert all(cost.extra_bytes >= HELD for cost in first.costs)
    assert all(0.0 <= cost.hit_ratio <= 1.0 for cost in first.costs)
    assert first.costs[0].expected_gain == 0.0 != first.costs[1].expected_gain


def test_it_ends_when_the_time_is_over_after_a_whole_trace() -> None:
    whole = World()
    all_of_them = profiled(whole)
    world = World()
    some = profiled(world, seconds=0.4 * whole.now_s)
    assert 0 < len(some) < len(all_of_them) and some == all_of_them[: len(some)]
    assert profiled(World(), seconds=0.0) == []


def test_equal_seeds_run_in_equal_order_and_others_do_not() -> None:
    first, again, other = World(), World(), World()
    for world, seed in ((first, 0), (again, 0), (other, 1)):
        profiled(world, seed=seed)
    assert first.ran == again.ran != other.ran


def test_slow_choices_take_fewer_rounds_and_fast_calls_are_repeated() -> None:
    slow, fast = World(step_s=0.5), World(step_s=1e-6)
    assert {len(cost.gains) for one in profiled(slow) for cost in one.costs} == {1}
    assert {len(cost.gains) for one in profiled(fast) for cost in one.costs} == {9}
    assert len(fast.ran) > 20 * len(slow.ran)


def test_what_is_hopelessly_behind_runs_no_more() -> None:
    first, *_ = profiled(World(hopeless="unrolled(2, operators)"))
    readings = {str(cost.choice): len(cost.gains) for cost in first.costs}
    assert readings.pop("unrolled(2, operators)") == 2
    assert len(readings) > 3 and set(readings.values()) == {9}


def test_the_grid_holds_every_size_and_leaves_some_layers_out() -> None:
    visits = grid()
    shapes = [visit.shape for visit in visits]
    assert visits == grid(0) != grid(1)
    assert len(set(shapes)) == len(shapes) == 180
    assert {shape.kind for shape in shapes} == set(GATES) - {"RNN_RELU"}
    assert {shape.hidden for shape in shapes} == {64, 128, 256, 512, 1024}
    assert 0.15 < sum(visit.left_out for visit in visits) / len(visits) < 0.25
    assert any(visit.left_out for visit in visits[:3])  # a short profile has a test too
    assert {call for visit in visits for call in visit.calls} >= {(1, 1), (1, 1024), (64, 64)}
    assert all(visit.calls for visit in visits)
