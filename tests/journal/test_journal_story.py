import random
from dataclasses import replace
from pathlib import Path

import pytest
from journal_values import SITE, header, note, opened, read

from grainshift.core.choice import Choice, plan
from grainshift.core.errors import JournalFault
from grainshift.core.events import (
    AnyEvent,
    Built,
    Compared,
    Extended,
    Failed,
    Lost,
    Offer,
    Opened,
    Proposed,
    Read,
)
from grainshift.core.forecast import Forecast
from grainshift.core.instructions import (
    AnyInstruction,
    Build,
    Deal,
    Quarantine,
    Remember,
    Swap,
)
from grainshift.core.proposal import Proposal
from grainshift.core.reading import Reading
from grainshift.journal import Entry, Journal, story, tell
from grainshift.journal.rotate import LEAST_BYTES

KEY = SITE.key
Step = tuple[AnyEvent, tuple[AnyInstruction, ...]]


def trial(at_s: float, number: int, block: int) -> Read:
    runs = tuple(
        Reading(arm, seconds, 10.0, number, block)
        for arm, seconds in ((0, 0.03), (1, 0.02), (1, 0.02), (0, 0.03))
    )
    return Read(at_s, KEY, "B1", runs)


LIFE: list[Step] = [
    (opened(10.0), ()),
    (Read(11.0, KEY, "B1", (Reading(0, 0.03, 10.0),), 8), ()),
    (Proposed(12.0, KEY, "B1", Proposal(1, (0.0, 0.25))), (Build(KEY, "B1", 1),)),
    (Built(13.0, KEY, "B1", 1, 0.5, 4_096), ()),
    (Compared(14.0, KEY, "B1", 1, 2e-7, 0.02, 0.03), (Deal(KEY, "B1", 1, (0, 1, 1, 0), 2),)),
    (trial(15.0, 1, 0), ()),
    (trial(16.0, 1, 1), (Remember(KEY, "B1", 1, 0.405, 2), Swap(KEY, "B1", 1, "faster"))),
    (Read(17.0, KEY, "B1", (Reading(1, 0.02, 10.0),) * 3, 100), ()),
    (trial(18.0, 2, 0), (note("the level has moved: looking again"),)),
    (trial(19.0, 3, 0), (Swap(KEY, "B1", 0, "no longer faster"),)),
    (
        Failed(20.0, KEY, "B1", 1, "wrong", "error 0.3"),
        (Quarantine(KEY, "B1", 1, "wrong: error 0.3"),),
    ),
    (Extended(21.0, KEY, "B1", (Offer(Choice("hybrid", (4,)), Forecast()),)), ()),
    (Proposed(22.0, KEY, "B1", Proposal(2)), ()),
    (Lost(23.0, KEY), ()),
]
EXPECTED = [
    ("opened", "opened with stock, unrolled(8)"),
    ("proposed", "unrolled(8), scored +0.25"),
    ("building", "unrolled(8)"),
    ("built", "unrolled(8) in 500 ms, holds 4,096 bytes"),
    ("compared", "unrolled(8): error 2e-07, 20 ms beside 30 ms"),
    ("tried", "trial 1, 2 blocks, 8 runs: stock 3 ms, unrolled(8) 2 ms a unit"),
    ("remembered", "unrolled(8): log gain +0.405 in 2 blocks"),
    ("ran", "stock for 8 calls, 3 ms a unit"),
    ("swapped", "from stock to unrolled(8): faster"),
    ("tried", "trial 2, 1 blocks, 4 runs: stock 3 ms, unrolled(8) 2 ms a unit"),
    ("noted", "the level has moved: looking again"),
    ("tried", "trial 3, 1 blocks, 4 runs: stock 3 ms, unrolled(8) 2 ms a unit"),
    ("ran", "unrolled(8) for 100 calls, 2 ms a unit"),
    ("reverted", "from unrolled(8) to stock: no longer faster"),
    ("failed", "unrolled(8) (wrong): error 0.3"),
    ("quarantined", "unrolled(8): wrong: error 0.3"),
    ("extended", "further Choices: hybrid(4)"),
    ("proposed", "hybrid(4)"),
    ("lost", "went stale: the Program changed under it"),
]


def write(path: Path, steps: list[Step], **settings: int) -> str:
    began = header(**settings)
    with Journal(path, began, 8 << 20) as journal:
        for event, instructions in steps:
            journal.append(event, instructions)
        assert journal.flush(20.0)
    return began.run


def test_a_life_is_told() -> None:
    entries = [Entry(number, *step) for number, step in enumerate(LIFE)]
    lines = tell(entries, KEY)
    assert [(line.what, line.text) for line in lines] == EXPECTED
    assert [line.at_s for line in lines] == sorted(line.at_s for line in lines)


def test_a_life_is_told_from_the_file_of_the_latest_run_that_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first = write(path, LIFE[:4])
    second = write(path, LIFE)
    other = [step for step in LIFE if isinstance(step[0], Failed)]
    write(path, [(Failed(1.0, "regions:x", "B1", 0, "build", "no"), ()) for _ in other])
    whole, start = story(path, KEY), story(path, KEY, run=first)
    assert [(line.what, line.text) for line in story(path, KEY, run=second)] == EXPECTED
    assert len(whole) in (len(EXPECTED), 5)
    assert [line.what for line in start] == ["opened", "proposed", "building", "built", "ran"]


def test_an_unknown_site_lists_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path / "j", LIFE)
    with pytest.raises(JournalFault) as told:
        story(tmp_path / "j", "recurrence:decoder")
    assert "'recurrence:decoder'" in str(told.value)
    assert KEY in str(told.value)
    assert "\n" not in str(told.value)


def test_a_cut_run_says_so(tmp_path: Path) -> None:
    path, draw = tmp_path / "j", random.Random(0)
    with Journal(path, header(), LEAST_BYTES) as journal:
        for number in range(5_000):
            journal.append(read(number), (note(draw.randbytes(150).hex()),))
            if number % 500 == 0:
                assert journal.flush(20.0)
        assert journal.flush(20.0)
    lines = story(path, KEY)
    assert lines[0].what == "cut"
    assert "rotated away" in lines[0].text
    assert lines[-1].what == "ran"


def test_plans_are_told_part_by_part_and_what_ran_with_its_modelled_hits() -> None:
    parts = tuple(replace(SITE, path=f"{SITE.path}.l{number}") for number in range(2))
    profiles = Choice("rolled"), Choice("unrolled", (8,))
    offers = (
        Offer(Choice("stock"), Forecast(hits=(("l1", 0.5), ("l2", 0.994)))),
        Offer(plan(profiles), Forecast(hits=(("l1", 0.6), ("l2", 1.0)))),
    )
    life: list[Step] = [
        (Opened(1.0, replace(SITE, parts=parts), "B1", offers), ()),
        (Read(2.0, KEY, "B1", (Reading(0, 0.03, 10.0),), 8), (Swap(KEY, "B1", 1, "faster"),)),
        (Read(3.0, KEY, "B1", (Reading(1, 0.02, 10.0),), 9), ()),
    ]
    told = tell((Entry(number, *step) for number, step in enumerate(life)), KEY)
    assert [line.text for line in told] == [
        "opened with stock, plan(l0: rolled, l1: unrolled(8))",
        "stock for 8 calls, 3 ms a unit; modelled cache hits l1 50%, l2 99%",
        "from stock to plan(l0: rolled, l1: unrolled(8)): faster",
        "plan(l0: rolled, l1: unrolled(8)) for 9 calls, 2 ms a unit;"
        " modelled cache hits l1 60%, l2 100%",
    ]
