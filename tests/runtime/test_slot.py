import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slot_world import BUCKET, SITE, Clock, broken, make, only

from grainshift.core.reading import Reading
from grainshift.runtime.slot import RING, Slot

X = torch.tensor([3.0])


def call(slot: Slot, times: int = 1, work: float = 1.0) -> None:
    for _ in range(times):
        assert slot.call(BUCKET, work, X).item() == 3.0


def test_the_first_call_opens_a_lane_and_runs_the_baseline() -> None:
    clock = Clock()
    slot = Slot(SITE, clock.tick(2.0), clock)
    call(slot, 2, work=4.0)
    assert list(slot.opened) == [BUCKET]
    sample = only(slot.drain())
    assert (sample.bucket, sample.calls, sample.live_s, sample.live_work) == (BUCKET, 2, 4.0, 8.0)
    assert sample.readings == (Reading(0, 2.0, 4.0), Reading(0, 2.0, 4.0))
    assert slot.drain() == []


def test_swap_makes_a_ready_choice_live_and_leaves_an_absent_one() -> None:
    slot = make(Clock(), 0.5)
    slot.swap(BUCKET, 1)
    call(slot)
    slot.swap(BUCKET, 7)
    call(slot)
    assert slot.live(BUCKET) == 1
    assert {reading.arm for reading in only(slot.drain()).readings} == {1}


def test_buckets_are_apart() -> None:
    clock = Clock()
    slot = make(clock, 0.5)
    slot.swap(BUCKET, 1)
    slot.call("other", 1.0, X)
    assert (slot.live("other"), slot.live(BUCKET)) == (0, 1)
    assert list(slot.opened) == ["other"]


def test_at_most_64_lanes_and_the_rest_run_the_baseline_unseen() -> None:
    clock = Clock()
    slot = Slot(SITE, clock.tick(1.0), clock)
    for number in range(200):
        assert slot.call(f"bucket {number}", 1.0, X).item() == 3.0
    assert list(slot.opened) == [f"bucket {number}" for number in range(64)]
    assert sum(sample.calls for sample in slot.drain()) == 64
    slot.call("bucket 3", 1.0, X)
    assert [sample.bucket for sample in slot.drain()] == ["bucket 3"]


@pytest.mark.parametrize("calls", [1, 15, 16, 17, RING - 1, RING, RING + 1, 10 * RING + 3])
def test_a_lapped_ring_keeps_the_totals_and_bounds_the_readings(calls: int) -> None:
    clock = Clock()
    slot = make(clock)
    for _ in range(3):
        call(slot, calls, work=2.0)
        sample = only(slot.drain())
        assert sample.calls == calls
        assert sample.live_s == pytest.approx(calls * 1.0)
        assert sample.live_work == pytest.approx(calls * 2.0)
        assert 0 < len(sample.readings) <= min(16, calls)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=12), st.integers(1, 40))
def test_however_calls_and_drains_alternate_no_call_is_counted_twice(
    bursts: list[int], most: int
) -> None:
    slot = make(Clock())
    for burst in bursts:
        call(slot, burst)
        samples = slot.drain(most)
        assert sum(sample.calls for sample in samples) == burst
        assert sum(sample.live_s for sample in samples) == pytest.approx(burst)
        assert all(len(sample.readings) <= most for sample in samples)


def test_dealt_blocks_run_in_order_and_each_reading_says_its_place() -> None:
    slot = make(Clock(), 0.5, 0.25)
    slot.swap(BUCKET, 1)
    slot.deal(BUCKET, 9, (0, 1, 2, 2, 1, 0), range(4, 6))
    call(slot, 15)
    sample = only(slot.drain())
    trial = [(r.arm, r.seconds, r.block) for r in sample.readings if r.trial == 9]
    seconds = {0: 1.0, 1: 0.5, 2: 0.25}
    assert trial == [(arm, seconds[arm], block) for block in (4, 5) for arm in (0, 1, 2, 2, 1, 0)]
    assert sample.calls == 3  # only the live ones
    assert sample.live_s == pytest.approx(1.5)


def test_recall_takes_back_what_has_not_run() -> None:
    slot = make(Clock(), 0.5)
    slot.deal(BUCKET, 1, (0, 1, 1, 0), range(3))
    call(slot, 2)
    slot.recall(BUCKET)
    call(slot, 2)
    sample = only(slot.drain())
    assert [r.arm for r in sample.readings if r.trial] == [0, 1]
    assert sample.calls == 2


def test_a_dealt_choice_that_was_let_go_is_passed_over() -> None:
    slot = make(Clock(), 0.5, 0.25)
    slot.deal(BUCKET, 1, (0, 1, 1, 0), range(2))
    slot.compare(BUCKET, 1)
    slot.take(BUCKET, 1)
    call(slot, 6)
    sample = only(slot.drain())
    assert [r.arm for r in sample.readings if r.trial] == [0, 0, 0, 0]
    assert sample.calls == 2  # live runs count although cards lay there
    assert not slot.comparisons and not slot.faults


def test_taking_the_live_choice_returns_to_the_baseline_which_stays() -> None:
    slot = make(Clock(), 0.5)
    slot.swap(BUCKET, 1)
    slot.take(BUCKET, 1)
    slot.take(BUCKET, 0)
    assert slot.live(BUCKET) == 0
    slot.swap(BUCKET, 0)
    call(slot)


def test_a_comparison_answers_the_baseline_and_tells_error_and_times() -> None:
    clock = Clock()
    slot = make(clock)
    slot.put(BUCKET, 1, clock.tick(0.25, answer=torch.tensor([4.5])))
    slot.compare(BUCKET, 1)
    call(slot, work=5.0)
    (told,) = slot.comparisons
    assert (told.bucket, told.arm, told.error_ratio) == (BUCKET, 1, pytest.approx(0.5))
    assert (told.choice_s, told.baseline_s, told.work) == (0.25, 1.0, 5.0)
    assert slot.drain() == []  # neither a live run nor a trial's


@pytest.mark.parametrize("wrong", [math.nan, math.inf, torch.zeros(2), "text", [X], object()])
def test_a_comparison_with_strange_outputs_never_reaches_the_caller(wrong: object) -> None:
    clock = Clock()
    slot = make(clock)
    answer = torch.tensor([wrong]) if isinstance(wrong, float) else wrong
    slot.put(BUCKET, 1, clock.tick(0.25, answer=answer))
    slot.compare(BUCKET, 1)
    call(slot)
    assert slot.comparisons[0].error_ratio == math.inf


def test_a_live_run_that_takes_too_long_returns_to_the_baseline_by_itself() -> None:
    slot = make(Clock(), 0.5, 9.0)
    slot.trip_at(BUCKET, 3.0)
    slot.swap(BUCKET, 2)
    call(slot, 3, work=1.0)
    assert list(slot.trips) == [(BUCKET, 2)]
    assert slot.live(BUCKET) == 0
    slot.swap(BUCKET, 2)
    call(slot, work=3.0)  # 9 seconds for 3 units is borne
    assert len(slot.trips) == 1 and slot.live(BUCKET) == 2


def test_the_baseline_never_trips() -> None:
    slot = make(Clock(), baseline_s=50.0)
    slot.trip_at(BUCKET, 0.1)
    slot.deal(BUCKET, 1, (0, 0), range(1))
    call(slot, 5)
    assert not slot.trips


def test_a_trial_that_trips_is_over_but_an_awaited_comparison_is_not() -> None:
    slot = make(Clock(), 0.5, 9.0)
    slot.trip_at(BUCKET, 3.0)
    slot.swap(BUCKET, 1)
    slot.deal(BUCKET, 1, (2, 0, 0, 2), range(2))
    slot.compare(BUCKET, 1)
    call(slot, 3)
    assert list(slot.trips) == [(BUCKET, 2)]
    assert slot.live(BUCKET) == 1  # it was not at fault
    assert [told.arm for told in slot.comparisons] == [1]
    sample = only(slot.drain())
    assert [r.arm for r in sample.readings if r.trial] == [2]
    assert sample.calls == 1


def test_an_actor_picks_inside_the_call_until_it_is_ended() -> None:
    slot = make(Clock(), 0.5, 0.25)
    turn = itertools.cycle([0, 1, 2, 77])  # one of them is not there
    slot.let_pick(BUCKET, lambda: next(turn))
    call(slot, 4)
    assert [r.arm for r in only(slot.drain()).readings] == [0, 1, 2, 0]
    slot.let_pick(BUCKET, None)
    call(slot, 2)
    assert [r.arm for r in only(slot.drain()).readings] == [0, 0]


def test_an_actor_that_raises_loses_its_say_and_the_caller_notices_nothing() -> None:
    slot = make(Clock(), 0.5)
    slot.swap(BUCKET, 1)
    slot.let_pick(BUCKET, broken(RuntimeError("lost")))
    call(slot, 3)
    (fault,) = slot.faults
    assert (fault.arm, fault.kind, fault.reason) == (0, "exception", "RuntimeError: lost")
    assert [r.arm for r in only(slot.drain()).readings] == [1, 1, 1]


def test_an_actor_that_picks_what_trips_loses_its_say() -> None:
    slot = make(Clock(), 9.0)
    slot.trip_at(BUCKET, 3.0)
    slot.let_pick(BUCKET, lambda: 1)
    call(slot, 3)
    assert list(slot.trips) == [(BUCKET, 1)]
    assert [r.arm for r in only(slot.drain()).readings] == [1, 0, 0]


def test_revert_all_returns_every_bucket_at_once() -> None:
    clock = Clock()
    slot = make(clock, 0.5)
    slot.call("other", 1.0, X)
    slot.put("other", 1, clock.tick(0.5))
    for bucket in (BUCKET, "other"):
        slot.swap(bucket, 1)
        slot.deal(bucket, 1, (1, 1), range(3))
        slot.let_pick(bucket, lambda: 1)
    slot.revert_all()
    for bucket in (BUCKET, "other"):
        slot.call(bucket, 1.0, X)
        assert slot.live(bucket) == 0
    assert {r.arm for sample in slot.drain() for r in sample.readings if not r.trial} == {0}
