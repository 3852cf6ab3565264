"""Keeps the Journal's file within its bound. Knows nothing of threads or of what is recorded."""

import sqlite3
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from grainshift.core.errors import JournalFault
from grainshift.journal.file import PAGE_BYTES, wal_size_bytes

LEAST_BYTES = 1 << 20
READER_MS = 50  # how long a checkpoint waits for those who read or write at this moment
READER_S = 0.3  # how long they may keep it before that is a fault
EMPTIER_S = 2.0  # and how long whoever empties it already, which waits for the disk
LOOK_S = 0.005
ALIVE_S = 60.0  # a run written to within this time may still be going on


@dataclass(frozen=True, slots=True)
class Bounds:
    """How one bound is shared out between the file, its WAL and the WAL's index."""

    max_bytes: int

    @property
    def wal_bytes(self) -> int:
        """Most that the write-ahead log may take."""
        return min(4 << 20, self.max_bytes // 4)

    @property
    def file_bytes(self) -> int:
        """Most that the file itself may take."""
        return self.max_bytes - self.wal_bytes - (64 << 10)

    @property
    def commit_bytes(self) -> int:
        """Most that one transaction should add."""
        return self.wal_bytes // 8


def begin_with_room(
    connection: sqlite3.Connection,
    path: Path,
    bounds: Bounds,
    run: int,
    coming_bytes: int,
    now_s: float,
) -> None:
    """Begin a transaction in which so much more fits; the oldest goes for it, a little a time.

    Runs that have ended go first, one after the other; then the oldest entries of those going on.
    """
    coming_bytes += coming_bytes // 8 + 8 * PAGE_BYTES
    most_bytes = bounds.commit_bytes
    while True:
        make_wal_room(connection, path, bounds)
        connection.execute("BEGIN IMMEDIATE")
        over_bytes = _used_bytes(connection) + coming_bytes - bounds.file_bytes
        if over_bytes > 0 and not _free(
            connection, run, min(over_bytes, most_bytes) + most_bytes // 2, now_s - ALIVE_S
        ):
            raise JournalFault(f"{bounds.max_bytes} bytes are too few for what is to be kept")
        if over_bytes <= most_bytes:
            return
        connection.execute("COMMIT")


def make_wal_room(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Empty the write-ahead log if it could outgrow its share; refuse if a reader holds it."""
    begun_s = time.monotonic()
    while not _wal_has_room(path, bounds):
        patience_s = READER_S if _empty_wal(connection) else EMPTIER_S
        if time.monotonic() - begun_s > patience_s and not _wal_has_room(path, bounds):
            raise JournalFault("a reader holds it open, so that it cannot be kept within its bound")
        time.sleep(LOOK_S)


def give_back(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Return free pages to the system, as far as the file is over its share."""
    pages = bounds.commit_bytes // PAGE_BYTES
    while (free := _free_pages_over(connection, bounds)) > 0:
        make_wal_room(connection, path, bounds)
        # a script steps through all rows without taking the interpreter lock for each
        connection.executescript(f"PRAGMA incremental_vacuum({min(free, pages)})")
    if path.stat().st_size > bounds.file_bytes:
        _empty_wal(connection)  # only then does the file itself become shorter


def _free(connection: sqlite3.Connection, run: int, wanted_bytes: int, ended_s: float) -> bool:
    """Delete about so much, and say whether there was anything."""
    ended = connection.execute(
        "SELECT id FROM run WHERE id != ? AND written_at_s < ? ORDER BY written_at_s",
        (run, ended_s),
    ).fetchall()
    for (old,) in ended:
        if _cut(connection, f"run = {old}", wanted_bytes):
            return True
        connection.execute("DELETE FROM run WHERE id = ?", (old,))
    return _cut(connection, "1", wanted_bytes) or _forget_oldest(connection)


def _cut(connection: sqlite3.Connection, which: str, wanted_bytes: int) -> bool:
    oldest = connection.execute(
        f"SELECT id, length(data) FROM chunk WHERE {which} ORDER BY id LIMIT 2000"
    ).fetchall()
    sums = accumulate(size_bytes for _, size_bytes in oldest)
    enough = next((at for at, total in enumerate(sums) if total >= wanted_bytes), len(oldest) - 1)
    last = oldest[enough][0] if oldest else 0
    connection.execute(
        "UPDATE run SET cut = max(cut, coalesce((SELECT max(first + count) FROM chunk"
        f" WHERE chunk.run = run.id AND chunk.id <= ? AND {which}), 0))",
        (last,),
    )
    connection.execute(f"DELETE FROM chunk WHERE id <= ? AND {which}", (last,))
    return bool(oldest)


def _empty_wal(connection: sqlite3.Connection) -> bool:
    """Try to, and say whether that was our turn: nobody else was emptying it at this moment."""
    (busy_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {READER_MS}")
    try:
        pages = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[1]
    finally:
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
    return bool(pages >= 0)


def _wal_has_room(path: Path, bounds: Bounds) -> bool:
    return wal_size_bytes(path) + 4 * bounds.commit_bytes <= bounds.wal_bytes


def _forget_oldest(connection: sqlite3.Connection) -> bool:
    return (
        connection.execute(
            "DELETE FROM experience WHERE (place, choice) IN"
            " (SELECT place, choice FROM experience ORDER BY at_s LIMIT 256)"
        ).rowcount
        > 0
    )


def _pages(connection: sqlite3.Connection) -> tuple[int, int]:
    pages, free = connection.execute(
        "SELECT (SELECT page_count FROM pragma_page_count),"
        " (SELECT freelist_count FROM pragma_freelist_count)"
    ).fetchone()
    return pages, free


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free = _pages(connection)
    return (pages - free) * PAGE_BYTES


def _free_pages_over(connection: sqlite3.Connection, bounds: Bounds) -> int:
    pages, free = _pages(connection)
    return min(free, pages - bounds.file_bytes // PAGE_BYTES)
