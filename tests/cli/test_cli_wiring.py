"""The command line: what it offers, and how it refuses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import grainshift.bench.run as bench_run
from grainshift import cli
from grainshift.bench.row import Row, from_json
from grainshift.core.errors import GrainshiftError

RUNNER = CliRunner()
ROW = Row("a table", "regret", "s", 1.0, {"random": 2.0}, "random", 2.0, 1.5, 2.5)


def suite(rows: list[Row], asked: list[tuple[bool, str | None]]) -> bench_run.Suite:
    def run(quick: bool, only: str | None) -> list[Row]:
        asked.append((quick, only))
        return rows

    return bench_run.Suite("tried", "for this test", run)


def test_every_command_explains_itself() -> None:
    shown = RUNNER.invoke(cli.app, ["--help"]).output
    for command in cli.COMMANDS:
        assert command.__name__ in shown
        assert RUNNER.invoke(cli.app, [command.__name__, "--help"]).exit_code == 0


def test_the_version_names_the_packages_too() -> None:
    shown = RUNNER.invoke(cli.app, ["--version"])
    assert shown.exit_code == 0
    assert "grainshift 0." in shown.output and "torch 2." in shown.output


def test_a_refusal_is_one_sentence_and_status_2(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["grainshift", "bench", "nonsense"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "'nonsense'" in said and "recurrence" in said


def test_bench_shows_the_rows_and_stores_the_report(monkeypatch, tmp_path: Path) -> None:
    asked: list[tuple[bool, str | None]] = []
    monkeypatch.setattr(bench_run, "SUITES", (suite([ROW], asked),))
    file = tmp_path / "report.json"
    done = RUNNER.invoke(
        cli.app, ["bench", "tried", "--quick", "--only", "tab", "--json", str(file)]
    )
    assert done.exit_code == 0, done.output
    assert asked == [(True, "tab")]
    assert "regret" in done.output
    report = from_json(file.read_text())
    assert report.rows == (ROW,)
    assert report.machine["cores"] >= 1 and report.versions["torch"]
    assert json.loads(file.read_text())["date"].startswith("20")


def test_bench_measures_nothing_that_it_could_not_store(monkeypatch, tmp_path: Path) -> None:
    asked: list[tuple[bool, str | None]] = []
    monkeypatch.setattr(bench_run, "SUITES", (suite([ROW], asked),))
    done = RUNNER.invoke(cli.app, ["bench", "tried", "--json", str(tmp_path / "no" / "r.json")])
    assert isinstance(done.exception, GrainshiftError) and "cannot be written" in str(
        done.exception
    )
    assert asked == []


def test_bench_without_a_row_says_so(monkeypatch) -> None:
    monkeypatch.setattr(bench_run, "SUITES", (suite([], []),))
    with pytest.raises(GrainshiftError, match="name that contains 'x'"):
        bench_run.report(bench_run.find_suite("tried"), only="x")


def test_the_help_of_bench_names_every_suite() -> None:
    shown = RUNNER.invoke(cli.app, ["bench", "--help"]).output
    assert [suite.name for suite in bench_run.SUITES if suite.name not in shown] == []


@pytest.mark.parametrize("suite", bench_run.SUITES, ids=lambda suite: suite.name)
def test_a_suite_measures_nothing_that_does_not_exist(suite: bench_run.Suite) -> None:
    if suite.name != "journal":  # which measures everything before it looks for a name
        assert suite.run(True, "no workload is called this") == []
