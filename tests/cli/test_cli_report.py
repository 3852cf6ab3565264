"""The command `report`: how a run ended, from its Journal alone."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grainshift import cli
from grainshift.api.reporting import site_line
from grainshift.cli.report import end_of
from grainshift.core.choice import Choice
from grainshift.core.events import AnyEvent, Built, Compared, Offer, Opened, Proposed, Read
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.instructions import Ask, Build, Compare, Deal, Swap
from grainshift.core.proposal import Proposal
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.core.site import Site, Tempo
from grainshift.guards import make_guards
from grainshift.journal import Journal, find_run, new_run, runs
from grainshift.tuner import loop
from grainshift.tuner.state import State

RUNNER = CliRunner()
SITE = Site("recurrence", "encoder", "f00d", Tempo.SEGMENT)
CASE = (SITE.key, "B1")
OFFERS = (
    Offer(Choice("stock"), Forecast()),
    Offer(Choice("rolled"), Forecast(time_ratio=0.8, spread=0.1)),
)
COST_S = (0.010, 0.005)
BYTES = 64 << 20


def answers(said: object, at_s: float) -> list[AnyEvent]:
    """What a machine answers on which the second Choice takes half the time."""
    match said:
        case Ask():
            return [Proposed(at_s, *CASE, Proposal(1))]
        case Build(arm=arm):
            return [Built(at_s, *CASE, arm, 0.0)]
        case Compare(arm=arm):
            return [Compared(at_s, *CASE, arm, 0.0, COST_S[arm], COST_S[0])]
        case Deal(trial=trial, order=order, blocks=blocks, first_block=first):
            numbers = range(first, first + blocks)
            cards = [(arm, block) for block in numbers for arm in order]
            runs = tuple(Reading(arm, COST_S[arm], 1.0, trial, block) for arm, block in cards)
            return [Read(at_s, *CASE, runs)]
    return []


def run_in(
    path: Path, *, until: int = 60, at_s: float = 1.0, swaps: bool = True, one_by_one: bool = False
) -> State:
    """A run that the real loop decided, in a Journal; perhaps with its Swaps left out of it."""
    settings, limits = Settings(), Limits()
    state = loop.begin(settings, limits, make_guards(settings, limits))
    with Journal(path, new_run(at_s, "m", {"torch": "2.13.0"}, settings), BYTES) as journal:
        queue: list[AnyEvent] = [Opened(0.0, SITE, "B1", OFFERS)]
        for number in range(until):
            live = state.cases[CASE].live if state.cases else 0
            own = Read(number / 10, *CASE, (Reading(live, COST_S[live]),), 4, 4 * COST_S[live], 4.0)
            event = queue.pop(0) if queue else own
            state, said = loop.step(state, event)
            for done in said:
                queue.extend(answers(done, number / 10))
            recorded = said if swaps else tuple(d for d in said if not isinstance(d, Swap))
            journal.append(event, recorded)
            assert not one_by_one or journal.flush(20.0)
    return state


def test_the_end_of_a_run_is_what_the_live_model_would_report(tmp_path: Path) -> None:
    state = run_in(tmp_path / "j")
    report = end_of(find_run(tmp_path / "j"))
    (line,) = report.lines
    assert line.live == "rolled" and line.why.startswith("gains 100.0% over the baseline")
    assert line == site_line(state, state.cases[CASE], line.why)
    assert report.settled == loop.settled(state) and report.notes == ()


def test_what_was_recorded_counts_more_than_what_is_rebuilt(tmp_path: Path) -> None:
    run_in(tmp_path / "j", swaps=False)  # its Swaps were never recorded, so never done
    report = end_of(find_run(tmp_path / "j"))
    assert report.lines[0].live == "stock"
    assert any("grainshift replay" in note for note in report.notes)


def test_events_that_are_missing_are_told(tmp_path: Path) -> None:
    path = tmp_path / "j"
    run_in(path, one_by_one=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("DELETE FROM chunk WHERE first BETWEEN 5 AND 7").rowcount == 3
    report = end_of(find_run(path))
    assert report.notes[0] == "3 events from number 5 on are missing; the figures are of the rest."
    assert report.lines[0].live == "rolled"  # as recorded, whatever the rest rebuilds


def test_a_site_whose_beginning_is_gone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j"
    run_in(path, one_by_one=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("DELETE FROM chunk WHERE first = 0").rowcount == 1
    report = end_of(find_run(path))
    assert report.lines == ()
    assert any(SITE.key in note and "story" in note for note in report.notes)


def test_the_command_prints_the_run_or_json(tmp_path: Path) -> None:
    path = tmp_path / "j"
    run_in(path)
    run_in(path, until=3, at_s=2.0)  # the latest run, which had not come far
    first = runs(path)[0].header.run
    shown = RUNNER.invoke(cli.app, ["report", "--journal", str(path)])
    assert shown.exit_code == 0 and "nothing proved better yet" in shown.output
    told = RUNNER.invoke(cli.app, ["report", "--journal", str(path), "--run", first[:6], "--json"])
    data = json.loads(told.output)
    assert data["run"] == first and data["lines"][0]["live"] == "rolled"
    assert dict(data["lines"][0]["choices"])["rolled"] == "live"


@pytest.mark.parametrize("arguments", [[], ["--run", "nonsense"]])
def test_what_cannot_be_reported_is_one_sentence(tmp_path: Path, arguments: list[str]) -> None:
    if arguments:
        run_in(tmp_path / "j", until=2)
    shown = RUNNER.invoke(cli.app, ["report", "--journal", str(tmp_path / "j"), *arguments])
    assert shown.exit_code == 1
    assert shown.output.strip() and "\n" not in shown.output.strip()
