import json
from pathlib import Path

import pytest
import typer
from journal_values import SITE, header, opened, read, sensed
from typer.testing import CliRunner

from grainshift.cli import replay as replay_module
from grainshift.cli import story as story_module
from grainshift.core.events import AnyEvent, Frozen
from grainshift.core.instructions import Note
from grainshift.guards import make_guards
from grainshift.journal import Journal
from grainshift.tuner import loop


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command("story")(story_module.story)
    app.command("replay")(replay_module.replay)
    return app


def live(path: Path, spoil: bool = False) -> None:
    """A short run of the real loop."""
    began = header(seed=2, opening_calls=1_000.0)
    state = loop.begin(began.settings, began.limits, make_guards(began.settings, began.limits))
    events: list[AnyEvent] = [sensed(0.0), opened(0.5)]
    events += [read(number) for number in range(50, 90)]
    with Journal(path, began, 8 << 20) as journal:
        for event in [*events, Frozen(3.0)]:
            state, done = loop.step(state, event)
            journal.append(event, (*done, Note("a:b", "", "[spoilt]")) if spoil else done)
        assert journal.flush(20.0)


def test_replay_agrees_with_the_real_loop(app: typer.Typer, tmp_path: Path) -> None:
    live(tmp_path / "j")
    told = CliRunner().invoke(app, ["replay", "--journal", str(tmp_path / "j")])
    assert told.exit_code == 0
    assert "agrees" in told.output
    data = CliRunner().invoke(app, ["replay", "--journal", str(tmp_path / "j"), "--json"])
    found = json.loads(data.output)
    assert found["agrees"] is True
    assert found["events"] == 43
    assert found["decisions"] > 0
    assert found["decision_hash"] == found["recorded_hash"]


def test_replay_tells_the_first_difference(app: typer.Typer, tmp_path: Path) -> None:
    live(tmp_path / "j", spoil=True)
    told = CliRunner().invoke(app, ["replay", "--journal", str(tmp_path / "j")])
    assert told.exit_code == 1
    assert "differs" in told.output
    assert "[spoilt]" in told.output
    data = CliRunner().invoke(app, ["replay", "--journal", str(tmp_path / "j"), "--json"])
    assert data.exit_code == 1
    assert json.loads(data.output)["first_difference"]["number"] == 0


def test_story_in_words_and_json(app: typer.Typer, tmp_path: Path) -> None:
    live(tmp_path / "j")
    told = CliRunner().invoke(app, ["story", SITE.key, "--journal", str(tmp_path / "j")])
    assert told.exit_code == 0
    assert "opened with stock, unrolled(8)" in told.output
    data = CliRunner().invoke(app, ["story", SITE.key, "--journal", str(tmp_path / "j"), "--json"])
    lines = json.loads(data.output)
    assert lines[0]["what"] == "opened"
    assert lines[0]["at_s"] == 0.5


@pytest.mark.parametrize("command", [["story", "a:b"], ["replay"]])
def test_a_fault_is_one_sentence(app: typer.Typer, tmp_path: Path, command: list[str]) -> None:
    told = CliRunner().invoke(app, [*command, "--journal", str(tmp_path / "none")])
    assert told.exit_code == 1
    assert told.stderr.count("\n") == 1
    assert "there is no Journal" in told.stderr


def test_an_unknown_site_is_one_sentence(app: typer.Typer, tmp_path: Path) -> None:
    live(tmp_path / "j")
    told = CliRunner().invoke(app, ["story", "a:b", "--journal", str(tmp_path / "j")])
    assert told.exit_code == 1
    assert SITE.key in told.stderr
