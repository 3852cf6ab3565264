"""Rows and Reports: JSON, the table in the terminal, the figures of the README."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from grainshift.bench.readme import figures_block, replace_block, stored
from grainshift.bench.report import summary, table
from grainshift.bench.row import Report, Row, from_json, geometric_mean, to_json, write
from grainshift.bench.run import Suite, report

WON = Row("lstm 256", "median", "ms", 1.0, {"eager": 2.5, "aot": 3.0}, "eager", 2.5, 2.25, 2.75)
LOST = Row(
    "lstm 64", "median", "ms", 2.0, {"eager": 1.0}, "eager", 0.5, 0.4, 0.6, 0.125, "5 blocks"
)
ALONE = Row("kills", "opened", "", 200.0, {}, limit=200.0)
REPORT = Report(
    {"cpu": "A | B", "cores": 2}, {"torch": "2.13.0"}, "2025-01-31T10:00:00", (WON, LOST, ALONE)
)
FIELDS = "workload metric unit ours peers best_peer ratio ratio_low ratio_high limit notes"


def test_the_json_has_the_fields_of_the_design() -> None:
    data = json.loads(to_json(REPORT))
    assert list(data) == ["machine", "versions", "date", "rows"]
    assert [" ".join(row) for row in data["rows"]] == [FIELDS] * 3


def test_a_report_comes_back_from_json() -> None:
    assert from_json(to_json(REPORT)) == REPORT


def test_a_figure_that_is_not_finite_is_null_in_json() -> None:
    odd = replace(ALONE, ours=math.nan, peers={"eager": math.inf}, limit=math.inf)
    back = from_json(to_json(replace(REPORT, rows=(odd,)))).rows[0]
    assert math.isnan(back.ours) and math.isnan(back.peers["eager"]) and back.limit is None


def test_a_row_with_other_fields_is_refused() -> None:
    data = json.loads(to_json(REPORT))
    del data["rows"][0]["limit"]
    with pytest.raises(ValueError, match="limit"):
        from_json(json.dumps(data))


def test_writing_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.json"
    write(REPORT, path)
    write(replace(REPORT, rows=(WON,)), path)
    assert from_json(path.read_text()).rows == (WON,)
    assert [found.name for found in path.parent.iterdir()] == ["report.json"]


def rows_until(fault: Exception | None) -> Iterator[Row]:
    yield WON
    yield LOST
    if fault:
        raise fault


def test_a_run_that_is_cut_leaves_what_it_had(tmp_path: Path) -> None:
    file, partial = tmp_path / "made.json", tmp_path / "made.json.partial"
    cut = Suite("cut", "for this test", lambda quick, only: rows_until(KeyError("cut")))
    with pytest.raises(KeyError):
        report(cut, keep=file)
    assert from_json(partial.read_text()).rows == (WON, LOST) and not file.exists()
    whole = Suite("whole", "for this test", lambda quick, only: rows_until(None))
    measured = report(whole, keep=file)
    assert measured.rows == (WON, LOST) == from_json(file.read_text()).rows
    assert not partial.exists()


def test_the_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_the_summary_counts_losses() -> None:
    assert summary(REPORT.rows) == "2 rows beside peers: geometric mean 1.12, lost 1"
    assert summary((ALONE,)) == "1 rows"


def test_a_loss_is_a_ratio_below_one_beyond_doubt() -> None:
    assert LOST.lost and not WON.lost and not ALONE.lost
    assert not replace(LOST, ratio_high=1.01).lost


def test_the_table_shows_losses_too() -> None:
    console = Console(width=160, record=True, file=StringIO())
    console.print(table(REPORT, "recurrence"))
    shown = console.export_text()
    assert "lstm 64" in shown and "0.50" in shown and "0.40 to 0.60" in shown
    assert "A | B, 2 cores, torch 2.13.0, 2025-01-31" in shown
    assert "lost 1" in shown


def test_the_readme_shows_machine_date_and_every_row(tmp_path: Path) -> None:
    write(REPORT, tmp_path / "recurrence.json")
    block = figures_block(stored(tmp_path))
    assert "**recurrence** · A | B, 2 cores, torch 2.13.0, 2025-01-31." in block
    assert "| lstm 64 | median | 2 ms | eager 1 | 0.50 | 0.40 to 0.60 | 0.125 |" in block
    assert block.count("\n| ") == 4
    assert "make bench" in figures_block({})


def test_a_block_is_replaced_and_nothing_else() -> None:
    text = "before\n<!-- figures -->\nold\n<!-- /figures -->\nafter\n"
    once = replace_block(text, "figures", "new")
    assert once == "before\n<!-- figures -->\nnew\n<!-- /figures -->\nafter\n"
    assert replace_block(once, "figures", "new") == once
    with pytest.raises(ValueError, match="figures"):
        replace_block("no markers", "figures", "new")
