import gc
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_values import header, note, read

from grainshift.bench.journal import kill
from grainshift.journal import Journal, entries, find_run, forks, gaps, runs
from grainshift.journal.file import JournalWarning

BYTES = 8 << 20
WRITER = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from journal_values import header, note, read
from grainshift.journal import Journal
journal = Journal(Path({path!r}), header(seed={seed}), {bytes})
for number in range({count}):
    journal.append(read(number), (note(str(number)),))
    {each}
{last}
"""


def start(
    path: Path, seed: int, count: int, each: str = "pass", last: str = "journal.close(20.0)"
) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parent)
    text = WRITER.format(
        tests=tests, path=str(path), seed=seed, bytes=BYTES, count=count, each=each, last=last
    )
    return subprocess.Popen([sys.executable, "-c", text], text=True, stderr=subprocess.PIPE)


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "journal.sqlite"
    began = header(seed=3)
    written = [(read(number), (note(str(number)),)) for number in range(2_500)]
    with Journal(path, began, BYTES) as journal:
        for event, instructions in written:
            journal.append(event, instructions)
        assert journal.flush(20.0)
        back = [(entry.event, entry.instructions) for entry in journal.entries()]
    assert back == written
    run = find_run(path)
    assert run.header == began
    assert (run.entries, run.cut, gaps(run)) == (2_500, 0, ())
    assert [(entry.event, entry.instructions) for entry in entries(run)] == written


def test_it_is_written_without_being_asked(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", header(), BYTES, interval_s=0.01) as journal:
        journal.append(read(0))
        until_s = time.monotonic() + 20.0
        while journal.status.written < 1 and time.monotonic() < until_s:
            time.sleep(0.01)
        assert find_run(tmp_path / "j").entries == 1


def test_folder_and_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "journal.sqlite"
    before = os.umask(0)
    try:
        with Journal(path, header(), BYTES) as journal:
            journal.append(read(0))
            assert journal.flush(20.0)
            found = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(found) == 3
    assert set(found.values()) == {0o600}


def test_a_file_that_others_may_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "j"
    Journal(path, header(), BYTES).close(20.0)
    path.touch()
    path.chmod(0o644)
    with Journal(path, header(), BYTES) as journal:
        journal.append(read(0))
        assert journal.flush(20.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_close_twice_and_append_after_close(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", header(), BYTES)
    journal.append(read(0))
    assert journal.close(20.0)
    assert journal.close(20.0)
    journal.append(read(1))
    assert not journal.flush(20.0)
    assert [entry.number for entry in journal.entries()] == [0, 1]


def test_a_full_queue_drops_the_oldest_and_the_journal_tells(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES, interval_s=600.0, queue_entries=100) as journal:
        for number in range(1_000):
            journal.append(read(number))
        journal.flush(20.0)
        for number in range(1_000, 1_050):
            journal.append(read(number))
        assert journal.flush(20.0)
        assert journal.status.dropped == 900
    run = find_run(path)
    assert [(gap.first, gap.count) for gap in gaps(run)] == [(0, 900)]
    assert [entry.number for entry in entries(run)] == list(range(900, 1_050))


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "j"
    pause = "time.sleep(0.0005)"
    writers = [start(path, seed, 1_500, pause) for seed in (1, 2)]
    faults = [writer.communicate(timeout=60)[1] for writer in writers]
    assert faults == ["", ""]
    found = runs(path)
    assert sorted(run.header.seed for run in found) == [1, 2]
    for run in found:
        assert [entry.number for entry in entries(run)] == list(range(1_500))


def test_a_process_that_just_ends_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    began_s = time.monotonic()
    writer = start(path, 1, 700, last="sys.exit(3)")
    assert writer.communicate(timeout=60)[1] == ""
    assert writer.returncode == 3
    assert find_run(path).entries == 700
    assert time.monotonic() - began_s < 60


def test_a_journal_let_go_of_writes_what_it_has_and_ends_its_thread(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", header(), BYTES)
    journal.append(read(0))
    (thread,) = [one for one in threading.enumerate() if one.name == "grainshift-journal"]
    del journal
    gc.collect()
    thread.join(20.0)
    assert not thread.is_alive()
    assert find_run(tmp_path / "j").entries == 1


def in_child(work: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES, interval_s=600.0) as journal:
        for number in range(100):
            journal.append(read(number))

        def child() -> bool:
            journal.append(read(7_000))
            flushed = journal.flush(0.1)
            mine = [entry.event for entry in journal.entries()]
            return not flushed and mine == [read(7_000)] and bool(journal.status.fault)

        assert in_child(child) == 0
        for number in range(100, 200):
            journal.append(read(number))
        assert journal.flush(20.0)
    assert [entry.event for entry in entries(find_run(path))] == [read(n) for n in range(200)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_may_keep_a_journal_of_its_own_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "j"

    def child() -> bool:
        if Path("/proc/self/fd").exists():  # SQLite's locks do not hold where these are shared
            opened = [
                str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()
            ]
            assert not [name for name in opened if name.startswith(str(path))]
        with Journal(path, header(seed=9), BYTES) as own:
            for number in range(500):
                own.append(read(number))
            return own.flush(20.0)

    with Journal(path, header(seed=1), BYTES, interval_s=0.001) as journal:
        for number in range(300):
            journal.append(read(number))
            if number % 100 == 50:
                assert journal.flush(20.0)
                assert in_child(child) == 0
        assert journal.flush(20.0)
    found = runs(path)
    assert sorted((run.header.seed, run.entries) for run in found) == [
        (1, 300),
        (9, 500),
        (9, 500),
        (9, 500),
    ]
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_killed_writers_leave_a_journal_that_opens(tmp_path: Path) -> None:
    done = kill(tmp_path / "j", kills=4, seed=1)
    assert all(one.opened and not one.fault for one in done)
    assert sum(one.kept for one in done) > 0


def test_a_killed_process_keeps_what_was_flushed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    last = "journal.flush(20.0); import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    writer = start(path, 1, 50, last=last)
    writer.communicate(timeout=60)
    assert writer.returncode == -signal.SIGKILL
    assert find_run(path).entries == 50


def test_no_warning_while_all_is_well(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    with Journal(tmp_path / "j", header(), BYTES) as journal:
        journal.append(read(0))
        assert journal.flush(20.0)
    assert [one for one in recwarn if issubclass(one.category, JournalWarning)] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_holds_nothing_that_makes_its_own_forks_wait(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", header(), BYTES) as journal:
        assert in_child(lambda: journal._pump._file_lock.acquire(blocking=False)) == 0
        journal.append(read(1))
        assert journal.flush(20.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_a_write_takes_long_leaves_the_writer_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES) as journal:
        journal.append(read(1))
        assert journal.flush(20.0)
        with journal._pump._file_lock:  # as a writer holds it that waits for another process
            assert in_child(lambda: True) == 0
            assert journal._pump._file_lock.locked()
        journal.append(read(2))
        assert journal.flush(20.0)
    assert [entry.event for entry in entries(find_run(path))] == [read(1), read(2)]


def test_journals_that_are_gone_leave_nothing_to_tell_of_forks(tmp_path: Path) -> None:
    gc.collect()
    before = len(forks._writers)
    for _ in range(5):
        with Journal(tmp_path / "j", header(), BYTES):
            assert len(forks._writers) > before
        gc.collect()
    assert len(forks._writers) <= before
