"""Writes one run's chunks into the Journal's file, in short transactions. Knows no thread."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from grainshift.journal.file import is_corrupt, open_to_write, set_aside
from grainshift.journal.header import RunHeader, header_to_text
from grainshift.journal.rotate import Bounds, begin_with_room, give_back
from grainshift.journal.text import Chunk

SIGN_OF_LIFE_S = 5.0  # how often a run's row is written again; each time costs a page
Open = Callable[[Path, int], sqlite3.Connection]


def run_number(name: str) -> int:
    """The key of a run in the file, from its name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


class RunFile:
    """The place of one run in the file; opens it when needed, and anew when it went away."""

    def __init__(
        self,
        path: Path,
        header: RunHeader,
        bounds: Bounds,
        clock: Callable[[], float],
        open_file: Open = open_to_write,
    ) -> None:
        self._path = path
        self._header = (header.run, header_to_text(header), header.started_at_s)
        self._run = run_number(header.run)
        self._bounds = bounds
        self._clock = clock
        self._open_file = open_file
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self.written = 0

    def write(self, chunks: Iterable[Chunk], end: int) -> None:
        """Put chunks up to `end` on disk; `written` tells how far it came if a fault is raised."""
        connection = self._opened()
        for lot in _lots(chunks, self._bounds.commit_bytes):
            self._commit(connection, lot)
            self.written = lot[-1].end
        self.written = end
        give_back(connection, self._path, self._bounds)

    def start_anew(self, fault: BaseException) -> Path | None:
        """Move the file aside if the fault says that it is broken, and say where it went."""
        broken = self._inode
        self.close()
        if not is_corrupt(fault) or not self._path.exists():
            return None
        if _inode(self._path) != broken:
            return self._path  # another process has already begun a new one
        return set_aside(self._path)

    def close(self) -> None:
        """Let go of the file."""
        connection, self._connection, self._inode = self._connection, None, 0
        if connection is not None:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._gone():
            self.close()
        if self._connection is None:
            self._inode = _inode(self._path)
            self._connection = self._open_file(self._path, self._bounds.wal_bytes)
            self._inode = _inode(self._path)
        return self._connection

    def _gone(self) -> bool:
        return _inode(self._path) != self._inode

    def _commit(self, connection: sqlite3.Connection, lot: list[Chunk]) -> None:
        now_s = self._clock()
        coming_bytes = sum(len(chunk.data) for chunk in lot)
        try:
            begin_with_room(connection, self._path, self._bounds, self._run, coming_bytes, now_s)
            connection.execute(
                "INSERT INTO run(id, name, header, started_at_s, written_at_s)"
                " VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT(id) DO UPDATE SET written_at_s = excluded.written_at_s"
                " WHERE excluded.written_at_s > run.written_at_s + ?",
                (self._run, *self._header, now_s, SIGN_OF_LIFE_S),
            )
            connection.executemany(
                "INSERT INTO chunk(run, first, count, data) VALUES (?, ?, ?, ?)",
                [(self._run, chunk.first, chunk.count, chunk.data) for chunk in lot],
            )
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # the fault under way is the one to tell
                    connection.execute("ROLLBACK")


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _lots(chunks: Iterable[Chunk], lot_bytes: int) -> Iterator[list[Chunk]]:
    lot: list[Chunk] = []
    for chunk in chunks:
        if lot and sum(len(held.data) for held in lot) + len(chunk.data) > lot_bytes:
            yield lot
            lot = []
        lot.append(chunk)
    if lot:
        yield lot
