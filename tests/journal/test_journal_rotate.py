import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from journal_values import header, note, read

from grainshift.journal import Journal, JournalWarning, entries, find_run, gaps, runs
from grainshift.journal.file import open_to_write, wal_size_bytes
from grainshift.journal.rotate import LEAST_BYTES, READER_MS, READER_S, Bounds, make_wal_room


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def size_bytes(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.iterdir())


def fill(journal: Journal, events: int, folder: Path, bound: int, first: int = 0) -> int:
    draw = random.Random(first)
    largest = 0
    for number in range(first, first + events):
        journal.append(read(number), (note(draw.randbytes(150).hex()),))
        if number % 100 == 99:
            assert journal.flush(20.0)
            largest = max(largest, size_bytes(folder))
            assert largest <= bound
    assert journal.flush(20.0)
    return largest


def test_the_bound_holds_and_the_run_is_marked_cut(tmp_path: Path) -> None:
    bound = LEAST_BYTES
    with Journal(tmp_path / "j", header(), bound) as journal:
        largest = fill(journal, 9_000, tmp_path, bound)
        run = find_run(tmp_path / "j")
        numbers = [entry.number for entry in entries(run)]
    assert largest > bound // 2
    assert run.cut > 0
    assert numbers == list(range(run.cut, 9_000))
    assert [(gap.first, gap.count) for gap in gaps(run)] == [(0, run.cut)]


def test_ended_runs_go_first_and_whole(tmp_path: Path) -> None:
    bound, clock, path = LEAST_BYTES, Clock(), tmp_path / "j"
    for seed in range(1, 4):
        clock.now_s += 1_000.0
        with Journal(path, header(seed=seed), bound, clock=clock) as journal:
            fill(journal, 1_000, tmp_path, bound)
    assert [(run.header.seed, run.cut) for run in runs(path)] == [(1, 0), (2, 0), (3, 0)]
    clock.now_s += 1_000.0
    cuts = []
    with Journal(path, header(seed=4), bound, clock=clock) as journal:
        for first in range(0, 2_000, 100):
            fill(journal, 100, tmp_path, bound, first)
            left = {run.header.seed: (run.cut, run.entries) for run in runs(path)}
            cuts.append([seed for seed, (cut, _) in left.items() if cut])
    assert left[4] == (0, 2_000)
    assert left.keys() <= {2, 3, 4}
    assert [1] in cuts
    assert all(len(cut) <= 1 for cut in cuts)  # none is touched before the older one is gone


def test_a_run_going_on_beside_is_cut_and_not_removed(tmp_path: Path) -> None:
    bound, clock, path = LEAST_BYTES, Clock(), tmp_path / "j"
    with (
        Journal(path, header(seed=1), bound, clock=clock) as one,
        Journal(path, header(seed=2), bound, clock=clock) as two,
    ):
        for first in range(0, 4_800, 600):
            fill(one, 600, tmp_path, bound, first)
            fill(two, 600, tmp_path, bound, first)
            clock.now_s += 1.0
        found = runs(path)
    assert sorted(run.header.seed for run in found) == [1, 2]
    for run in found:
        assert 0 < run.cut < 4_800
        assert [entry.number for entry in entries(run)] == list(range(run.cut, 4_800))


def test_a_lower_bound_gives_the_space_back(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "j"
    with Journal(path, header(seed=1), 4 * LEAST_BYTES, clock=clock) as journal:
        fill(journal, 9_000, tmp_path, 4 * LEAST_BYTES)
    assert size_bytes(tmp_path) > 3 * LEAST_BYTES // 2
    clock.now_s += 1_000.0
    with Journal(path, header(seed=2), LEAST_BYTES, clock=clock) as journal:
        journal.append(read(0))
        assert journal.flush(20.0)
        assert size_bytes(tmp_path) <= LEAST_BYTES


def test_a_reader_that_stays_cannot_make_it_outgrow_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), LEAST_BYTES) as journal:
        fill(journal, 1_000, tmp_path, LEAST_BYTES)
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chunk").fetchone()
        draw = random.Random(0)
        with pytest.warns(JournalWarning, match="reader"):
            for number in range(1_000, 4_000):
                journal.append(read(number), (note(draw.randbytes(150).hex()),))
                if number % 200 == 199:
                    journal.flush(20.0)
                    assert size_bytes(tmp_path) <= LEAST_BYTES
        reader.close()
        assert journal.flush(20.0)
        assert size_bytes(tmp_path) <= LEAST_BYTES
        assert next(reversed(list(entries(find_run(path))))).number == 3_999


@contextmanager
def nearly_full(path: Path, bounds: Bounds) -> Iterator[sqlite3.Connection]:
    """A connection to a file whose write-ahead log has no room."""
    connection = open_to_write(path)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    while wal_size_bytes(path) <= bounds.wal_bytes:
        connection.execute(
            "INSERT INTO chunk(run, first, count, data) VALUES (1, 0, 1, zeroblob(9000))"
        )
    try:
        yield connection
    finally:
        connection.close()


def test_another_writer_that_is_busy_for_a_moment_is_no_fault(tmp_path: Path) -> None:
    path, bounds = tmp_path / "j", Bounds(LEAST_BYTES)
    with nearly_full(path, bounds) as connection, closing(open_to_write(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = threading.Timer(3 * READER_MS / 1e3, other.execute, ("COMMIT",))
        done.start()
        make_wal_room(connection, path, bounds)
        assert wal_size_bytes(path) == 0
        done.join()


EMPTIER = """
import fcntl, sys, time
with open(sys.argv[1], "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX, 1, 121)  # what SQLite holds while it empties the log
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def test_whoever_empties_the_log_already_is_waited_for(tmp_path: Path) -> None:
    path, bounds = tmp_path / "j", Bounds(LEAST_BYTES)
    with nearly_full(path, bounds) as connection:
        script = [sys.executable, "-c", EMPTIER, f"{path}-shm", str(2 * READER_S)]
        with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as emptier:
            assert emptier.stdout is not None and emptier.stdout.readline() == "held\n"
            make_wal_room(connection, path, bounds)
        assert wal_size_bytes(path) == 0


@pytest.mark.parametrize("bound", [LEAST_BYTES, 8 << 20, 64 << 20, 1 << 30])
def test_the_shares_add_up(bound: int) -> None:
    shares = Bounds(bound)
    assert shares.file_bytes + shares.wal_bytes < bound
    assert shares.file_bytes > bound // 2
    assert 4 * shares.commit_bytes <= shares.wal_bytes // 2
