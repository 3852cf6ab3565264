"""Kills writers of the Journal at random moments, and measures how fast it takes events in."""

import os
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from grainshift.bench.children import children
from grainshift.bench.row import Row
from grainshift.core.errors import JournalFault
from grainshift.core.events import Read
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.journal.append import Journal
from grainshift.journal.header import new_run
from grainshift.journal.read import entries, find_run, gaps, runs

LOST_LIMIT_S = 0.2
RATE_LIMIT = 50_000.0
BUSIEST_KILL_S = 1.0
KILL_JOURNAL_BYTES = 8 << 20  # small, so that kills also hit rotation and checkpoints
PACE_S = 0.001


@dataclass(frozen=True, slots=True)
class Kill:
    """What one SIGKILL did: whether the Journal opened, and how much of it was lost."""

    opened: bool
    lost_s: float
    kept: int
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast events went to disk, and what that took."""

    events_per_s: float
    dropped: int
    stored: int
    cpu_s_per_10k: float
    append_s: float
    bytes_per_event: float


def run(
    kills: int, seconds: float = 5.0, seed: int = 0, progress: Callable[[str], object] = str
) -> list[dict[str, Any]]:
    """The rows of `grainshift bench journal`, in the shape of the design."""
    with tempfile.TemporaryDirectory() as folder:
        done = kill(Path(folder) / "kill.sqlite", kills, seed, progress)
        progress("appending at full speed")
        rate = sustain(Path(folder) / "rate.sqlite", seconds)
        cost_s = append_cost(Path(folder) / "cost.sqlite")
    return [asdict(row) for row in (*_kill_rows(done), *_rate_rows(rate, seconds, cost_s))]


def kill(
    path: Path, kills: int, seed: int, progress: Callable[[str], object] = str
) -> tuple[Kill, ...]:
    """Let processes write one Journal, and kill each at a random moment."""
    draw = random.Random(seed)
    context = children()
    done = []
    for number in range(kills):
        burst = draw.choice((1, 5, 20, 50))  # events in a millisecond
        done.append(_kill_one(context, path, burst, draw.uniform(0.0, BUSIEST_KILL_S)))
        progress(f"kill {number + 1} of {kills}")
    return tuple(done)


def sustain(path: Path, seconds: float, events_per_s: float = 1.5 * RATE_LIMIT) -> Rate:
    """Append for so long at a steady pace above what is promised; count what reached the disk."""
    burst = _events(2_000)
    with Journal(path, new_run(time.time(), "bench", {}, Settings()), 256 << 20) as journal:
        begin_s, begin_cpu_s, sent, append_s = time.perf_counter(), time.process_time(), 0, 0.0
        while (passed_s := time.perf_counter() - begin_s) < seconds:
            due = int(passed_s * events_per_s) - sent
            start_s = time.perf_counter()
            for index in range(due):
                journal.append(burst[(sent + index) % len(burst)])
            append_s += time.perf_counter() - start_s
            sent += due
            time.sleep(PACE_S)
        journal.flush(30.0)
        wall_s = time.perf_counter() - begin_s
        cpu_s = time.process_time() - begin_cpu_s
        dropped = journal.status.dropped
    stored = find_run(path).entries
    return Rate(
        events_per_s=stored / wall_s,
        dropped=dropped,
        stored=stored,
        cpu_s_per_10k=(cpu_s - append_s) / stored * 1e4,
        append_s=append_s / max(sent, 1),
        bytes_per_event=path.stat().st_size / max(stored, 1),
    )


def append_cost(path: Path, rounds: int = 200, batch: int = 50) -> float:
    """Median seconds that one append costs its caller, at the pace of a real driver."""
    burst = _events(batch)
    costs = []
    with Journal(path, new_run(time.time(), "bench", {}, Settings()), 64 << 20) as journal:
        for _ in range(rounds):
            start_s = time.perf_counter()
            for event in burst:
                journal.append(event)
            costs.append((time.perf_counter() - start_s) / batch)
            time.sleep(PACE_S)
    return sorted(costs)[rounds // 2]


def _events(count: int) -> list[Read]:
    draw = random.Random(0)
    return [_read(index * 0.02, draw) for index in range(count)]


def _read(at_s: float, draw: random.Random) -> Read:
    readings = tuple(
        Reading(draw.choice((0, 3)), draw.randrange(900_000, 1_100_000) / 1e9, 128.0, 7, block)
        for block in range(4)
    )
    return Read(at_s, f"recurrence:encoder.{draw.randrange(4)}", "B1xT128xI256", readings, 4)


def _kill_one(context: Any, path: Path, burst: int, after_s: float) -> Kill:
    ours, theirs = context.Pipe(duplex=False)
    header = new_run(time.time(), "bench", {}, Settings())
    writer = context.Process(target=_write, args=(path, header, burst, theirs), daemon=True)
    writer.start()
    theirs.close()
    first_s = ours.recv()
    time.sleep(after_s)
    os.kill(writer.pid, signal.SIGKILL)
    killed_s = time.monotonic()
    writer.join()
    return _look(path, header.run, first_s, killed_s)


def _write(path: Path, header: Any, burst: int, told: Connection) -> None:
    draw = random.Random(burst)
    journal = Journal(path, header, KILL_JOURNAL_BYTES)
    told.send(time.monotonic())
    while True:
        for _ in range(burst):
            journal.append(_read(time.monotonic(), draw))
        time.sleep(PACE_S)


def _look(path: Path, run: str, first_s: float, killed_s: float) -> Kill:
    nothing_s = killed_s - first_s
    if not path.exists():  # killed before the file was made
        return Kill(True, nothing_s, 0)
    try:
        found = [one for one in runs(path) if one.header.run == run]
        times = [entry.event.at_s for one in found for entry in entries(one)]
        broken = [gap for one in found for gap in gaps(one) if gap.first >= one.cut]
        with closing(sqlite3.connect(path)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    except (sqlite3.Error, JournalFault) as fault:
        return Kill(False, nothing_s, 0, str(fault))
    faults = [f"gaps {broken}"] * bool(broken) + [verdict] * (verdict != "ok")
    lost_s = killed_s - times[-1] if times else nothing_s
    return Kill(verdict == "ok", lost_s, len(times), "; ".join(faults))


def _kill_rows(done: tuple[Kill, ...]) -> list[Row]:
    if not done:
        return []
    opened = sum(kill.opened for kill in done)
    lost_s = sorted(kill.lost_s for kill in done)
    faults = "; ".join(sorted({kill.fault for kill in done if kill.fault})[:3])
    events = sum(kill.kept for kill in done)
    within = sum(lost <= LOST_LIMIT_S for lost in lost_s)
    where = f"{len(done)} SIGKILLs while writing"
    return [
        _row(where, "opened", "times", float(opened), float(len(done)), faults or "no fault"),
        _row(
            where,
            "lost at most",
            "s",
            lost_s[-1],
            LOST_LIMIT_S,
            f"median {lost_s[len(lost_s) // 2]:.3f} s, within the limit {within} times;"
            f" {events} events read back; load average at the end {os.getloadavg()[0]:.1f}"
            f" on {os.cpu_count()} cores",
        ),
    ]


def _rate_rows(rate: Rate, seconds: float, cost_s: float) -> list[Row]:
    where = f"Read events of 4 readings for {seconds:g} s"
    told = (
        f"{rate.stored} events on disk, {rate.dropped} dropped, {rate.bytes_per_event:.0f} B each"
    )
    return [
        _row(where, "appended and on disk", "events/s", rate.events_per_s, RATE_LIMIT, told),
        _row(where, "CPU time beside append", "s per 10,000 events", rate.cpu_s_per_10k, None, ""),
        _row(where, "append, at full speed", "s", rate.append_s, None, "mean, waits included"),
        _row("50 events a ms", "append, for its caller", "s", cost_s, None, "median"),
    ]


def _row(
    workload: str, metric: str, unit: str, ours: float, limit: float | None, notes: str
) -> Row:
    return Row(workload, metric, unit, ours, {}, limit=limit, notes=notes)
