"""Following a run while it goes on: only what is new is read, and told as it comes."""

from pathlib import Path

import pytest
from journal_values import SITE, header, note, opened, read

from grainshift.journal import Entry, Journal, Teller, entries, find_run, tell

BYTES = 64 << 20


@pytest.mark.parametrize("first", [0, 1, 511, 512, 513, 1_299, 1_300])
def test_entries_from_a_number_on(tmp_path: Path, first: int) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), BYTES) as journal:
        for number in range(1_300):
            journal.append(read(number))
            if number == 700:
                journal.flush(20.0)
    found = [entry.number for entry in entries(find_run(path), first=first)]
    assert found == list(range(first, 1_300))


def test_a_story_told_as_it_comes_is_the_whole_story() -> None:
    life = [Entry(0, opened(), ()), Entry(1, read(1), ())]
    life += [Entry(n, read(n), (note(f"n{n}"),)) for n in range(2, 9)]
    teller = Teller(SITE.key)
    told = [teller.hear(entry) for entry in life]
    assert [len(lines) for lines in told[:3]] == [1, 0, 1]
    assert (*(line for lines in told for line in lines), *teller.end()) == tell(life, SITE.key)
