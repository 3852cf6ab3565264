"""The Journal as the driver sees it: append costs an entry in a queue. Knows nothing of SQLite."""

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from grainshift.core.errors import JournalFault
from grainshift.core.events import AnyEvent
from grainshift.core.instructions import AnyInstruction
from grainshift.journal.forks import follow
from grainshift.journal.header import RunHeader
from grainshift.journal.inbox import Inbox
from grainshift.journal.pump import Pump
from grainshift.journal.read import entries, find_run
from grainshift.journal.rotate import LEAST_BYTES, Bounds
from grainshift.journal.text import Entry
from grainshift.journal.write import RunFile

WAKE_EVERY = 1024


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """How far writing has come; `fault` is empty while all is well."""

    appended: int
    written: int
    dropped: int
    fault: str


class Journal:
    """Records one run: each event, with the instructions that the tuner answered.

    Nothing here waits for the disk but `flush` and `close`, and they no longer than they are
    told. What cannot be written stays in memory, the newest `queue_entries` of it.
    """

    def __init__(
        self,
        path: Path,
        header: RunHeader,
        max_bytes: int,
        *,
        clock: Callable[[], float] = time.time,
        interval_s: float = 0.06,
        queue_entries: int = 20_000,
    ) -> None:
        self.path = path
        self.header = header
        self._inbox = Inbox(queue_entries)
        file = RunFile(path, header, Bounds(max(max_bytes, LEAST_BYTES)), clock)
        self._pump = Pump(self._inbox, file, str(path), interval_s)
        self._wake = self._pump.wake
        if max_bytes < LEAST_BYTES:
            self._pump.give_up(f"{max_bytes} bytes are allowed; it needs {LEAST_BYTES} at least")
        else:
            self._pump.start()
        self._last = weakref.finalize(self, self._pump.stop, 1.0)
        follow(self._pump)

    def append(self, event: AnyEvent, instructions: tuple[AnyInstruction, ...] = ()) -> None:
        """Record an event and what the tuner answered; only enqueues."""
        if not self._inbox.put(event, instructions) % WAKE_EVERY:
            self._wake.set()

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until all that was appended is on disk, or the time is over; whether it is."""
        return self._pump.flush(timeout_s)

    def close(self, timeout_s: float = 1.0) -> bool:
        """Write what is left and end the thread; whether all is on disk."""
        self._last.detach()
        return self._pump.stop(timeout_s)

    @property
    def status(self) -> JournalStatus:
        """How far writing has come."""
        pump = self._pump
        return JournalStatus(self._inbox.appended, pump.written, self._inbox.dropped, pump.fault)

    def entries(self) -> tuple[Entry, ...]:
        """This run so far: what can be read back from the file, then what is still in memory."""
        self.flush()
        unwritten = self._inbox.entries()
        first = unwritten[0].number if unwritten else self._inbox.appended
        try:
            stored = tuple(
                entry
                for entry in entries(find_run(self.path, self.header.run))
                if entry.number < first
            )
        except JournalFault:
            stored = ()
        return stored + unwritten

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
