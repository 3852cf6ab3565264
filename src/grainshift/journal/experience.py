"""What earlier trials taught, kept beside the Journal. Knows no tuner, and never raises a fault."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from grainshift.core.choice import Choice
from grainshift.core.errors import JournalFault
from grainshift.journal.file import open_to_read, open_to_write

HALF_LIFE_S = 30 * 86_400.0
MOST_BLOCKS = 256.0  # so that a new trial always has a say
BUSY_S = 0.2


@dataclass(frozen=True, slots=True)
class ExperienceKey:
    """Where experience holds: this machine, these versions, this Site, shapes of this bucket."""

    machine: str
    versions: tuple[tuple[str, str], ...]
    site: str
    bucket: str

    def __str__(self) -> str:
        return json.dumps([self.machine, dict(sorted(self.versions)), self.site, self.bucket])


class Experience:
    """The experience in one file, shared by all processes that name it.

    Trials are weighed by their blocks, which count half after 30 days.
    """

    def __init__(self, path: Path, most_rows: int = 5_000) -> None:
        self._path = path
        self._most_rows = most_rows

    def remember(
        self, key: ExperienceKey, choice: Choice | str, log_gain: float, blocks: int, at_s: float
    ) -> bool:
        """Add what one trial taught of a Choice; whether that was possible."""
        if blocks < 1:
            return False
        try:
            with closing(open_to_write(self._path, busy_s=BUSY_S)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                _merge(connection, (str(key), str(choice)), log_gain, blocks, at_s)
                _forget(connection, self._most_rows)
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError, JournalFault):
            return False
        return True

    def recall(self, key: ExperienceKey, at_s: float | None = None) -> dict[str, tuple[float, int]]:
        """The log gain of each Choice known there and its weight in blocks, aged to `at_s`.

        Empty when nothing is known or the file cannot be read.
        """
        query = "SELECT choice, log_gain, blocks, at_s FROM experience WHERE place = ?"
        try:
            with open_to_read(self._path) as connection:
                rows = connection.execute(query, (str(key),)).fetchall()
        except JournalFault:
            return {}
        aged = (
            (choice, log_gain, round(_aged(blocks, then_s, then_s if at_s is None else at_s)))
            for choice, log_gain, blocks, then_s in rows
        )
        return {choice: (log_gain, blocks) for choice, log_gain, blocks in aged if blocks}


def _aged(blocks: float, then_s: float, now_s: float) -> float:
    passed_s = max(now_s - then_s, 0.0)
    return float(blocks * 0.5 ** (passed_s / HALF_LIFE_S))


def _merge(
    connection: sqlite3.Connection,
    place: tuple[str, str],
    log_gain: float,
    blocks: float,
    at_s: float,
) -> None:
    known = connection.execute(
        "SELECT log_gain, blocks, at_s FROM experience WHERE place = ? AND choice = ?", place
    ).fetchone()
    if known is not None:
        before = _aged(known[1], known[2], at_s)
        log_gain = (before * known[0] + blocks * log_gain) / (before + blocks)
        blocks, at_s = min(before + blocks, MOST_BLOCKS), max(at_s, known[2])
    connection.execute(
        "INSERT OR REPLACE INTO experience VALUES (?, ?, ?, ?, ?)",
        (*place, log_gain, blocks, at_s),
    )


def _forget(connection: sqlite3.Connection, most_rows: int) -> None:
    (rows,) = connection.execute("SELECT count(*) FROM experience").fetchone()
    if rows > most_rows:
        connection.execute(
            "DELETE FROM experience WHERE (place, choice) IN"
            " (SELECT place, choice FROM experience ORDER BY at_s LIMIT ?)",
            (rows - most_rows,),
        )
