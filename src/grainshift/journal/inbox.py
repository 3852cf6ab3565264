"""The bounded queue between the driver's thread and the writer's. Knows no file."""

from collections import deque
from itertools import chain, islice
from threading import Lock

from grainshift.core.events import AnyEvent
from grainshift.core.instructions import AnyInstruction
from grainshift.journal.text import Entry, Item


class Inbox:
    """Entries that are not on disk yet, the newest `size` of them, each with its number.

    Numbers count what was put in, so that what fell out shows as a gap in them.
    """

    def __init__(self, size: int, first: int = 0) -> None:
        self._lock = Lock()
        self._queue: deque[Item] = deque(maxlen=size)
        self._taken: tuple[int, tuple[Item, ...]] = (first, ())
        self._next = first
        self.appended = first
        self.dropped = 0

    def put(self, event: AnyEvent, instructions: tuple[AnyInstruction, ...]) -> int:
        """Take in one entry; the oldest falls out when it is full."""
        with self._lock:
            self._queue.append((event, instructions))
            self.appended += 1
            return self.appended

    def take(self) -> tuple[int, tuple[Item, ...]]:
        """All entries and the number of the first; `settle` says what became of them."""
        with self._lock:
            first = self.appended - len(self._queue)
            self._taken = (first, tuple(self._queue))
            self.dropped += first - self._next
            self._next = self.appended
            self._queue.clear()
            return self._taken

    def settle(self, written: int) -> None:
        """Everything below the number `written` is on disk; the rest comes back, if it fits."""
        with self._lock:
            first, items = self._taken
            end = first + len(items)
            self._next = min(max(written, first), end)
            # once newer ones fell out, older ones before them are not worth a gap in the middle
            if written < end and end == self.appended - len(self._queue):
                kept = islice(items, max(written - first, 0), None)
                self._queue = deque(chain(kept, self._queue), maxlen=self._queue.maxlen)
            self._taken = (self.appended, ())

    def forget(self) -> None:
        """Begin again, empty, as if in a new process."""
        self._lock = Lock()
        self._queue.clear()
        self._taken, self._next, self.appended, self.dropped = (0, ()), 0, 0, 0

    def entries(self) -> tuple[Entry, ...]:
        """What is not on disk yet, for a reader in this process."""
        with self._lock:
            first, items = self._taken
            later = self.appended - len(self._queue)
            numbered = chain(enumerate(items, first), enumerate(tuple(self._queue), later))
            return tuple(Entry(number, *item) for number, item in numbered)
