import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_values import NOBODY, header, nobody, note, opened, read, sensed

from grainshift.core.errors import JournalFault
from grainshift.journal import Journal, entries, find_run, runs, sites
from grainshift.journal.header import header_from_text, header_to_text

BYTES = 8 << 20


@pytest.fixture
def open_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def write_some(path: Path, count: int = 10, **settings: int) -> str:
    began = header(**settings)
    with Journal(path, began, BYTES) as journal:
        journal.append(opened())
        for number in range(1, count):
            journal.append(read(number), (note(str(number)),))
        assert journal.flush(20.0)
    return began.run


def test_a_header_comes_back() -> None:
    began = header(seed=5, canary_calls=(2, 4, 8), margin=0.125)
    assert header_from_text(header_to_text(began)) == began


def test_a_header_of_another_version_is_told() -> None:
    text = header_to_text(header()).replace('"margin"', '"frobnication"')
    with pytest.raises(JournalFault, match="frobnication"):
        header_from_text(text)


def test_a_header_without_a_newer_setting_takes_the_default() -> None:
    text = header_to_text(header()).replace('"margin": 0.01, ', "")
    assert '"margin"' not in text
    assert header_from_text(text).settings == header().settings


def test_runs_are_found_by_name_by_first_letters_and_by_date(tmp_path: Path) -> None:
    path = tmp_path / "j"
    names = [write_some(path, seed=seed) for seed in range(3)]
    assert {run.header.run for run in runs(path)} == set(names)
    assert find_run(path, names[0]).header.seed == 0
    assert find_run(path, names[1][:8]).header.run == names[1]
    with pytest.raises(JournalFault, match="several runs"):
        find_run(path, "")
    with pytest.raises(JournalFault, match=names[2]):
        find_run(path, "zzz")


def test_reading_while_another_writes(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES) as journal:
        for number in range(3_000):
            journal.append(read(number))
            if number % 500 == 0:
                journal.flush(20.0)
                numbers = [entry.number for entry in entries(find_run(path))]
                assert numbers == list(range(number + 1))


def test_a_reader_half_way_through_does_not_stop_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES) as journal:
        for number in range(500):
            journal.append(read(number))
        journal.flush(20.0)
        half = entries(find_run(path))
        assert next(half).number == 0
        for number in range(500, 1_000):
            journal.append(read(number))
        assert journal.flush(20.0)
        assert [entry.number for entry in half] == list(range(1, 1_000))


def test_entries_of_one_site(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES) as journal:
        journal.append(opened(), (note("a"),))
        journal.append(sensed(1.0))
        journal.append(sensed(2.0), (note("b"),))
        journal.append(read(3))
        journal.flush(20.0)
    run = find_run(path)
    assert [entry.number for entry in entries(run, read(0).site_key)] == [0, 2, 3]
    assert list(entries(run, "regions:nothing")) == []
    assert sites(run) == (read(0).site_key,)


def test_no_journal_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalFault, match="there is no Journal"):
        runs(tmp_path / "j")


@pytest.mark.parametrize("content", [b"", b"nonsense" * 999], ids=["empty", "nonsense"])
def test_what_is_no_journal_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(JournalFault, match=str(tmp_path / "j")):
        runs(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == content


def test_a_broken_chunk_is_told_after_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write_some(path, 2_000)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE chunk SET data = x'00' WHERE first = (SELECT max(first) FROM chunk)")
    numbers: list[int] = []
    with pytest.raises(JournalFault, match="cannot be read"):
        for entry in entries(find_run(path)):
            numbers.append(entry.number)  # noqa: PERF401 - those before the fault are wanted
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 2_000


def test_a_read_only_folder(open_folder: Path) -> None:
    path = open_folder / "j"
    with nobody():
        write_some(path, 100)
        open_folder.chmod(0o555)
        assert find_run(path).entries == 100
        assert len(list(entries(find_run(path)))) == 100


def test_a_read_only_folder_with_writes_left_in_the_wal(open_folder: Path, tmp_path: Path) -> None:
    path = open_folder / "j"
    with Journal(tmp_path / "j", header(), BYTES) as journal:
        journal.append(read(0))
        journal.flush(20.0)
        for name in ("j", "j-wal"):
            shutil.copy(tmp_path / name, open_folder / name)
            (open_folder / name).chmod(0o644)
    open_folder.chmod(0o555)
    with nobody(), pytest.raises(JournalFault, match="copy both files"):
        runs(path)
