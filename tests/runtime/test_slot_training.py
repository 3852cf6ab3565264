import gc
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from slot_world import BUCKET, SITE, Clock, broken, only
from torch import Tensor

from grainshift.core.reading import Reading
from grainshift.runtime.slot import Slot


class Back(torch.autograd.Function):
    """Twice its input; the way there and the way back take time on a simulated clock."""

    @staticmethod
    def forward(
        ctx: Any, clock: Clock, seconds: tuple[float, float], slope: float, x: Tensor
    ) -> Any:
        ctx.clock, ctx.back_s, ctx.slope = clock, seconds[1], slope
        clock.now_s += seconds[0]
        return x * 2.0, x.sum(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.clock.now_s += ctx.back_s
        return None, None, None, grads[0] * ctx.slope + grads[1]


def work(clock: Clock, there_s: float, back_s: float, slope: float = 2.0) -> Callable[..., Any]:
    def run(x: Tensor, state: Any, flat: list[Tensor]) -> Any:
        return Back.apply(clock, (there_s, back_s), slope, x + flat[0])

    return run


def made(clock: Clock, *choices: Callable[..., Any]) -> Slot:
    slot = Slot(SITE, work(clock, 1.0, 3.0), clock)
    step(slot, inputs())
    assert list(slot.opened) == [BUCKET]
    slot.drain()
    for number, run in enumerate(choices, 1):
        slot.put(BUCKET, number, run)
    return slot


def inputs() -> tuple[Tensor, None, list[Tensor]]:
    return torch.ones(3, requires_grad=True), None, [torch.zeros(3, requires_grad=True)]


def step(slot: Slot, args: tuple[Tensor, None, list[Tensor]]) -> None:
    x, _, (weight,) = args
    y, total = slot.train(BUCKET, 4.0, *args)
    (y.sum() + total).backward()
    assert x.grad is not None and weight.grad is not None
    assert torch.equal(x.grad, weight.grad)


def test_a_reading_covers_the_way_there_and_the_way_back() -> None:
    clock = Clock()
    slot = made(clock, work(clock, 0.5, 0.25))
    step(slot, inputs())
    slot.swap(BUCKET, 1)
    x, _, flat = inputs()
    y, _ = slot.train(BUCKET, 4.0, x, None, flat)
    clock.now_s += 100.0  # what the rest of the model takes is not counted
    y.sum().backward()
    assert only(slot.drain()).readings == (Reading(0, 4.0, 4.0), Reading(1, 0.75, 4.0))


def test_a_call_without_a_way_back_is_not_counted_and_a_second_way_back_not_twice() -> None:
    clock = Clock()
    slot = made(clock)
    slot.train(BUCKET, 4.0, *inputs())
    y, _ = slot.train(BUCKET, 4.0, *inputs())
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert only(slot.drain()).calls == 1


def test_a_dealt_call_whose_graph_is_dropped_is_dealt_again() -> None:
    clock = Clock()
    slot = made(clock, work(clock, 0.5, 0.5))
    slot.deal(BUCKET, 9, (0, 1, 1, 0), range(1))
    for number in range(8):
        if number % 2:
            step(slot, inputs())
        else:
            slot.train(BUCKET, 4.0, *inputs())
            gc.collect()
    readings = only(slot.drain()).readings
    assert [(r.arm, r.trial, r.block) for r in readings] == [(n, 9, 0) for n in (0, 1, 1, 0)]
    assert [r.seconds for r in readings] == [4.0, 1.0, 1.0, 4.0]


def test_calls_under_way_at_once_keep_their_cards() -> None:
    clock = Clock()
    slot = made(clock, work(clock, 0.5, 0.5))
    slot.deal(BUCKET, 9, (0, 1), range(1))
    outs = [slot.train(BUCKET, 4.0, *inputs())[0] for _ in range(2)]
    for out in reversed(outs):
        out.sum().backward()
    assert [(r.arm, r.seconds) for r in only(slot.drain()).readings] == [(1, 1.0), (0, 4.0)]


@pytest.mark.parametrize(("slope", "error"), [(2.0, 0.0), (2.5, 1 / 7), (math.nan, math.inf)])
def test_a_comparison_sees_gradients_too(slope: float, error: float) -> None:
    clock = Clock()
    slot = made(clock, work(clock, 0.5, 0.25, slope))
    slot.compare(BUCKET, 1)
    args = inputs()
    step(slot, args)
    assert args[0].grad is not None and torch.equal(args[0].grad, torch.full((3,), 3.0))
    (told,) = slot.comparisons
    assert told.error_ratio == pytest.approx(error)
    assert (told.choice_s, told.baseline_s) == (0.75, 4.0)
    assert slot.drain() == []


def test_a_fault_of_a_choice_is_told_and_the_baseline_answers_with_gradients() -> None:
    clock = Clock()
    for way in ("live", "dealt", "compared"):
        slot = made(clock, broken(RuntimeError("it broke")))
        if way == "live":
            slot.swap(BUCKET, 1)
        elif way == "dealt":
            slot.deal(BUCKET, 1, (1, 1), range(1))
        else:
            slot.compare(BUCKET, 1)
        step(slot, inputs())
        step(slot, inputs())
        (fault,) = slot.faults
        assert (fault.arm, fault.reason) == (1, "RuntimeError: it broke")


def test_a_way_back_that_takes_too_long_returns_to_the_baseline() -> None:
    clock = Clock()
    slot = made(clock, work(clock, 0.5, 90.0))
    slot.trip_at(BUCKET, 3.0)
    slot.swap(BUCKET, 1)
    step(slot, inputs())
    assert list(slot.trips) == [(BUCKET, 1)] and slot.live(BUCKET) == 0


def test_an_actor_picks_in_training_too() -> None:
    clock = Clock()
    slot = made(clock, work(clock, 0.5, 0.5))
    slot.let_pick(BUCKET, lambda: 1)
    step(slot, inputs())
    assert [r.arm for r in only(slot.drain()).readings] == [1]


def test_short_calls_are_timed_now_and_then_and_all_are_counted() -> None:
    clock = Clock()
    slot = made(clock, work(clock, 1e-4, 2e-4))
    slot.swap(BUCKET, 1)
    for _ in range(101):
        step(slot, inputs())
    sample = only(slot.drain())
    assert 91 <= sample.calls <= 101
    assert len(sample.readings) <= 12
    assert sample.live_s == pytest.approx(sample.calls * 3e-4)


def test_beyond_the_last_lane_the_baseline_trains_unseen() -> None:
    clock = Clock()
    slot = made(clock)
    for number in range(100):
        x, _, flat = inputs()
        slot.train(f"bucket {number}", 1.0, x, None, flat)[0].sum().backward()
        assert x.grad is not None
    assert len(slot.opened) == 64
