"""The Slot: holds the live Choice of a Site, swaps it, and times what runs. Decides nothing.

The hot path takes no lock: the live Choice of a lane is one tuple, replaced whole, and a reading
is one tuple, stored whole into a preallocated ring. Everything rarer goes through deques, whose
appends and pops are atomic.
"""

import itertools
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from grainshift.core.reading import Reading
from grainshift.core.site import Site
from grainshift.runtime.compare import relative_error

Run = Callable[..., Any]
RING = 256
_MASK = RING - 1
_COMPARE = -1
_MOST_LANES = 64
_MOST_WAITING = 4096


@dataclass(frozen=True, slots=True)
class Fault:
    """A Choice raised where the baseline did not; the caller got the baseline's answer."""

    bucket: str
    arm: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A Choice ran beside the baseline on one input."""

    bucket: str
    arm: int
    error_ratio: float
    choice_s: float
    baseline_s: float
    work: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What a lane did since the last drain: readings, and totals of all its live runs."""

    bucket: str
    readings: tuple[Reading, ...]
    calls: int
    live_s: float
    live_work: float


class _Lane:
    """One bucket of a Slot."""

    __slots__ = (
        "arm_runs",
        "bucket",
        "counter",
        "deck",
        "live",
        "pick",
        "ring",
        "tail",
        "tried",
        "trip_unit_s",
    )

    def __init__(self, bucket: str, baseline: Run) -> None:
        self.bucket = bucket
        self.arm_runs: dict[int, Run] = {0: baseline}
        self.live: tuple[int, Run] = (0, baseline)
        self.pick: Callable[[], int] | None = None
        self.deck: deque[tuple[int, int, int]] = deque()
        self.ring: list[tuple[int, int, float, float] | None] = [None] * RING
        self.counter = itertools.count()
        self.tail = 0
        self.trip_unit_s = math.inf
        self.tried: deque[Reading] = deque(maxlen=_MOST_WAITING)


class Slot:
    """The place in the running model that holds the live Choice of a Site, a lane a bucket."""

    def __init__(self, site: Site, baseline: Run, clock: Callable[[], float] | None = None) -> None:
        self.site = site
        self._baseline = baseline
        self._clock = clock or time.perf_counter
        self._lanes: dict[str, _Lane] = {}
        self.opened: deque[str] = deque(maxlen=_MOST_WAITING)
        self.faults: deque[Fault] = deque(maxlen=_MOST_WAITING)
        self.trips: deque[tuple[str, int]] = deque(maxlen=_MOST_WAITING)
        self.comparisons: deque[Comparison] = deque(maxlen=_MOST_WAITING)

    def call(self, bucket: str, work: float, /, *args: Any) -> Any:
        """Run the live Choice of this bucket, or the one whose turn it is."""
        lane = self._lanes.get(bucket)
        if lane is None:
            lane = self._open(bucket)
            if lane is None:
                return self._baseline(*args)
        if lane.deck:
            return self._dealt(lane, work, args)
        arm, run = lane.live
        if lane.pick is not None:
            arm = lane.pick()
            run = lane.arm_runs.get(arm, run)
        clock = self._clock
        start = clock()
        try:
            out = run(*args)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into a revert
            return self._rescue(lane, arm, fault, args)
        seconds = clock() - start
        number = next(lane.counter)
        lane.ring[number & _MASK] = (number, arm, work, seconds)
        if arm and seconds > work * lane.trip_unit_s:
            self._trip(lane, arm)
        return out

    def _open(self, bucket: str) -> _Lane | None:
        if len(self._lanes) >= _MOST_LANES:
            return None
        lane = self._lanes.setdefault(bucket, _Lane(bucket, self._baseline))
        self.opened.append(bucket)
        return lane

    def _dealt(self, lane: _Lane, work: float, args: tuple[Any, ...]) -> Any:
        """Run the dealt call: one of a paired block, or a comparison."""
        try:
            arm, trial, block = lane.deck.popleft()
        except IndexError:  # another thread took the last one
            arm, trial, block = lane.live[0], 0, 0
        run = lane.arm_runs.get(arm)
        if run is None:
            arm, run = lane.live
        if trial == _COMPARE:
            return self._compare(lane, arm, run, work, args)
        start = self._clock()
        try:
            out = run(*args)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into a revert
            return self._rescue(lane, arm, fault, args)
        seconds = self._clock() - start
        if trial:
            lane.tried.append(Reading(arm, seconds, work, trial, block))
        if arm and seconds > work * lane.trip_unit_s:
            self._trip(lane, arm)
        return out

    def _trip(self, lane: _Lane, arm: int) -> None:
        lane.deck.clear()
        if lane.live[0] == arm:
            lane.live = (0, self._baseline)
        self.trips.append((lane.bucket, arm))

    def _compare(self, lane: _Lane, arm: int, run: Run, work: float, args: tuple[Any, ...]) -> Any:
        start = self._clock()
        reference = self._baseline(*args)
        between = self._clock()
        try:
            output = run(*args)
            end = self._clock()
            error = relative_error(output, reference)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into a revert
            self._report(lane, arm, fault)
            return reference
        self.comparisons.append(
            Comparison(lane.bucket, arm, error, end - between, between - start, work)
        )
        return reference

    def _rescue(self, lane: _Lane, arm: int, fault: Exception, args: tuple[Any, ...]) -> Any:
        """Answer by the baseline. If that fails too, the input is at fault, not the Choice."""
        if arm == 0:
            raise fault
        out = self._baseline(*args)
        self._report(lane, arm, fault)
        return out

    def _report(self, lane: _Lane, arm: int, fault: Exception) -> None:
        lane.deck.clear()
        lane.pick = None
        if lane.live[0] == arm:
            lane.live = (0, self._baseline)
        lane.arm_runs.pop(arm, None)
        reason = f"{type(fault).__name__}: {fault}"
        self.faults.append(Fault(lane.bucket, arm, _kind(fault), reason[:500]))

    # What follows is called by the driver, from its own thread.

    def put(self, bucket: str, arm: int, run: Run) -> None:
        """Have a built Choice ready."""
        self._lanes[bucket].arm_runs[arm] = run

    def take(self, bucket: str, arm: int) -> None:
        """Let go of a Choice; the baseline stays."""
        lane = self._lanes[bucket]
        if arm:
            if lane.live[0] == arm:
                lane.live = (0, self._baseline)
            lane.arm_runs.pop(arm, None)

    def swap(self, bucket: str, arm: int) -> None:
        """Make a Choice the live one, if it is ready."""
        lane = self._lanes[bucket]
        run = lane.arm_runs.get(arm)
        if run is not None:
            lane.live = (arm, run)

    def let_pick(self, bucket: str, pick: Callable[[], int] | None) -> None:
        """Let an actor pick among the Choices inside each call, or end that."""
        self._lanes[bucket].pick = pick

    def deal(self, bucket: str, trial: int, order: tuple[int, ...], blocks: range) -> None:
        """Set what the next calls run, a paired block after the other."""
        deck = self._lanes[bucket].deck
        deck.extend((arm, trial, block) for block in blocks for arm in order)

    def trip_at(self, bucket: str, unit_s: float) -> None:
        """Go back to the baseline by itself when a run takes longer than this a unit of work."""
        self._lanes[bucket].trip_unit_s = unit_s

    def compare(self, bucket: str, arm: int) -> None:
        """Run a Choice beside the baseline in the next call."""
        self._lanes[bucket].deck.append((arm, _COMPARE, 0))

    def recall(self, bucket: str) -> None:
        """Take back the dealt calls that have not run."""
        self._lanes[bucket].deck.clear()

    def live(self, bucket: str) -> int:
        """The number of the live Choice."""
        return self._lanes[bucket].live[0]

    def revert_all(self) -> None:
        """Let every bucket run the baseline and nothing else, at once."""
        for lane in list(self._lanes.values()):
            lane.deck.clear()
            lane.pick = None
            lane.live = (0, self._baseline)

    def drain(self, most: int = 16) -> list[Sample]:
        """What ran since the last drain, at most `most` live readings a lane."""
        samples = (_drain(lane, most) for lane in list(self._lanes.values()))
        return [sample for sample in samples if sample is not None]


def _drain(lane: _Lane, most: int) -> Sample | None:
    fresh = sorted(cell for cell in lane.ring if cell is not None and cell[0] >= lane.tail)
    tried = [lane.tried.popleft() for _ in range(len(lane.tried))]
    if not fresh:
        return Sample(lane.bucket, tuple(tried), 0, 0.0, 0.0) if tried else None
    calls = fresh[-1][0] + 1 - lane.tail
    lane.tail = fresh[-1][0] + 1
    scale = calls / len(fresh)
    live_s = scale * sum(cell[3] for cell in fresh)
    live_work = scale * sum(cell[2] for cell in fresh)
    stride = -(-len(fresh) // most)
    readings = [Reading(arm, seconds, work) for _, arm, work, seconds in fresh[::stride]]
    return Sample(lane.bucket, (*tried, *readings), calls, live_s, live_work)


def _kind(fault: Exception) -> str:
    is_memory = isinstance(fault, (MemoryError, torch.OutOfMemoryError))
    if is_memory or "out of memory" in str(fault).lower() or "can't allocate" in str(fault):
        return "memory"
    return "exception"
