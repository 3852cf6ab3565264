"""The command `doctor`: each thing that can be amiss is found, with what would do."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grainshift import cli
from grainshift.cli import doctor
from grainshift.cli.doctor import Finding, Grade, Ground, examine
from grainshift.core.conditions import CONDITION_NAMES, Conditions, Figure
from grainshift.core.events import Frozen
from grainshift.core.machine import Machine
from grainshift.core.settings import Settings
from grainshift.environment import Environment
from grainshift.journal import Journal, new_run
from grainshift.machine import keep_rates

RUNNER = CliRunner()
MACHINE = Machine("f00d", "a CPU", (0, 1), 2.0, 8 << 30)


def ground(folder: Path, *, free_bytes: float = 4e9, **changes) -> Ground:
    figures = dict.fromkeys(CONDITION_NAMES, 0.0) | {"free_memory_bytes": free_bytes}
    conditions = Conditions(1.0, tuple(Figure(*item) for item in figures.items()))
    sound = Ground(
        Environment(folder), MACHINE, conditions, "2.13.0", 2, lambda name: f"/bin/{name}"
    )
    return replace(sound, **changes)


def found(name: str, examined: Ground) -> Finding:
    return next(finding for finding in examine(examined) if finding.name == name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def test_a_sound_installation_has_nothing_to_say_but_the_rates(folder: Path) -> None:
    amiss = [finding.name for finding in examine(ground(folder)) if finding.grade is not Grade.OK]
    assert amiss == ["rates"]
    assert "grainshift probe" in found("rates", ground(folder)).would_do
    keep_rates(folder / "machine", MACHINE, (Figure("fp32_flops", 1e11),))
    assert found("rates", ground(folder)).grade is Grade.OK


@pytest.mark.parametrize("torch_version", ["2.4.1", "3.0.0"])
def test_a_torch_outside_the_range_fails_and_says_which_would_do(folder, torch_version) -> None:
    finding = found("torch", ground(folder, torch_version=torch_version))
    assert finding.grade is Grade.FAIL
    assert torch_version in finding.found and "install torch>=" in finding.would_do


def test_more_threads_than_the_quota_is_a_warning(folder: Path) -> None:
    finding = found("cores", ground(folder, threads=16))
    assert finding.grade is Grade.WARN and "OMP_NUM_THREADS=2" in finding.would_do
    assert found("cores", ground(folder, threads=1)).grade is Grade.OK


@pytest.mark.parametrize(
    ("free_bytes", "grade"), [(4e9, Grade.OK), (5e8, Grade.WARN), (1e7, Grade.FAIL)]
)
def test_little_memory_is_told(folder: Path, free_bytes: float, grade: Grade) -> None:
    assert found("memory", ground(folder, free_bytes=free_bytes)).grade is grade


def test_a_machine_that_tells_little_is_a_warning(folder: Path) -> None:
    silent = ground(folder, conditions=Conditions(1.0))
    assert found("memory", silent).grade is Grade.WARN
    assert "cpu_pressure" in found("sensors", silent).found


def test_a_missing_compiler_is_a_warning(folder: Path) -> None:
    finding = found("compiler", ground(folder, which=lambda name: None))
    assert finding.grade is Grade.WARN and "install g++" in finding.would_do
    other = ground(folder, which=lambda name: "/bin/clang++" if name == "clang++" else None)
    assert found("compiler", other).found == "/bin/clang++"


def test_a_cache_that_is_not_there_yet_is_fine_and_is_not_made(tmp_path: Path) -> None:
    finding = found("cache", ground(tmp_path / "a" / "b"))
    assert finding.grade is Grade.OK and "will be made" in finding.found
    assert not (tmp_path / "a").exists()


def test_a_cache_where_a_file_stands_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file" / "deeper"):
        finding = found("cache", ground(place))
        assert finding.grade is Grade.FAIL and "GRAINSHIFT_CACHE" in finding.would_do


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_cache_that_may_not_be_written_fails(folder: Path) -> None:
    folder.chmod(0o500)
    assert found("cache", ground(folder)).grade is Grade.FAIL


def test_a_cache_open_to_others_is_a_warning(folder: Path) -> None:
    folder.chmod(0o755)
    finding = found("cache", ground(folder))
    assert finding.grade is Grade.WARN and finding.would_do == f"chmod 700 {folder}"


def test_the_journal_is_read(folder: Path) -> None:
    assert "none yet" in found("journal", ground(folder)).found
    with Journal(folder / "journal.sqlite", new_run(1.0, "m", {}, Settings()), 64 << 20) as journal:
        journal.append(Frozen(1.0))
        assert journal.flush(20.0)
    assert "runs: 1" in found("journal", ground(folder)).found


def test_a_broken_journal_fails_and_stays_where_it_is(folder: Path) -> None:
    broken = folder / "journal.sqlite"
    broken.write_bytes(b"not a database" * 500)
    finding = found("journal", ground(folder))
    assert finding.grade is Grade.FAIL and "move it away" in finding.would_do
    assert broken.exists()


def test_extras_are_listed_from_the_package_and_missing_ones_are_no_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = ["torch>=2.9", 'onnx>=1; extra == "backends"', 'nonsense-pack; extra == "studio"']
    needs += ['grainshift[backends]; extra == "bench"', "scipy ; extra == 'bench'", "pytest"]
    monkeypatch.setattr(doctor, "requires", lambda name: needs)
    monkeypatch.setattr(doctor, "_is_installed", lambda package: package != "nonsense-pack")
    extras = {f.name: f for f in examine(ground(folder)) if f.name.startswith("extra")}
    assert sorted(extras) == ["extra backends", "extra bench", "extra studio"]
    assert extras["extra bench"].found == "installed: scipy"
    missing = extras["extra studio"]
    assert missing.grade is Grade.OK and "grainshift[studio]" in missing.would_do


@pytest.mark.parametrize(("torch_version", "status"), [("2.13.0", 0), ("2.0.0", 1)])
def test_the_command_ends_with_status_1_when_something_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, torch_version: str, status: int
) -> None:
    monkeypatch.setattr(doctor, "_ground", lambda: ground(folder, torch_version=torch_version))
    shown = RUNNER.invoke(cli.app, ["doctor"])
    assert shown.exit_code == status
    assert ("fail" in shown.output) == bool(status)
    told = RUNNER.invoke(cli.app, ["doctor", "--json"])
    data = json.loads(told.output)
    assert told.exit_code == status and data["sound"] == (status == 0)
    assert {check["grade"] for check in data["checks"]} <= {"ok", "warn", "fail"}


def test_the_real_machine_is_examined() -> None:
    told = RUNNER.invoke(cli.app, ["doctor", "--json"])
    names = [check["name"] for check in json.loads(told.output)["checks"]]
    assert names[:4] == ["python", "torch", "cores", "memory"]
