"""The writer's thread: carries entries from the inbox to the file. Knows nothing of a model.

It keeps normal priority: it holds the interpreter lock for moments, and an idle thread that holds
that lock while others compute would stop the model.
"""

import sqlite3
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from threading import Condition, Event, Lock, Thread, current_thread

from grainshift.journal.file import JournalWarning
from grainshift.journal.inbox import Inbox
from grainshift.journal.text import Item, pack
from grainshift.journal.write import RunFile

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0


class Pump:
    """Writes a batch every `interval_s`; on a fault it warns once, waits and tries again."""

    def __init__(self, inbox: Inbox, file: RunFile, where: str, interval_s: float) -> None:
        self.inbox = inbox
        self.wake = Event()
        self.fault = ""
        self._file = file
        self._where = where
        self._interval_s = interval_s
        self._file_lock = Lock()
        self._held_for_fork = False
        self._passed = Condition()
        self._begun = self._ended = 0
        self._warned = False
        self._wait_s = FIRST_WAIT_S
        self._retry_at_s = 0.0
        self._urgent = False
        self._stopping = False
        self._thread: Thread | None = Thread(target=self._run, name="grainshift-journal")
        self._thread.daemon = True

    def start(self) -> None:
        """Begin to write; where no thread can be had, entries stay in memory."""
        try:
            if self._thread is not None:
                self._thread.start()
        except RuntimeError as fault:
            self._thread = None
            self.give_up(str(fault))

    def give_up(self, reason: str) -> None:
        """Go on in memory for good."""
        self._thread = None
        self._warn(reason)

    def flush(self, timeout_s: float) -> bool:
        """Try now to write all that is in the inbox; whether it is on disk."""
        target = self.inbox.appended
        self._urgent = True
        awaited = self._begun + 1  # a pass that is under way may have taken its batch already
        self.wake.set()
        with self._passed:
            self._passed.wait_for(lambda: self._ended >= awaited or not self._alive(), timeout_s)
        return self.written >= target

    def stop(self, timeout_s: float) -> bool:
        """Write what is left and let go of the file, within the time given."""
        thread = self._thread
        self._stopping = self._urgent = True
        self.wake.set()
        if thread is not None and thread.is_alive() and thread is not current_thread():
            thread.join(timeout_s)
        return self.written >= self.inbox.appended

    @property
    def written(self) -> int:
        """The number up to which entries are on disk, or were dropped before."""
        return self._file.written

    def before_fork(self) -> None:
        """Close the file: SQLite's own state must not be copied into a child while open."""
        self._held_for_fork = self._file_lock.acquire(timeout=1.0)
        if self._held_for_fork:
            self._file.close()

    def after_fork_in_parent(self) -> None:
        """Go on; the next batch opens the file again."""
        if self._held_for_fork:  # else a write took too long, and the lock is the writer's
            self._held_for_fork = False
            self._file_lock.release()

    def after_fork_in_child(self) -> None:
        """The thread is not here: keep this process's own entries in memory, and write nothing."""
        self._thread = None
        self._file_lock = Lock()  # held since before the fork; this process may fork again
        self._held_for_fork = False
        self._passed = Condition()
        self.wake = Event()
        self.inbox.forget()
        self.fault = "this process was forked from the one that writes the Journal"

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while True:
            stopping = self._stopping
            self._pass()
            if stopping:
                with self._file_lock:
                    self._file.close()
                return
            self.wake.wait(self._interval_s)
            self.wake.clear()

    def _pass(self) -> None:
        self._begun += 1
        urgent, self._urgent = self._urgent, False
        if urgent or time.monotonic() >= self._retry_at_s:
            first, items = self.inbox.take()
            if items or self._begun == 1:  # opening takes longest: do it before the first comes
                self._write_or_warn(first, items)
            self.inbox.settle(self.written)
        with self._passed:
            self._ended = self._begun
            self._passed.notify_all()

    def _write_or_warn(self, first: int, items: Sequence[Item]) -> None:
        end = first + len(items)
        with self._file_lock:
            for _ in range(2):
                start = max(first, self.written)
                try:
                    self._file.write(pack(start, items[start - first :], _rest), end)
                except Exception as fault:  # noqa: BLE001 - no fault here may reach the model
                    if self._begin_anew(fault):
                        continue
                    break
                self.fault, self._wait_s = "", FIRST_WAIT_S
                return
        self._retry_at_s = time.monotonic() + self._wait_s
        self._wait_s = min(2.0 * self._wait_s, LONGEST_WAIT_S)

    def _begin_anew(self, fault: Exception) -> bool:
        try:
            aside = self._file.start_anew(fault)
        except (OSError, sqlite3.Error) as second:
            self._warn(f"{fault}, and it cannot be moved away: {second}")
            return False
        if aside is None:
            self._warn(str(fault))
            return False
        self._warn(f"{fault}; the file was moved to {aside.name} and a new one is begun")
        return True

    def _warn(self, reason: str) -> None:
        self.fault = reason
        if self._warned:
            return
        self._warned = True
        with suppress(JournalWarning):  # where warnings are errors, this one still is none
            warnings.warn(
                f"the Journal {self._where} cannot be written ({reason}); the model is not"
                " affected, and what happens is kept in memory while it cannot",
                JournalWarning,
                stacklevel=2,
            )


def _rest() -> None:
    time.sleep(0)
