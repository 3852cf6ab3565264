import math
import shutil
import sqlite3
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from journal_values import header, nobody, read

from grainshift.core.choice import Choice
from grainshift.journal import Experience, ExperienceKey, Journal, entries, find_run
from grainshift.journal.experience import HALF_LIFE_S, MOST_BLOCKS

KEY = ExperienceKey("machine-1", (("torch", "2.13.0"),), "f00d", "B1xT128")
FAST = Choice("unrolled", (8,))


def test_what_is_remembered_is_recalled(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "j"
    assert Experience(path).recall(KEY) == {}
    assert Experience(path).remember(KEY, FAST, 0.25, 8, 100.0)
    assert Experience(path).remember(KEY, "rolled", -0.5, 4, 100.0)
    assert Experience(path).recall(KEY) == {"unrolled(8)": (0.25, 8), "rolled": (-0.5, 4)}


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, machine="machine-2"),
        replace(KEY, versions=(("torch", "2.14.0"),)),
        replace(KEY, site="beef"),
        replace(KEY, bucket="B2"),
    ],
)
def test_it_holds_nowhere_else(tmp_path: Path, other: ExperienceKey) -> None:
    experience = Experience(tmp_path / "j")
    assert experience.remember(KEY, FAST, 0.25, 8, 100.0)
    assert experience.recall(other) == {}


def test_the_order_of_versions_does_not_matter(tmp_path: Path) -> None:
    one = replace(KEY, versions=(("python", "3.11"), ("torch", "2.13")))
    two = replace(KEY, versions=(("torch", "2.13"), ("python", "3.11")))
    assert str(one) == str(two)


def test_trials_are_weighed_by_their_blocks(tmp_path: Path) -> None:
    experience = Experience(tmp_path / "j")
    assert experience.remember(KEY, FAST, 0.4, 30, 100.0)
    assert experience.remember(KEY, FAST, 0.0, 10, 100.0)
    gain, blocks = experience.recall(KEY)["unrolled(8)"]
    assert math.isclose(gain, 0.3)
    assert blocks == 40


def test_old_trials_count_less(tmp_path: Path) -> None:
    experience = Experience(tmp_path / "j")
    assert experience.remember(KEY, FAST, 0.4, 32, 0.0)
    assert experience.recall(KEY, at_s=HALF_LIFE_S)["unrolled(8)"] == (0.4, 16)
    assert experience.recall(KEY, at_s=20 * HALF_LIFE_S) == {}
    assert experience.remember(KEY, FAST, 0.0, 16, HALF_LIFE_S)
    gain, blocks = experience.recall(KEY)["unrolled(8)"]
    assert math.isclose(gain, 0.2)
    assert blocks == 32


def test_a_new_trial_always_has_a_say(tmp_path: Path) -> None:
    experience = Experience(tmp_path / "j")
    for number in range(60):
        assert experience.remember(KEY, FAST, 0.4, 64, float(number))
    assert experience.recall(KEY)["unrolled(8)"][1] == MOST_BLOCKS
    assert experience.remember(KEY, FAST, -0.4, 64, 100.0)
    assert experience.recall(KEY)["unrolled(8)"][0] < 0.3


@pytest.mark.parametrize("gain, blocks", [(math.nan, 8), (0.5, 0)])
def test_nonsense_is_not_kept(tmp_path: Path, gain: float, blocks: int) -> None:
    experience = Experience(tmp_path / "j")
    assert not experience.remember(KEY, FAST, gain, blocks, 1.0)
    assert experience.recall(KEY) == {}


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    experience = Experience(tmp_path / "j", most_rows=5)
    for number in range(9):
        assert experience.remember(KEY, Choice("unrolled", (number,)), 0.1, 8, float(number))
    assert set(experience.recall(KEY)) == {f"unrolled({number})" for number in range(4, 9)}


def test_it_lives_in_the_journals_file(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, header(), 8 << 20) as journal:
        for number in range(100):
            journal.append(read(number))
            if number % 10 == 0:
                assert Experience(path).remember(KEY, FAST, 0.25, 1, 1.0)
        assert journal.flush(20.0)
    assert Experience(path).recall(KEY)["unrolled(8)"][1] == 10
    assert len(list(entries(find_run(path)))) == 100


def test_faults_are_silent_and_empty(tmp_path: Path) -> None:
    locked, broken = tmp_path / "locked", tmp_path / "broken"
    assert Experience(locked).remember(KEY, FAST, 0.25, 8, 1.0)
    other = sqlite3.connect(locked, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    broken.write_bytes(b"nonsense" * 999)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not Experience(locked).remember(KEY, FAST, 0.5, 8, 1.0)
        assert not Experience(broken).remember(KEY, FAST, 0.5, 8, 1.0)
        assert Experience(broken).recall(KEY) == {}
        assert not Experience(tmp_path).remember(KEY, FAST, 0.5, 8, 1.0)
        assert Experience(tmp_path).recall(KEY) == {}
    other.close()
    assert Experience(locked).recall(KEY) == {"unrolled(8)": (0.25, 8)}


def test_an_unwritable_folder_is_silent() -> None:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    try:
        with nobody():
            assert not Experience(folder / "j").remember(KEY, FAST, 0.5, 8, 1.0)
            assert Experience(folder / "j").recall(KEY) == {}
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)
