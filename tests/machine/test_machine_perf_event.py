import mmap
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fake_computer import two_cores

from grainshift.core.conditions import Source
from grainshift.machine import Work, find_machine
from grainshift.machine.cgroup import Groups
from grainshift.machine.gauges import cache
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment, Usage
from grainshift.machine.perf_event import _READING, Counter, Event, open_counter


def opened(event: Event) -> Counter | None:
    return open_counter(event, [threading.get_native_id()])


def may_count() -> bool:
    counter = opened(Event.PAGE_FAULTS)
    if counter is not None:
        counter.close()
    return counter is not None


KERNEL = tuple(map(int, platform.release().split(".")[:2]))
counts = pytest.mark.skipif(not may_count(), reason="this kernel lets us count nothing")


def needed(event: Event) -> Counter:
    counter = opened(event)
    assert counter is not None  # else the test is marked
    return counter


def touch_pages(pages: int) -> None:
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as block:
        for page in range(pages):
            block[page * mmap.PAGESIZE] = 1


@counts
def test_it_counts_page_faults_of_this_thread() -> None:
    counter = needed(Event.PAGE_FAULTS)
    before = counter.read()
    touch_pages(500)
    assert 1 <= counter.read() - before < 5000
    counter.close()


@counts
def test_threads_started_later_are_counted_too() -> None:
    counter = needed(Event.TASK_CLOCK_NS)
    before = counter.read()
    thread = threading.Thread(target=lambda: sum(range(300_000)))
    thread.start()
    thread.join()
    assert counter.read() - before > 100_000
    counter.close()


@counts
@pytest.mark.skipif(KERNEL < (5, 13), reason="this kernel cannot tell threads from processes")
def test_processes_started_later_are_not_ours() -> None:
    counter = needed(Event.PAGE_FAULTS)
    before = counter.read()
    subprocess.run([sys.executable, "-c", "b'x' * (64 << 20)"], check=True)
    assert counter.read() - before < 10_000  # the block alone is 16,384 pages
    counter.close()


def test_what_cannot_be_counted_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_counter(Event.PAGE_FAULTS, []) is None
    assert open_counter(Event.PAGE_FAULTS, [2**22 + 5]) is None  # no such thread
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert open_counter(Event.PAGE_FAULTS, [threading.get_native_id()]) is None


class Tap:
    """A counter whose readings a test writes, through the file that the kernel would answer by."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.counter = Counter([self._read])

    def tell(self, count: int, enabled: int = 1, running: int = 1) -> None:
        os.write(self._write, _READING.pack(count, enabled, running))


def test_counts_are_scaled_up_for_shared_counters() -> None:
    tap = Tap()
    tap.tell(10, enabled=300, running=100)
    assert tap.counter.read() == 30.0
    tap.tell(0, enabled=300, running=0)
    assert tap.counter.read() == 0.0


def ground(root: Path) -> Ground:
    computer = two_cores(root)
    machine = find_machine(proc=computer.proc, sys=computer.sys)
    computer.write(f"proc/self/task/{threading.get_native_id()}/x", "")
    return Ground(machine, Groups(), computer.proc, computer.sys, lambda: 0.0, counters=True)


def moment(at_s: float) -> Moment:
    return Moment(at_s, Usage(0.0), Work(1e12, 1e12, seconds=1.0), {})


def test_counted_figures_stand_before_modelled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taps = {Event.CACHE_REFERENCES: Tap(), Event.CACHE_MISSES: Tap()}
    monkeypatch.setattr(cache, "open_counter", lambda event, threads: taps[event].counter)
    on = ground(tmp_path)
    gauge: Gauge = cache.open_cache(on)
    for tap in taps.values():
        tap.tell(1000)
    with pytest.raises(LookupError):
        gauge.read(moment(1.0))
    misses = int(on.machine.rate("dram_bytes") / 64 / 4)
    taps[Event.CACHE_REFERENCES].tell(1000 + 10 * misses)
    taps[Event.CACHE_MISSES].tell(1000 + misses)
    figures = {figure.name: figure for figure in gauge.read(moment(2.0))}
    assert figures["cache_hit_ratio"].value == pytest.approx(0.9)
    assert figures["dram_ratio"].value == pytest.approx(0.25, rel=1e-3)
    assert figures["dram_ratio"].source is Source.MEASURED


def test_when_only_one_of_two_can_be_counted_the_figures_are_modelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = Tap()
    only = {Event.CACHE_REFERENCES: tap.counter}
    monkeypatch.setattr(cache, "open_counter", lambda event, threads: only.get(event))
    figures = cache.open_cache(ground(tmp_path)).read(moment(1.0))
    assert {figure.source for figure in figures} == {Source.MODELLED}
    assert tap.counter._fds == []  # and what was opened is let go
