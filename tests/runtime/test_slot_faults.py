import gc
import weakref
from typing import Any

import pytest
import torch
from slot_world import BUCKET, Clock, broken, make, only

from grainshift.runtime.slot import Slot

X = torch.tensor([3.0])


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


FAULTS = [
    (RuntimeError("it broke"), "exception", "RuntimeError: it broke"),
    (MemoryError("all gone"), "memory", "MemoryError: all gone"),
    (torch.OutOfMemoryError("none"), "memory", "OutOfMemoryError: none"),
    (
        RuntimeError("CUDA Out Of Memory. Tried"),
        "memory",
        "RuntimeError: CUDA Out Of Memory. Tried",
    ),
    (
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        "memory",
        "RuntimeError: DefaultCPUAllocator: can't allocate memory",
    ),
    (Mute(), "exception", "Mute: it cannot say what"),
    (StopIteration(3), "exception", "StopIteration: 3"),
]


def arrange(slot: Slot, way: str) -> None:
    """Have Choice 1 run in the next call."""
    if way == "live":
        slot.swap(BUCKET, 1)
    elif way == "picked":
        slot.let_pick(BUCKET, lambda: 1)
    elif way == "dealt":
        slot.deal(BUCKET, 1, (1, 0, 0, 1), range(2))
    else:
        slot.compare(BUCKET, 1)


WAYS = ["live", "picked", "dealt", "compared"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("raised", "kind", "reason"), FAULTS)
def test_a_fault_of_a_choice_is_told_and_the_baseline_answers(
    way: str, raised: Exception, kind: str, reason: str
) -> None:
    slot = make(Clock())
    slot.put(BUCKET, 1, broken(raised))
    arrange(slot, way)
    for _ in range(8):
        assert slot.call(BUCKET, 1.0, X).item() == 3.0
    (fault,) = slot.faults
    assert (fault.bucket, fault.arm, fault.kind, fault.reason) == (BUCKET, 1, kind, reason)
    assert slot.live(BUCKET) == 0
    slot.swap(BUCKET, 1)  # it is gone
    assert slot.live(BUCKET) == 0


@pytest.mark.parametrize("way", WAYS)
def test_when_the_baseline_raises_too_the_user_gets_their_own_exception(way: str) -> None:
    clock = Clock()
    own = KeyError("the user's")
    slot = make(clock)
    slot._lanes[BUCKET].arm_runs[0] = slot._baseline = broken(own)
    slot.put(BUCKET, 1, broken(RuntimeError("ours")))
    arrange(slot, way)
    with pytest.raises(KeyError) as caught:
        slot.call(BUCKET, 1.0, X)
    assert caught.value is own
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert not slot.faults
    assert slot.drain() == []


def test_the_baselines_own_exception_passes_through_untouched() -> None:
    clock = Clock()
    own = ValueError("the user's")
    slot = make(clock)
    slot._lanes[BUCKET].live = (0, broken(own))
    with pytest.raises(ValueError) as caught:
        slot.call(BUCKET, 1.0, X)
    assert caught.value is own and own.__context__ is None
    assert not slot.faults and slot.drain() == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_passes_through_and_blames_nobody(way: str, interrupt: Any) -> None:
    clock = Clock()
    slot = make(clock)
    slot.put(BUCKET, 1, broken(interrupt()))
    arrange(slot, way)
    with pytest.raises(interrupt):
        slot.call(BUCKET, 1.0, X)
    assert not slot.faults
    assert slot.drain() == []
    if way == "live":
        assert slot.live(BUCKET) == 1


class Moody:
    """A Choice that fails the way it is told, and else answers on the clock."""

    def __init__(self, clock: Clock) -> None:
        self.run = clock.tick(1.0)
        self.fault: BaseException | None = None

    def __call__(self, *args: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        return self.run(*args)


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), ValueError("a wrong input")])
def test_a_dealt_block_is_whole_although_calls_of_it_were_the_users_fault(
    fault: BaseException,
) -> None:
    clock = Clock()
    baseline = Moody(clock)
    slot = Slot(make(clock).site, baseline, clock)
    slot.call(BUCKET, 1.0, X)
    slot.put(BUCKET, 1, baseline)
    slot.drain()
    slot.deal(BUCKET, 1, (0, 1, 1, 0), range(2))
    slot.compare(BUCKET, 1)
    for number in range(18):
        baseline.fault = fault if number % 2 else None
        try:
            slot.call(BUCKET, 1.0, X)
        except (KeyboardInterrupt, ValueError):
            assert number % 2
    baseline.fault = None
    trial = [(r.arm, r.block) for r in only(slot.drain()).readings if r.trial]
    assert trial == [(arm, block) for block in (0, 1) for arm in (0, 1, 1, 0)]
    assert len(slot.comparisons) == 1 and not slot.faults


def test_a_fault_of_one_choice_leaves_the_trial_of_another_whole() -> None:
    clock = Clock()
    slot = make(clock, 0.5)
    slot.put(BUCKET, 2, broken(RuntimeError("late")))
    slot.deal(BUCKET, 1, (0, 1, 1, 0), range(1))
    slot._report(slot._lanes[BUCKET], 2, ("exception", "late"))  # a call that was under way
    for _ in range(4):
        slot.call(BUCKET, 1.0, X)
    assert [r.arm for r in only(slot.drain()).readings] == [0, 1, 1, 0]


def test_faults_nobody_fetches_are_bounded() -> None:
    slot = make(Clock())
    for _ in range(5000):
        slot.put(BUCKET, 1, broken(RuntimeError("x" * 2000)))
        slot.swap(BUCKET, 1)
        slot.call(BUCKET, 1.0, X)
    assert len(slot.faults) == 4096
    assert max(len(fault.reason) for fault in slot.faults) == 500


def test_no_tensor_of_the_caller_is_kept_alive_by_a_fault() -> None:
    gc.collect()
    gc.disable()
    try:
        slot = make(Clock())
        slot.put(BUCKET, 1, int)  # int(tensor, ...) raises a TypeError of its own
        slot.swap(BUCKET, 1)
        x = torch.ones(2)
        seen = weakref.ref(x)
        slot.call(BUCKET, 1.0, x)
        assert slot.faults
        del x
        assert seen() is None
    finally:
        gc.enable()
