import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grainshift.cli import app
from grainshift.core.conditions import CONDITION_NAMES, Figure
from grainshift.machine import find_machine, load_rates

MEASURED = (Figure("fp32_flops", 2e11), Figure("dram_bytes", 4e10))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAINSHIFT_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("grainshift.cli.probe._SAMPLES", 2)
    monkeypatch.setattr("grainshift.cli.probe._WINDOW_S", 0.05)
    monkeypatch.setattr("grainshift.cli.probe.measure_rates", lambda machine: MEASURED)
    return tmp_path


def test_json_is_json_alone_and_holds_it_all(folder: Path) -> None:
    result = CliRunner().invoke(app, ["probe", "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.output)
    assert data["machine"]["fingerprint"] == find_machine().fingerprint
    assert data["rates"]["fp32_flops"] == {"value": 2e11, "source": "measured"}
    assert data["rates"]["bf16_flops"]["source"] == "modelled"
    assert data["conditions"]["free_memory_bytes"]["value"] > 0
    assert data["sampling_cost_s"] > 0


def test_the_screen_names_every_condition_rate_and_source(folder: Path) -> None:
    result = CliRunner().invoke(app, ["probe"])
    assert result.exit_code == 0, result.output
    for word in (*CONDITION_NAMES, "200.0 GFLOP/s", "40.0 GB/s", "measured", "modelled"):
        assert word in result.output


def test_rates_are_kept_the_best_ever_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CliRunner().invoke(app, ["probe", "--json"])
    lower = (Figure("fp32_flops", 1e11), Figure("dram_bytes", 5e10))
    monkeypatch.setattr("grainshift.cli.probe.measure_rates", lambda machine: lower)
    CliRunner().invoke(app, ["probe", "--json"])
    kept = {rate.name: rate.value for rate in load_rates(folder / "machine", find_machine()) or ()}
    assert kept == {"fp32_flops": 2e11, "dram_bytes": 5e10}


def test_a_folder_that_cannot_be_written_is_said(folder: Path) -> None:
    (folder / "machine").write_text("in the way")
    result = CliRunner().invoke(app, ["probe"])
    assert result.exit_code == 0
    assert "could not be kept" in result.output
