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
from functools import partial
from typing import Any

import torch

from grainshift.core.reading import Reading
from grainshift.core.site import Site
from grainshift.runtime.compare import relative_error
from grainshift.runtime.training import GATE_S, Watch, run_with_gradients

Run = Callable[..., Any]
_Card = tuple[int, int, int]  # arm, trial, block
_Told = tuple[str, str, float]  # of a fault: its kind, its words, the seconds that it took
_Look = Callable[[Run, tuple[Any, ...]], tuple[Any, Any]]
RING = 256
_MASK = RING - 1
_COMPARE = -1
_MOST_LANES = 64
_MOST_WAITING = 4096
_GATE_SHARE = 0.01  # of a training call's time that timing it may cost
_MOST_SKIPPED = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """A Choice raised where the baseline did not; the caller got the baseline's answer.

    `seconds` went by until it raised.
    """

    bucket: str
    arm: int
    kind: str
    reason: str
    seconds: float = 0.0


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
        "every",
        "live",
        "pick",
        "ring",
        "tail",
        "tried",
        "trip_unit_s",
        "turn",
    )

    def __init__(self, bucket: str, baseline: Run) -> None:
        self.bucket = bucket
        self.arm_runs: dict[int, Run] = {0: baseline}
        self.live: tuple[int, Run] = (0, baseline)
        self.pick: Callable[[], int] | None = None
        self.deck: deque[_Card] = deque()
        self.ring: list[tuple[int, int, float, float] | None] = [None] * RING
        self.counter = itertools.count()
        self.tail = 0
        self.trip_unit_s = math.inf
        self.tried: deque[Reading] = deque(maxlen=_MOST_WAITING)
        self.every = 1  # how many live training calls one Reading stands for
        self.turn = 0


def _alone(run: Run, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The answer to a call, which is all that a comparison should see."""
    out = run(*args)
    return out, out


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
        if lane.deck and (card := _draw(lane)) is not None:
            return self._dealt(lane, card, work, args)
        arm, run = lane.live
        if lane.pick is not None:
            arm, run = self._picked(lane, arm, run)
        clock = self._clock
        start = clock()
        try:
            out = run(*args)
        except Exception as fault:
            if not arm:
                raise
            told = (*_tell(fault), clock() - start)
        else:
            seconds = clock() - start
            number = next(lane.counter)
            lane.ring[number & _MASK] = (number, arm, work, seconds)
            if arm and seconds > work * lane.trip_unit_s:
                self._trip(lane, arm)
            return out
        return self._rescue(lane, arm, told, args)

    def train(self, bucket: str, work: float, /, *args: Any) -> Any:
        """As `call`, where gradients are wanted: a Reading covers the way there and back."""
        lane = self._lanes.get(bucket) or self._open(bucket)
        if lane is None:
            return self._baseline(*args)
        card = _draw(lane) if lane.deck else None
        if card is not None:
            arm, run = card[0], lane.arm_runs.get(card[0], self._baseline)
            if card[1] == _COMPARE:
                return self._dealt(lane, card, work, args, run_with_gradients)
        else:
            arm, run = lane.live if lane.pick is None else self._picked(lane, *lane.live)
        watch, start = self._watch(lane, card, arm, work), self._clock()
        try:
            return run(*args) if watch is None else watch.run(run, args)
        except Exception as fault:
            if not arm:
                raise
            told = (*_tell(fault), self._clock() - start)
        return self._rescue(lane, arm, told, args)

    def _watch(self, lane: _Lane, card: _Card | None, arm: int, work: float) -> Watch | None:
        """Times every dealt call, and of short live ones as many as is not felt."""
        if card is not None:
            lost = partial(lane.deck.appendleft, card)
            return Watch(self._clock, partial(self._take, lane, card, arm, work), lost)
        lane.turn += 1
        if lane.turn < lane.every:
            return None
        lane.turn = 0
        return Watch(self._clock, partial(self._take, lane, None, arm, work), None)

    def _take(self, lane: _Lane, card: _Card | None, arm: int, work: float, seconds: float) -> None:
        """Write down what a training call took, once it has gone back."""
        if card is not None:
            lane.tried.append(Reading(arm, seconds, work, card[1], card[2]))
        else:
            number = [next(lane.counter) for _ in range(lane.every)][-1]
            lane.ring[number & _MASK] = (number, arm, work, seconds)
            lane.every = min(
                max(int(GATE_S / (_GATE_SHARE * max(seconds, GATE_S))), 1), _MOST_SKIPPED
            )
        if arm and seconds > work * lane.trip_unit_s:
            self._trip(lane, arm)

    def is_stock(self, bucket: str) -> bool:
        """Does the baseline run in calls of this bucket, and nothing else?"""
        lane = self._lanes.get(bucket)
        return lane is None or (not lane.live[0] and lane.pick is None)

    def _open(self, bucket: str) -> _Lane | None:
        if len(self._lanes) >= _MOST_LANES:
            return None
        fresh = _Lane(bucket, self._baseline)
        lane = self._lanes.setdefault(bucket, fresh)
        if lane is fresh:  # else another thread was here first
            self.opened.append(bucket)
        return lane

    def _picked(self, lane: _Lane, arm: int, run: Run) -> tuple[int, Run]:
        pick = lane.pick
        try:
            arm = arm if pick is None else pick()
        except Exception as fault:  # noqa: BLE001 - an actor's fault ends its say
            lane.pick = None
            self.faults.append(Fault(lane.bucket, 0, *_tell(fault)))
            return arm, run
        picked = lane.arm_runs.get(arm)
        return lane.live if picked is None else (arm, picked)

    def _dealt(
        self, lane: _Lane, card: _Card, work: float, args: tuple[Any, ...], look: _Look = _alone
    ) -> Any:
        """Run the dealt call; where the caller's input or an interrupt ends it, deal it again."""
        try:
            return self._play(lane, card, work, args, look)
        except BaseException:
            lane.deck.appendleft(card)
            raise

    def _play(
        self, lane: _Lane, card: _Card, work: float, args: tuple[Any, ...], look: _Look
    ) -> Any:
        arm, trial, block = card
        run = lane.arm_runs.get(arm, self._baseline)
        if trial == _COMPARE:
            return self._compare(lane, arm, run, work, args, look)
        start = self._clock()
        try:
            out = run(*args)
        except Exception as fault:
            if not arm:
                raise
            told = (*_tell(fault), self._clock() - start)
        else:
            seconds = self._clock() - start
            lane.tried.append(Reading(arm, seconds, work, trial, block))
            if arm and seconds > work * lane.trip_unit_s:
                self._trip(lane, arm)
            return out
        return self._rescue(lane, arm, told, args)

    def _trip(self, lane: _Lane, arm: int) -> None:
        for _ in range(len(lane.deck)):
            try:
                card = lane.deck.popleft()
            except IndexError:  # other threads ran the rest
                break
            if card[1] == _COMPARE:  # it belongs to no paired block, and is awaited
                lane.deck.append(card)
        lane.pick = None
        if lane.live[0] == arm:
            lane.live = (0, self._baseline)
        self.trips.append((lane.bucket, arm))

    def _compare(
        self,
        lane: _Lane,
        arm: int,
        run: Run,
        work: float,
        args: tuple[Any, ...],
        look: _Look,
    ) -> Any:
        start = self._clock()
        reference, wanted = look(self._baseline, args)
        between = self._clock()
        try:
            _, seen = look(run, args)
            end = self._clock()
            error = relative_error(seen, wanted)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into a revert
            self._report(lane, arm, (*_tell(fault), self._clock() - between))
            return reference
        self.comparisons.append(
            Comparison(lane.bucket, arm, error, end - between, between - start, work)
        )
        return reference

    def _rescue(self, lane: _Lane, arm: int, told: _Told, args: tuple[Any, ...]) -> Any:
        """Answer by the baseline. If that fails too, the input is at fault, not the Choice."""
        out = self._baseline(*args)
        self._report(lane, arm, told)
        return out

    def _report(self, lane: _Lane, arm: int, told: _Told) -> None:
        lane.pick = None
        if lane.live[0] == arm:
            lane.live = (0, self._baseline)
        lane.arm_runs.pop(arm, None)  # what was dealt of it is passed over
        self.faults.append(Fault(lane.bucket, arm, *told))

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


def _draw(lane: _Lane) -> _Card | None:
    """The next dealt card whose Choice is still there."""
    while True:
        try:
            card = lane.deck.popleft()
        except IndexError:  # another thread took the last one
            return None
        if card[0] in lane.arm_runs:
            return card


def _tell(fault: Exception) -> tuple[str, str]:
    """The kind of a fault, and its words."""
    try:
        words = str(fault)
    except Exception:  # noqa: BLE001 - whoever wrote that exception, the caller needs an answer
        words = "it cannot say what"
    is_memory = isinstance(fault, (MemoryError, torch.OutOfMemoryError))
    is_memory = is_memory or "out of memory" in words.lower() or "can't allocate" in words
    return "memory" if is_memory else "exception", f"{type(fault).__name__}: {words}"[:500]
