"""The contracts carry all five families: each sketch ends on its best allowed Choice."""

import threading
from typing import Any

import pytest
from sketched_families import Partition, Recompute, Recurrence, Regions, Schedule
from sketched_model import Model, Tuned

from grainshift.core.choice import Choice, Exactness, plan
from grainshift.core.events import Built, Extended, Failed, Lost, Opened, Read
from grainshift.core.forecast import Limits
from grainshift.core.instructions import Build, Quarantine, Swap
from grainshift.core.settings import Settings

EAGER = Settings(dwell_s=0.0, opening_calls=4.0)


def decayed(xs: tuple[float, ...]) -> tuple[tuple[float, ...], float]:
    state, out = 0.0, []
    for x in xs:
        state = 0.5 * state + x
        out.append(state)
    return tuple(out), state


@pytest.mark.parametrize("policy", ["bandit", "ppo"])
def test_recurrence_switches_in_the_middle_of_a_sequence_and_hands_the_state_over(
    policy: str,
) -> None:
    model = Model()
    tuned = Tuned(Recurrence(), model, EAGER, policy=policy)
    key = "recurrence:lstm"

    def call(number: int) -> None:
        xs = tuple(float((number * step) % 7) for step in range(1, 61))
        segment = 16 if number % 2 else 20
        assert model.places["lstm"](xs, segment) == decayed(xs)

    tuned.run(1_000, call)
    assert str(tuned.live(key)) == "unrolled(8)"
    works = {reading.work for one in tuned.events(Read) for reading in one.readings}
    assert works == {12.0, 16.0, 20.0}  # segments of several lengths, compared by the step


def test_a_switch_between_two_segments_of_one_call() -> None:
    model = Model()
    tuned = Tuned(Recurrence(), model, EAGER)
    slot, xs = tuned.slots["recurrence:lstm"], tuple(float(n) for n in range(40))
    tuned.run(300, lambda number: model.places["lstm"](xs, 8))
    ran: list[int] = []
    real = slot.call

    def call(bucket: str, work: float, /, *args: Any) -> Any:
        ran.append(slot.live(bucket))
        out = real(bucket, work, *args)
        slot.swap(bucket, 0 if slot.live(bucket) else 4)
        return out

    slot.call = call  # type: ignore[method-assign]
    tuned.undo["recurrence:lstm"]()
    tuned.family.install(model, slot.site, slot)
    assert model.places["lstm"](xs, 8) == decayed(xs)
    assert set(ran) == {0, 4}
    assert len(ran) == 5


def test_regions_are_built_elsewhere_lost_when_cut_anew_and_found_again() -> None:
    model, family = Model(), Regions()
    tuned = Tuned(family, model, EAGER)

    def call(number: int) -> None:
        x = float(number)
        for path in family.paths:
            x = model.places[path](x)
        assert x == number + len(family.paths)

    for _ in range(100):
        tuned.run(4, call)
        if tuned.workshop.waiting:
            break
    assert tuned.workshop.waiting  # cut while the first is still being built
    family.paths = ("graph.0", "graph.1")
    tuned.find()
    assert {*model.places} == {"graph.0", "graph.1"}
    tuned.run(1_500, call)
    assert str(tuned.live("regions:graph.0")) == "fusion"
    assert str(tuned.live("regions:graph.1")) == "engine"
    assert [one.site_key for one in tuned.events(Lost)] == ["regions:graph"]
    assert not [what for what in family.loaded if what.startswith("graph ")]
    family.paths = ("graph",)
    tuned.find()
    tuned.run(1_000, call)
    assert str(tuned.live("regions:graph")) == "engine"
    opened = [one.site.path for one in tuned.events(Opened)]
    assert opened == ["graph", "graph.0", "graph.1", "graph"]
    assert min(one.build_s for one in tuned.events(Built)) >= 0.5
    # what was loaded is still there; what a Site that went stale had made is gone
    live = {f"folder-{number}" for number in range(len(model.folders) + len(tuned.workshop.gone))}
    assert {*model.folders} | {*tuned.workshop.gone} == live
    assert tuned.workshop.gone


def test_partitions_run_on_workers_that_end_when_they_are_let_go() -> None:
    model, family = Model(), Partition()
    tuned = Tuned(family, model, EAGER)
    rows = tuple(float(n) for n in range(16))
    before = threading.active_count()

    def call(number: int) -> None:
        assert model.places["matmul"](rows) == tuple(2.0 * row for row in rows)

    tuned.run(1_200, call)
    live = str(tuned.live("partition:matmul"))
    assert live == "rows(even, 2)"  # the faster one gave in
    (failed,) = tuned.events(Failed)
    assert "a worker gave in" in failed.reason
    assert [one.arm for one in tuned.said(Quarantine)] == [failed.arm]
    assert family.closed == ["rows(block, 0.7, 2)"]
    assert threading.active_count() > before
    tuned.driver.detach("partition:matmul")
    model.clock.work(3.0)
    tuned.driver.pump()
    assert {*family.closed} == {*family.open_pools}
    assert threading.active_count() == before
    call(0)  # and the baseline answers


def test_recompute_decides_all_layers_at_once_under_one_limit() -> None:
    model, family = Model(), Recompute()
    tuned = Tuned(family, model, EAGER, Limits(memory_bytes=1_000))
    key = "recompute:step"
    site = tuned.slots[key].site
    assert len(site.parts) == 4

    def step(number: int) -> None:
        assert model.places["step"](1.0) == 0.99

    tuned.run(700, step)
    keep, store = Choice("keep"), Choice("store")
    assert tuned.live(key) == plan((keep, store, store, store))
    family.measured = True
    tuned.driver.extend(key, "B1")
    tuned.run(2_000, step)
    assert len(tuned.events(Extended)) == 1
    tuned.driver.extend(key, "B1")
    tuned.driver.pump()
    assert len(tuned.events(Extended)) == 1  # nothing new the second time
    # keeping all four saves most and holds 1,200 bytes; the best that fits keeps the first three
    choices = tuned.driver.choices(key, "B1")
    fits = [choice for choice in choices if family.needs_bytes(choice) <= 1_000]
    assert tuned.live(key) == min(fits, key=family.step_s) == plan((keep, keep, keep, store))
    built = {choices[one.arm] for one in tuned.said(Build)}
    assert all(family.needs_bytes(choice) <= 1_000 for choice in built)


def test_recompute_goes_back_when_memory_runs_out() -> None:
    model, family = Model(), Recompute()
    tuned = Tuned(family, model, EAGER)
    tuned.run(700, lambda number: model.places["step"](1.0))
    assert tuned.live("recompute:step") != family.plan_of(())
    tuned.senses.free_bytes = 1 << 20
    tuned.run(100, lambda number: model.places["step"](1.0))
    assert tuned.live("recompute:step") == family.plan_of(())
    assert "revert: memory" in tuned.said(Swap)[-1].reason


def schedule(error_ratio: float, limits: Limits) -> Tuned:
    model = Model()
    tuned = Tuned(Schedule(error_ratio=error_ratio), model, EAGER, limits)
    most = limits.error_ratio or 0.0

    def call(number: int) -> None:
        assert abs(model.places[""](2.0) - 6.0) <= 6.0 * most

    tuned.run(1_500, call)
    return tuned


def test_schedule_is_one_site_for_the_whole_program() -> None:
    tuned = schedule(0.004, Limits())
    assert [*tuned.slots] == ["schedule:"]
    assert tuned.live("schedule:") == Choice("chunked", (2, 64, "longest first", 2))
    offered = tuned.driver.choices("schedule:", "B1")
    assert all(choice.exactness is not Exactness.LOWER for choice in offered)


def test_schedule_takes_lower_precision_where_the_user_allows_errors() -> None:
    tuned = schedule(0.004, Limits(error_ratio=0.01))
    assert str(tuned.live("schedule:")) == "precision(bf16)"


def test_schedule_refuses_lower_precision_beyond_what_is_allowed() -> None:
    tuned = schedule(0.04, Limits(error_ratio=0.01))
    assert tuned.live("schedule:") == Choice("chunked", (2, 64, "longest first", 2))
    (out,) = tuned.said(Quarantine)
    assert "off by 0.04" in out.reason
