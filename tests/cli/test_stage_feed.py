"""Following a run through its Journal: what is counted and what is told."""

from pathlib import Path

import pytest

from grainshift.cli.stage.feed import Feed
from grainshift.core.choice import Choice
from grainshift.core.events import AnyEvent, Compared, Offer, Opened, Proposed, Read
from grainshift.core.forecast import Forecast
from grainshift.core.instructions import AnyInstruction, Deal, Swap
from grainshift.core.proposal import Proposal
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.core.site import Site, Tempo
from grainshift.journal import Journal, new_run

SITE = Site("recurrence", "encoder", "f00d", Tempo.SEGMENT)
CASE = (SITE.key, "B1")
OFFERS = (
    Offer(Choice("stock"), Forecast()),
    Offer(Choice("rolled"), Forecast(), remembered=0.2),
)
TRIAL, PROBE = (0, 1, 1, 0), (0, 1, 1, 0)


@pytest.fixture
def journal(tmp_path: Path):
    with Journal(tmp_path / "j", new_run(1.0, "m", {}, Settings()), 64 << 20) as opened:
        yield opened


def runs(at_s: float, trial: int, order: tuple[int, ...]) -> Read:
    return Read(at_s, *CASE, tuple(Reading(arm, 0.01, 1.0, trial) for arm in order))


def write(journal: Journal, *steps: tuple[AnyEvent, tuple[AnyInstruction, ...]]) -> None:
    for event, instructions in steps:
        journal.append(event, instructions)
    assert journal.flush(20.0)


def test_runs_are_counted_by_what_they_are_for(journal: Journal) -> None:
    feed = Feed(journal)
    write(
        journal,
        (Opened(0.0, SITE, "B1", OFFERS), ()),
        (Read(1.0, *CASE, (Reading(0, 0.01),), 10), ()),
        (Proposed(2.0, *CASE, Proposal(1)), ()),
        (Compared(3.0, *CASE, 1, 0.0, 0.01, 0.02), (Deal(*CASE, 1, TRIAL, 1),)),
        (runs(4.0, 1, TRIAL), (Deal(*CASE, 1, TRIAL, 1, 1),)),
        (runs(5.0, 1, TRIAL), (Swap(*CASE, 1, "faster"),)),
        (Read(6.0, *CASE, (Reading(1, 0.01),), 20), (Deal(*CASE, 2, PROBE, 1),)),
        (runs(7.0, 2, PROBE), ()),
    )
    feed.poll()
    counts = feed.counts
    assert counts.runs == 10 + 1 + 4 + 4 + 20 + 4
    assert counts.trial_runs == 1 + 2 + 2  # the baseline's runs were live ones
    assert counts.probe_runs == 2  # now they are the baseline's
    assert (counts.trials, counts.remembered) == (1, 1)


def test_only_what_is_new_is_told(journal: Journal) -> None:
    feed = Feed(journal)
    write(journal, (Opened(0.0, SITE, "B1", OFFERS), ()))
    assert [told.line.what for told in feed.poll()] == ["opened"]
    before = feed.counts
    write(journal, (Read(1.0, *CASE, (), 7), (Swap(*CASE, 1, "faster"),)))
    told = feed.poll()
    assert [(one.site_key, one.line.what) for one in told][-1] == (SITE.key, "swapped")
    assert "faster" in told[-1].line.text
    assert feed.counts.minus(before).runs == 7
    assert feed.poll() == []


def test_an_answer_to_stay_is_not_told(journal: Journal) -> None:
    feed = Feed(journal)
    write(
        journal,
        (Opened(0.0, SITE, "B1", OFFERS), ()),
        (Proposed(1.0, *CASE, Proposal(0)), ()),
        (Proposed(2.0, *CASE, Proposal(1)), (Swap(*CASE, 1, "faster"),)),
        (Proposed(3.0, *CASE, Proposal(1)), ()),
    )
    proposed = [told.line.at_s for told in feed.poll() if told.line.what == "proposed"]
    assert proposed == [2.0]


def test_a_journal_that_cannot_be_read_leaves_the_feed_silent(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with (
        pytest.warns(UserWarning),
        Journal(blocked / "j", new_run(1.0, "m", {}, Settings()), 64 << 20) as journal,
    ):
        feed = Feed(journal)
        journal.append(Opened(0.0, SITE, "B1", OFFERS))
        journal.flush(5.0)
        assert feed.poll() == [] and feed.fault
