"""Tells a Site's life as lines, from the Journal alone. Knows no screen."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from grainshift.core.choice import spell
from grainshift.core.errors import JournalFault
from grainshift.core.events import (
    AnyEvent,
    Built,
    Compared,
    Extended,
    Failed,
    Lost,
    Offer,
    Opened,
    Proposed,
    Read,
    Tripped,
)
from grainshift.core.instructions import (
    Admit,
    AnyInstruction,
    Build,
    Note,
    Quarantine,
    Remember,
    Swap,
)
from grainshift.core.reading import Reading
from grainshift.core.site import Named
from grainshift.journal.read import Run, entries, find_run, runs, sites
from grainshift.journal.text import Entry

_LIVE_RUNS = 10_000  # the latest, which a median is told of


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened to a Site, at a time of the tuner's clock, in one bucket."""

    at_s: float
    bucket: str
    what: str
    text: str


def story(path: Path, site_key: str, run: str | None = None) -> tuple[Line, ...]:
    """A Site's life in the run of that name, or in the latest run that knows the Site."""
    candidates = (find_run(path, run),) if run is not None else tuple(reversed(runs(path)))
    for candidate in candidates:
        if lines := tell(entries(candidate, site_key), site_key):
            return (*_cut(candidate), *lines)
    known = sorted({key for candidate in candidates for key in sites(candidate)})
    listed = ", ".join(known) if known else "none"
    raise JournalFault(f"no Site {site_key!r} in the Journal {path}; Sites known there: {listed}")


def tell(recorded: Iterable[Entry], site_key: str) -> tuple[Line, ...]:
    """The lines of one Site from a run's entries, oldest first."""
    teller = Teller(site_key)
    lines = [line for entry in recorded for line in teller.hear(entry)]
    return (*lines, *teller.end())


class Teller:
    """Tells one Site's life entry by entry, for whoever listens while the run goes on."""

    def __init__(self, site_key: str) -> None:
        self._site_key = site_key
        self._cases: dict[str, _Case] = {}

    def hear(self, entry: Entry) -> tuple[Line, ...]:
        """The lines that an entry adds."""
        event = entry.event
        lines: list[Line] = []
        bucket = _bucket(event, self._site_key)
        if bucket is not None:
            lines.extend(self._case(bucket).on_event(event))
        for done in entry.instructions:
            if done.site_key == self._site_key:
                lines.extend(self._case(done.bucket).on_instruction(event.at_s, done))
        return tuple(lines)

    def end(self) -> tuple[Line, ...]:
        """What is left to tell when no entry follows."""
        lines: list[Line] = []
        for case in self._cases.values():
            lines.extend(case.end_of_trial())
            lines.extend(case.live_runs())
        return tuple(lines)

    def _case(self, bucket: str) -> "_Case":
        return self._cases.setdefault(bucket, _Case(bucket))


def _cut(run: Run) -> tuple[Line, ...]:
    if not run.cut:
        return ()
    text = f"the first {run.cut} events of this run were rotated away; what follows is the rest"
    return (Line(0.0, "", "cut", text),)


def _bucket(event: AnyEvent, site_key: str) -> str | None:
    if isinstance(event, Opened):
        return event.bucket if event.site.key == site_key else None
    if isinstance(event, Lost):
        return "" if event.site_key == site_key else None
    if isinstance(event, Extended | Read | Proposed | Built | Compared | Failed | Tripped):
        return event.bucket if event.site_key == site_key else None
    return None


@dataclass(slots=True)
class _Case:
    """What has to be kept in mind to tell the next line of one bucket."""

    bucket: str
    parts: tuple[str, ...] = ()
    choices: list[str] = field(default_factory=list)
    hits: list[Named] = field(default_factory=list)
    live: int = 0
    calls: int = 0
    last_s: float = 0.0
    live_s: deque[float] = field(default_factory=lambda: deque(maxlen=_LIVE_RUNS))
    trial: int = 0
    trial_s: float = 0.0
    runs: list[Reading] = field(default_factory=list)

    def on_event(self, event: AnyEvent) -> Iterator[Line]:
        self.last_s = event.at_s
        match event:
            case Opened():
                self.choices, self.hits, self.parts = [], [], event.site.part_names
                yield self._offered(event.at_s, "opened", "opened with", event.offers)
            case Extended():
                yield self._offered(event.at_s, "extended", "further Choices:", event.offers)
            case Read():
                yield from self._read(event)
            case Proposed(at_s=at_s, proposal=proposal):
                text = f"{self._name(proposal.arm)}{_score(proposal.arm, proposal.scores)}"
                yield self._line(at_s, "proposed", text)
            case Built(at_s=at_s, arm=arm):
                held = f", holds {event.held_bytes:,} bytes" if event.held_bytes else ""
                text = f"{self._name(arm)} in {_time(event.build_s)}{held}"
                yield self._line(at_s, "built", text)
            case Compared():
                yield self._compared(event)
            case Failed(at_s=at_s, arm=arm, kind=kind, reason=reason):
                yield self._line(at_s, "failed", f"{self._name(arm)} ({kind}): {reason}")
            case Tripped(at_s=at_s, arm=arm):
                text = f"{self._name(arm)} took too long: the baseline runs until it is measured"
                yield self._line(at_s, "tripped", text)
            case Lost():
                yield self._line(event.at_s, "lost", "went stale: the Program changed under it")

    def on_instruction(self, at_s: float, done: AnyInstruction) -> Iterator[Line]:
        self.last_s = at_s
        if not isinstance(done, Swap | Quarantine | Remember | Note | Build | Admit):
            return
        yield from self.end_of_trial()
        match done:
            case Swap(arm=arm, reason=reason):
                yield from self.live_runs()
                what = "reverted" if arm == 0 else "swapped"
                moved = f"from {self._name(self.live)} to {self._name(arm)}: {reason}"
                if arm == self.live:
                    what, moved = "resumed", f"{self._name(arm)}: {reason}"
                self.live = arm
                yield self._line(at_s, what, moved)
            case Quarantine(arm=arm, reason=reason):
                yield self._line(at_s, "quarantined", f"{self._name(arm)}: {reason}")
            case Remember(arm=arm, log_gain=gain, blocks=blocks):
                text = f"{self._name(arm)}: log gain {gain:+.3f} in {blocks} blocks"
                yield self._line(at_s, "remembered", text)
            case Note(reason=reason):
                yield self._line(at_s, "noted", reason)
            case Build(arm=arm):
                yield self._line(at_s, "building", self._name(arm))
            case Admit(arms=arms):
                yield self._line(at_s, "admitted", ", ".join(map(self._name, arms)))

    def end_of_trial(self) -> Iterator[Line]:
        runs, self.runs = self.runs, []
        if not runs:
            return
        blocks = len({run.block for run in runs})
        medians = {
            arm: median(run.unit_s for run in runs if run.arm == arm)
            for arm in dict.fromkeys(run.arm for run in runs)
        }
        parts = (f"{self._name(arm)} {_time(unit_s)}" for arm, unit_s in sorted(medians.items()))
        text = f"trial {self.trial}, {blocks} blocks, {len(runs)} runs: {', '.join(parts)} a unit"
        yield self._line(self.trial_s, "tried", text)

    def live_runs(self) -> Iterator[Line]:
        seen, calls = list(self.live_s), self.calls
        self.live_s.clear()
        self.calls = 0
        if calls and seen:
            text = f"{self._name(self.live)} for {calls} calls, {_time(median(seen))} a unit"
            yield self._line(self.last_s, "ran", f"{text}{self._hits()}")

    def _read(self, event: Read) -> Iterator[Line]:
        self.calls += event.calls
        for reading in event.readings:
            if reading.trial == 0:
                self.live_s.append(reading.unit_s)
                continue
            if reading.trial != self.trial:
                yield from self.end_of_trial()
                self.trial = reading.trial
            self.runs.append(reading)
            self.trial_s = event.at_s

    def _offered(self, at_s: float, what: str, text: str, offers: tuple[Offer, ...]) -> Line:
        names = [spell(offer.choice, self.parts) for offer in offers]
        self.choices.extend(names)
        self.hits.extend(offer.forecast.hits for offer in offers)
        return self._line(at_s, what, f"{text} {', '.join(names)}")

    def _compared(self, event: Compared) -> Line:
        text = (
            f"{self._name(event.arm)}: error {event.error_ratio:.2g},"
            f" {_time(event.choice_s)} beside {_time(event.baseline_s)}"
        )
        return self._line(event.at_s, "compared", text)

    def _name(self, arm: int) -> str:
        return self.choices[arm] if 0 <= arm < len(self.choices) else f"Choice {arm}"

    def _hits(self) -> str:
        hits = self.hits[self.live] if self.live < len(self.hits) else ()
        said = ", ".join(f"{name} {ratio:.0%}" for name, ratio in hits)
        return f"; modelled cache hits {said}" if said else ""

    def _line(self, at_s: float, what: str, text: str) -> Line:
        return Line(at_s, self.bucket, what, text)


def _score(arm: int, scores: tuple[float, ...]) -> str:
    return f", scored {scores[arm]:+.3g}" if arm < len(scores) else ""


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
