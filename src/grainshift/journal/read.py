"""Reads runs back from the Journal's file. Knows nothing of tuning; writes nothing."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grainshift.core.errors import JournalFault
from grainshift.core.events import Opened
from grainshift.journal.file import open_to_read
from grainshift.journal.header import RunHeader, header_from_text
from grainshift.journal.text import Chunk, Entry, unpack

LOT = 64  # chunks read at once, so that no reader holds a snapshot for long


@dataclass(frozen=True, slots=True)
class Run:
    """One run in a Journal; entries numbered below `cut` were rotated away to keep the bound."""

    path: Path
    number: int
    header: RunHeader
    entries: int
    cut: int
    written_at_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that are missing from a run: `count` of them, from the number `first` on."""

    first: int
    count: int


def runs(path: Path) -> tuple[Run, ...]:
    """The runs in a Journal, the oldest first."""
    query = (
        "SELECT id, header, cut, written_at_s,"
        " (SELECT coalesce(sum(count), 0) FROM chunk WHERE chunk.run = run.id)"
        " FROM run ORDER BY started_at_s, written_at_s, id"
    )
    with open_to_read(path) as connection:
        rows = connection.execute(query).fetchall()
    return tuple(
        Run(path, number, header_from_text(text), count, cut, at_s)
        for number, text, cut, at_s, count in rows
    )


def find_run(path: Path, name: str | None = None) -> Run:
    """The run of that name (its first letters suffice), or the latest."""
    found = [run for run in runs(path) if name is None or run.header.run.startswith(name)]
    if not found:
        known = ", ".join(run.header.run for run in runs(path)) or "none yet"
        raise JournalFault(f"no run {name or ''} in the Journal {path}; it has: {known}")
    if name is not None and len(found) > 1:
        names = ", ".join(run.header.run for run in found)
        raise JournalFault(f"several runs begin with {name}: {names}; give more letters")
    return found[-1]


def entries(run: Run, site_key: str | None = None, first: int = 0) -> Iterator[Entry]:
    """The entries of a run in order, from number `first` on, or those that tell of one Site."""

    def tells(tag: str, data: list[Any], instructions: list[Any]) -> bool:
        return _site_of(tag, data) == site_key or any(
            part[0] == site_key for _, part in instructions
        )

    for chunk in _chunks(run, first):
        for entry in _unpacked(run, chunk, None if site_key is None else tells):
            if entry.number >= first:
                yield entry


def sites(run: Run) -> tuple[str, ...]:
    """The keys of the Sites that were opened in a run."""
    found: dict[str, None] = {}
    for chunk in _chunks(run):
        for entry in _unpacked(run, chunk, lambda tag, data, instructions: tag == "Opened"):
            if isinstance(entry.event, Opened):
                found[entry.event.site.key] = None
    return tuple(found)


def gaps(run: Run) -> tuple[Gap, ...]:
    """What is missing from a run between entries that are there, and before the first."""
    with open_to_read(run.path) as connection:
        rows = connection.execute(
            "SELECT first, count FROM chunk WHERE run = ? ORDER BY first", (run.number,)
        ).fetchall()
    missing, end = [], 0
    for first, count in rows:
        if first > end:
            missing.append(Gap(end, first - end))
        end = first + count
    return tuple(missing)


def _site_of(tag: str, data: list[Any]) -> str | None:
    if tag == "Opened":
        return f"{data[1][0]}:{data[1][1]}"
    return data[1] if len(data) > 1 and isinstance(data[1], str) else None


def _chunks(run: Run, first: int = 0) -> Iterator[Chunk]:
    query = (
        "SELECT id, first, count, data FROM chunk"
        " WHERE run = ? AND id > ? AND first + count > ? ORDER BY id LIMIT ?"
    )
    with open_to_read(run.path) as connection:
        last = 0
        while rows := connection.execute(query, (run.number, last, first, LOT)).fetchall():
            yield from (Chunk(*row[1:]) for row in rows)
            last = rows[-1][0]


def _unpacked(run: Run, chunk: Chunk, wanted: Any) -> Iterator[Entry]:
    try:
        yield from unpack(chunk, wanted)
    except (zlib.error, ValueError, TypeError, KeyError, IndexError) as fault:
        raise JournalFault(
            f"entry {chunk.first} and those after it cannot be read in run {run.header.run}"
            f" of the Journal {run.path}: {fault}"
        ) from fault
