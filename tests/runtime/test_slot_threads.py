"""Many threads in one Slot. The clock is simulated; the threads are real."""

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch
from slot_world import BUCKET, SITE

from grainshift.core.reading import Reading
from grainshift.runtime.slot import Slot

THREADS = 8
ARMS = 4


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Have the interpreter switch threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Beat:
    """A clock that is later at each look, from whichever thread."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)

    def __call__(self) -> float:
        return float(next(self._ticks))


class Crowd:
    """Threads that call a Slot until told to stop, and check every answer."""

    def __init__(self, call: Callable[[int], bool]) -> None:
        self.calls = [0] * THREADS
        self.wrong: list[object] = []
        self._call = call
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(THREADS)]

    def __enter__(self) -> "Crowd":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _run(self, number: int) -> None:
        while not self._end.is_set():
            try:
                if not self._call(number * 1_000_000 + self.calls[number]):
                    self.wrong.append(number)
            except Exception as fault:  # noqa: BLE001 - told to the test
                self.wrong.append(fault)
            self.calls[number] += 1


def until(crowd: Crowd, more: int) -> None:
    """Wait until the crowd made so many more calls."""
    goal = sum(crowd.calls) + more
    while sum(crowd.calls) < goal:
        time.sleep(0.0005)


def test_every_output_is_right_and_no_trial_reading_is_lost_while_choices_swap() -> None:
    slot = Slot(SITE, lambda x: x + 1.0, Beat())
    slot.call(BUCKET, 1.0, torch.zeros(1))
    for arm in range(1, ARMS):
        slot.put(BUCKET, arm, lambda x: 1.0 + x)
    slot.drain()
    seen: list[Reading] = []
    dealt: Counter[tuple[int, int, int]] = Counter()
    live_calls = 0

    def fetch() -> None:
        nonlocal live_calls
        for sample in slot.drain():
            seen.extend(reading for reading in sample.readings if reading.trial)
            live_calls += sample.calls

    def call(number: int) -> bool:
        return bool(slot.call(BUCKET, 1.0, torch.tensor([float(number)])).item() == number + 1.0)

    with Crowd(call) as crowd:
        for swap in range(1000):
            slot.swap(BUCKET, swap % ARMS)
            if swap % 5 == 0:
                order = (0, swap % ARMS, swap % ARMS, 0)
                slot.deal(BUCKET, swap + 1, order, range(2))
                dealt.update((swap + 1, block, arm) for block in range(2) for arm in order)
            if swap % 50 == 0:
                slot.compare(BUCKET, 1 + swap % 3)
            if swap % 7 == 0:
                fetch()
            if swap % 10 == 0:
                until(crowd, 3)
        while slot._lanes[BUCKET].deck:
            time.sleep(0.0005)
    fetch()
    assert crowd.wrong == []
    assert Counter((r.trial, r.block, r.arm) for r in seen) == dealt
    assert len(slot.comparisons) == 20
    assert all(told.error_ratio == 0.0 for told in slot.comparisons)
    assert live_calls == sum(crowd.calls) - len(seen) - len(slot.comparisons)


def test_choices_that_break_while_threads_call_never_show() -> None:
    slot = Slot(SITE, lambda x: x + 1.0, Beat())
    slot.call(BUCKET, 1.0, torch.zeros(1))

    def breaks(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("it broke")

    def call(number: int) -> bool:
        return bool(slot.call(BUCKET, 1.0, torch.tensor([float(number)])).item() == number + 1.0)

    with Crowd(call) as crowd:
        for turn in range(60):
            slot.put(BUCKET, 1, breaks)
            slot.let_pick(BUCKET, (lambda: 1) if turn % 3 == 0 else None)
            slot.deal(BUCKET, turn + 1, (0, 1, 1, 0), range(1))
            slot.swap(BUCKET, turn % 2)
            until(crowd, 10)
            slot.take(BUCKET, 1)
            slot.drain()
    assert crowd.wrong == []
    assert {fault.arm for fault in slot.faults} == {1}
    assert len(slot.faults) >= 30


def test_a_bucket_is_opened_once_however_many_threads_meet_in_it() -> None:
    slot = Slot(SITE, lambda x: x, Beat())
    for round_ in range(30):
        gate = threading.Barrier(THREADS)

        def enter(bucket: str = f"bucket {round_}", gate: threading.Barrier = gate) -> None:
            gate.wait()
            slot.call(bucket, 1.0, torch.zeros(1))

        threads = [threading.Thread(target=enter) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(slot.opened) == sorted(f"bucket {n}" for n in range(30))
    assert all(sample.calls == THREADS for sample in slot.drain())


def test_trips_in_many_threads_at_once_end_at_the_baseline() -> None:
    slot = Slot(SITE, lambda x: x + 1.0, Beat())
    slot.call(BUCKET, 1.0, torch.zeros(1))
    slot.put(BUCKET, 1, lambda x: x + 1.0)
    slot.trip_at(BUCKET, 0.0)  # every run is too long

    def call(number: int) -> bool:
        return bool(slot.call(BUCKET, 1.0, torch.tensor([float(number)])).item() == number + 1.0)

    with Crowd(call) as crowd:
        for turn in range(100):
            slot.deal(BUCKET, turn + 1, (0, 1, 1, 0), range(4))
            slot.compare(BUCKET, 1)
            slot.swap(BUCKET, 1)
            until(crowd, 20)
            slot.drain()
        while slot._lanes[BUCKET].deck:
            time.sleep(0.0005)
    assert crowd.wrong == []
    assert len(slot.comparisons) == 100  # a trip takes none of them
    assert slot.trips and slot.live(BUCKET) == 0
