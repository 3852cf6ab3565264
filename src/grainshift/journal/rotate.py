"""Keeps the Journal's file within its bound. Knows nothing of threads or of what is recorded."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from grainshift.core.errors import JournalFault
from grainshift.journal.file import PAGE_BYTES, wal_size_bytes

LEAST_BYTES = 1 << 20
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


def make_room(
    connection: sqlite3.Connection, bounds: Bounds, run: int, coming_bytes: int, now_s: float
) -> None:
    """Inside a transaction, delete the oldest until so much more fits; the run given stays."""
    coming_bytes += coming_bytes // 8 + 8 * PAGE_BYTES
    if _used_bytes(connection) + coming_bytes <= bounds.file_bytes:
        return
    target_bytes = bounds.file_bytes - coming_bytes - bounds.file_bytes // 16
    ended = connection.execute(
        "SELECT id FROM run WHERE id != ? AND written_at_s < ? ORDER BY written_at_s",
        (run, now_s - ALIVE_S),
    ).fetchall()
    for (old,) in ended:
        connection.execute("DELETE FROM chunk WHERE run = ?", (old,))
        connection.execute("DELETE FROM run WHERE id = ?", (old,))
        if _used_bytes(connection) <= target_bytes:
            return
    while (over_bytes := _used_bytes(connection) - target_bytes) > 0:
        if not (_cut_oldest(connection, over_bytes) or _forget_oldest(connection)):
            raise JournalFault(f"{bounds.max_bytes} bytes are too few for what is to be kept")


def make_wal_room(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Empty the write-ahead log if it could outgrow its share; refuse if a reader holds it."""
    if wal_size_bytes(path) + 2 * bounds.commit_bytes <= bounds.wal_bytes:
        return
    (busy_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
    if wal_size_bytes(path) + 2 * bounds.commit_bytes > bounds.wal_bytes:
        raise JournalFault("a reader holds it open, so that it cannot be kept within its bound")


def give_back(connection: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Return free pages to the system, as far as the file is over its share."""
    pages = bounds.commit_bytes // PAGE_BYTES
    while (free := _free_pages_over(connection, bounds)) > 0:
        make_wal_room(connection, path, bounds)
        # a script steps through all rows without taking the interpreter lock for each
        connection.executescript(f"PRAGMA incremental_vacuum({min(free, pages)})")


def _cut_oldest(connection: sqlite3.Connection, over_bytes: int) -> bool:
    oldest = connection.execute(
        "SELECT id, length(data) FROM chunk ORDER BY id LIMIT 1000"
    ).fetchall()
    last = 0
    for last, size_bytes in oldest:
        over_bytes -= size_bytes
        if over_bytes <= 0:
            break
    connection.execute(
        "UPDATE run SET cut = max(cut, coalesce((SELECT max(first + count) FROM chunk"
        " WHERE chunk.run = run.id AND chunk.id <= ?), 0))",
        (last,),
    )
    connection.execute("DELETE FROM chunk WHERE id <= ?", (last,))
    return bool(oldest)


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
