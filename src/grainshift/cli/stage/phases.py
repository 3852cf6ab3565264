"""Takes the models through the demo's phases and keeps what was measured. Knows no screen."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from statistics import median

from grainshift.api.reporting import Report
from grainshift.api.session import Session
from grainshift.cli.stage.feed import Counts, Feed, Told
from grainshift.cli.stage.pairs import Block, Contest
from grainshift.core.conditions import Conditions
from grainshift.tuner import rules
from grainshift.tuner.state import State

LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the demo, and how it is entered: by putting load on the machine, say."""

    name: str
    title: str
    seconds: float
    enter: Callable[[], AbstractContextManager[object]]


@dataclass(slots=True)
class Record:
    """What came of a phase so far.

    `blocks` carry the time at which each ended; `budget_s` is None once exploring is ended.
    """

    phase: Phase
    begin_s: float
    blocks: list[tuple[float, Block]] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    budget_s: float | None = 0.0
    report: Report | None = None
    swaps: list[Told] = field(default_factory=list)

    @property
    def late(self) -> list[Block]:
        """The blocks of the second half of the phase, when its first surprise is over."""
        half_s = self.begin_s + self.phase.seconds / 2.0
        return [block for at_s, block in self.blocks if at_s >= half_s]

    @property
    def all(self) -> list[Block]:
        """Every block of the phase."""
        return [block for _, block in self.blocks]

    def figure(self, name: str) -> float | None:
        """The median of one of the Conditions; None where the machine does not tell it."""
        seen = [
            figure.value
            for conditions in self.conditions
            for figure in conditions.figures
            if figure.name == name
        ]
        return median(seen) if seen else None


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to see at one moment."""

    at_s: float
    number: int
    of: int
    record: Record
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Tour:
    """The way through all phases: measure, follow and look, in one thread."""

    contest: Contest
    session: Session
    feed: Feed
    clock: Callable[[], float]

    def go(self, phases: Sequence[Phase], records: list[Record]) -> Iterator[Look]:
        """Each look in turn; the records are filled as it goes, so that they outlast an end."""
        blocks = self.contest.blocks()
        for number, phase in enumerate(phases, 1):
            with ExitStack() as stack:
                stack.enter_context(phase.enter())
                record = Record(phase, self.clock())
                records.append(record)
                for told in self._phase(record, blocks):
                    yield Look(self.clock(), number, len(phases), record, told)

    def _phase(self, record: Record, blocks: Iterator[Block]) -> Iterator[tuple[Told, ...]]:
        before, end_s = self.feed.counts, record.begin_s + record.phase.seconds
        look_s = record.begin_s
        while (at_s := self.clock()) < end_s:
            if at_s >= look_s:
                look_s = at_s + LOOK_S
                yield self._look(record, before)
            block = next(blocks)
            record.blocks.append((self.clock(), block))
        yield self._look(record, before)

    def _look(self, record: Record, before: Counts) -> tuple[Told, ...]:
        told = tuple(self.feed.poll())
        record.swaps.extend(one for one in told if one.line.what in ("swapped", "reverted"))
        record.counts = self.feed.counts.minus(before)
        record.report = self.session.report()
        state = self.session.driver.state
        record.budget_s = _budget_s(state)
        conditions = state.conditions
        if conditions.at_s > record.begin_s and conditions not in record.conditions[-1:]:
            record.conditions.append(conditions)
        return told


def _budget_s(state: State) -> float | None:
    """What exploring may cost now in all Sites together; None when it was ended for good."""
    if state.frozen:
        return None
    known = [case for case in state.cases.values() if case.baseline.count]
    return sum(max(rules.budget_s(state, case), 0.0) for case in known)


def stock_alone(contest: Contest, seconds: float, clock: Callable[[], float]) -> list[float]:
    """What each call takes of the stock model by itself, three at the least."""
    until_s, seen = clock() + seconds, []
    for call_s in contest.alone():
        seen.append(call_s)
        if clock() >= until_s and len(seen) >= 3:
            break
    return seen
