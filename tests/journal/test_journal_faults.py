import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from journal_values import NOBODY, header, nobody, note, read

from grainshift.core.errors import JournalFault
from grainshift.journal import (
    Experience,
    ExperienceKey,
    Journal,
    JournalWarning,
    entries,
    find_run,
    gaps,
    runs,
    tell,
)
from grainshift.journal.file import open_to_write
from grainshift.journal.inbox import Inbox
from grainshift.journal.pump import Pump
from grainshift.journal.rotate import Bounds
from grainshift.journal.write import RunFile

BYTES = 8 << 20


@contextmanager
def one_warning() -> Iterator[list[str]]:
    """Exactly one JournalWarning, one line long, comes out of the block."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
    told += [str(one.message) for one in caught if issubclass(one.category, JournalWarning)]
    assert len(told) == 1
    assert "\n" not in told[0]


def goes_on_in_memory(journal: Journal) -> None:
    for number in range(50):
        journal.append(read(number), (note(f"note {number}"),))
        if number == 25:
            assert not journal.flush(5.0)
    assert not journal.flush(5.0)
    kept = journal.entries()
    assert [entry.event for entry in kept] == [read(number) for number in range(50)]
    assert tell(kept, read(0).site_key)[-1].what == "ran"
    assert journal.status.fault


def write_some(path: Path, count: int = 3_000, **settings: int) -> None:
    with Journal(path, header(**settings), BYTES) as journal:
        for number in range(count):
            journal.append(read(number), (note(str(number)),))
        assert journal.flush(20.0)


def test_locked_then_free_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write_some(path, 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with one_warning() as told, Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
        other.execute("COMMIT")
        other.close()
        assert journal.flush(20.0)
        assert not journal.status.fault
        assert [entry.number for entry in entries(find_run(path))] == list(range(50))
    assert "locked" in told[0]
    assert str(path) in told[0]


def test_close_does_not_wait_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write_some(path, 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with one_warning():
        journal = Journal(path, header(), BYTES)
        journal.append(read(0))
        assert not journal.close(0.01)
        pump_thread = journal._pump._thread
        assert pump_thread is not None
        pump_thread.join(20.0)
    other.close()


def test_full_then_room_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    opened: list[sqlite3.Connection] = []
    pages = 40

    def small(where: Path, wal_bytes: int) -> sqlite3.Connection:
        connection = open_to_write(where, wal_bytes)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        opened.append(connection)
        return connection

    inbox = Inbox(20_000)
    file = RunFile(path, header(), Bounds(BYTES), lambda: 1.0, small)
    pump = Pump(inbox, file, str(path), 600.0)
    with one_warning() as told:
        pump.start()
        number = 0
        while number < 200_000:
            for _ in range(500):
                inbox.put(read(number), (note("x" * (number % 97)),))
                number += 1
            if not pump.flush(20.0):
                break
        assert "full" in pump.fault
        assert len(inbox.entries()) == number - pump.written > 0
        assert not pump.flush(20.0)
        pages = 100_000
        assert pump.flush(20.0)
        assert pump.stop(20.0)
    assert "full" in told[0]
    assert [entry.number for entry in entries(find_run(path))] == list(range(number))


FULL_DISK = """
import resource, sys, warnings
sys.path.insert(0, {tests!r})
from pathlib import Path
from journal_values import header, read
from grainshift.journal import Journal
journal = Journal(Path({path!r}), header(), 8 << 20)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
warnings.simplefilter("always")
for number in range(19_000):
    journal.append(read(number))
    if number % 1_000 == 0:
        journal.flush(5.0)
written = journal.flush(5.0)
kept = journal.entries()
assert not written, "the limit was not reached"
assert [entry.number for entry in kept] == list(range(19_000)), len(kept)
"""


def test_the_system_refuses_to_let_files_grow(tmp_path: Path) -> None:
    path = tmp_path / "j"
    text = FULL_DISK.format(tests=str(Path(__file__).parent), path=str(path))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("JournalWarning") == 1
    run = find_run(path)
    assert [entry.number for entry in entries(run)] == list(range(run.entries))
    assert run.entries > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"not a database at all" + data[21:],
        lambda data: data[:100] + b"\xff" * 4_000 + data[4_100:],
        lambda data: b"\x00" * 10_000,
        lambda data: data[:16] + b"\xff" * 84 + data[100:],
    ],
    ids=["magic", "schema", "zeros", "header"],
)
def test_a_corrupt_file_is_moved_aside(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "j"
    write_some(path, 500)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    broken = path.read_bytes()
    with one_warning() as told, Journal(path, header(seed=5), BYTES) as journal:
        for number in range(20):
            journal.append(read(number))
        assert journal.flush(20.0)
        assert not journal.status.fault
    assert "moved" in told[0]
    assert path.with_name("j.corrupt").read_bytes() == broken
    (run,) = runs(path)
    assert (run.header.seed, run.entries) == (5, 20)


def test_pages_broken_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write_some(path, 3_000)
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4_096):
        data[page * 4_096 : page * 4_096 + 64] = b"\xa5" * 64
    path.write_bytes(bytes(data))
    with one_warning() as told, Journal(path, header(seed=5), BYTES) as journal:
        for number in range(20):
            journal.append(read(number))
        assert journal.flush(20.0)
    assert "moved" in told[0]
    assert [entry.number for entry in entries(find_run(path))] == list(range(20))


def test_two_that_find_it_corrupt_do_not_move_each_others_new_one(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"nonsense" * 1_000)
    path.chmod(0o600)
    files = [RunFile(path, header(seed=seed), Bounds(BYTES), lambda: 1.0) for seed in (1, 2)]
    faults: list[Exception] = []
    for file in files:
        with pytest.raises(sqlite3.DatabaseError) as caught:
            file.write([], 0)
        faults.append(caught.value)
    assert files[0].start_anew(faults[0]) == path.with_name("j.corrupt")
    files[0].write([], 0)
    fresh = path.stat().st_ino
    assert files[1].start_anew(faults[1]) == path
    assert path.stat().st_ino == fresh


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that users without rights can reach, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    path = open_folder / "sub" / "j"
    with nobody(), one_warning() as told, Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
    assert "denied" in told[0]
    assert list(open_folder.iterdir()) == []


def test_a_corrupt_file_that_cannot_be_moved(open_folder: Path) -> None:
    path = open_folder / "j"
    with nobody():
        path.write_bytes(b"nonsense" * 1_000)
        path.chmod(0o600)
    open_folder.chmod(0o555)
    with nobody(), one_warning() as told, Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
    assert "cannot be moved" in told[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_file_of_another_user_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"")
    os.chown(path, NOBODY, NOBODY)
    with one_warning() as told, Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
    assert "another user" in told[0]
    assert path.read_bytes() == b""


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    with one_warning() as told, Journal(tmp_path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
    assert "not a file" in told[0]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with one_warning(), Journal(tmp_path / "cache" / "j", header(), BYTES) as journal:
        goes_on_in_memory(journal)


def test_a_path_that_cannot_even_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300) / "j"
    with one_warning(), Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
    key = ExperienceKey("machine", (), "site", "bucket")
    assert Experience(path).recall(key) == {}
    with pytest.raises(JournalFault, match="cannot be read"):
        find_run(path)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs(x)")
    with one_warning() as told, Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
    assert "not a Journal" in told[0]
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    with pytest.raises(JournalFault, match="not a Journal"):
        runs(path)


def test_another_versions_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write_some(path, 10)
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    with one_warning() as told, Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
    assert "format 99" in told[0]
    assert not path.with_name("j.corrupt").exists()


def test_too_few_bytes(tmp_path: Path) -> None:
    with one_warning() as told, Journal(tmp_path / "j", header(), 1_000) as journal:
        goes_on_in_memory(journal)
    assert "1000 bytes" in told[0]
    assert not (tmp_path / "j").exists()


def test_a_file_removed_under_the_writer_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES) as journal:
        journal.append(read(0))
        assert journal.flush(20.0)
        for one in tmp_path.iterdir():
            one.unlink()
        journal.append(read(1))
        assert journal.flush(20.0)
        run = find_run(path)
        assert [entry.number for entry in entries(run)] == [1]
        assert [(gap.first, gap.count) for gap in gaps(run)] == [(0, 1)]


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_the_writer_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "j"
    (tmp_path / "sub").write_text("")
    with Journal(path, header(), BYTES) as journal:
        goes_on_in_memory(journal)
        (tmp_path / "sub").unlink()
        assert journal.flush(20.0)
        assert find_run(path).entries == 50


def test_memory_stays_bounded_while_nothing_can_be_written(tmp_path: Path) -> None:
    with one_warning(), Journal(tmp_path, header(), BYTES, queue_entries=100) as journal:
        for number in range(5_000):
            journal.append(read(number))
            if number % 500 == 0:
                journal.flush(5.0)
        journal.flush(5.0)
        assert [entry.number for entry in journal.entries()] == list(range(4_900, 5_000))
        assert journal.status.dropped == 4_900
