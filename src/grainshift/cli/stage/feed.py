"""Follows a run through the Journal while it goes on. Knows no model and no screen."""

from dataclasses import dataclass, replace

from grainshift.core.errors import JournalFault
from grainshift.core.events import AnyEvent, Compared, Opened, Proposed, Read
from grainshift.core.instructions import Deal, Swap
from grainshift.journal import Entry, Journal, Line, Run, Teller, entries, find_run


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted so far.

    runs: of all Sites; trial_runs: those of another Choice than the live one, in a trial;
    probe_runs: those of the baseline that measure what is live anew; trials: begun; remembered:
    Choices of which earlier runs left experience.
    """

    runs: int = 0
    trial_runs: int = 0
    probe_runs: int = 0
    trials: int = 0
    remembered: int = 0

    def minus(self, earlier: "Counts") -> "Counts":
        """What was added since."""
        return Counts(
            self.runs - earlier.runs,
            self.trial_runs - earlier.trial_runs,
            self.probe_runs - earlier.probe_runs,
            self.trials - earlier.trials,
            self.remembered - earlier.remembered,
        )


@dataclass(frozen=True, slots=True)
class Told:
    """One line of a Site's story."""

    site_key: str
    line: Line


@dataclass(frozen=True, slots=True)
class _Dealt:
    """What was live when a trial was dealt, and whether a further Choice is in it."""

    live: int
    explores: bool


class Feed:
    """What the Journal of a run tells, as it comes."""

    def __init__(self, journal: Journal) -> None:
        self.counts = Counts()
        self.fault = ""
        self._journal = journal
        self._run: Run | None = None
        self._next = 0
        self._tellers: dict[str, Teller] = {}
        self._live: dict[tuple[str, str], int] = {}
        self._dealt_at: dict[tuple[str, str, int], _Dealt] = {}

    def poll(self) -> list[Told]:
        """What is new since the last poll; nothing while the Journal cannot be read."""
        told: list[Told] = []
        try:
            self._run = self._run or find_run(self._journal.path, self._journal.header.run)
            for entry in entries(self._run, first=self._next):
                self._next = entry.number + 1
                told.extend(self._hear(entry))
            self.fault = ""
        except JournalFault as fault:
            self.fault = str(fault)
        return told

    def _hear(self, entry: Entry) -> list[Told]:
        event, stays = entry.event, self._stays(entry.event)
        match event:
            case Opened(site=site, offers=offers):
                self._tellers.setdefault(site.key, Teller(site.key))
                self._add(remembered=sum(offer.remembered is not None for offer in offers))
            case Read(calls=calls):
                self._add(runs=calls)
                self._read(event)
            case Compared():
                self._add(runs=1, trial_runs=1)
        for done in entry.instructions:
            if isinstance(done, Swap):
                self._live[done.site_key, done.bucket] = done.arm
            elif isinstance(done, Deal) and done.first_block == 0:
                self._dealt(done)
        told = [
            Told(key, line) for key, teller in self._tellers.items() for line in teller.hear(entry)
        ]
        return [one for one in told if not (stays and one.line.what == "proposed")]

    def _stays(self, event: AnyEvent) -> bool:
        """Did the Policy answer with what is live? It does so often, and nothing follows."""
        if not isinstance(event, Proposed):
            return False
        return event.proposal.arm == self._live.get((event.site_key, event.bucket), 0)

    def _dealt(self, deal: Deal) -> None:
        live = self._live.get((deal.site_key, deal.bucket), 0)
        explores = bool(set(deal.order) - {0, live})
        self._dealt_at[deal.site_key, deal.bucket, deal.trial] = _Dealt(live, explores)
        self._add(trials=int(explores))

    def _read(self, event: Read) -> None:
        for reading in event.readings:
            if reading.trial:
                key = (event.site_key, event.bucket, reading.trial)
                dealt = self._dealt_at.get(key, _Dealt(0, True))
                other = reading.arm != dealt.live
                self._add(
                    runs=1,
                    trial_runs=int(other and dealt.explores),
                    probe_runs=int(other and not dealt.explores),
                )

    def _add(self, **more: int) -> None:
        known = {name: getattr(self.counts, name) + count for name, count in more.items()}
        self.counts = replace(self.counts, **known)
