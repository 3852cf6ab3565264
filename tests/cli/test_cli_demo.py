"""The command `demo`, run for real, for as short as it may be."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from grainshift import cli
from grainshift.cli.demo import LEAST_S
from grainshift.environment import child_variables
from grainshift.journal import find_run, runs

RUNNER = CliRunner()
COMMAND = [sys.executable, "-c", "from grainshift.cli import main; main()"]
DEMO = [*COMMAND, "demo", "--seconds", f"{LEAST_S:g}"]


def start(cache: Path, *command: str, seconds: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command[:-1], seconds] if seconds else [*command],
        env=child_variables(GRAINSHIFT_CACHE=str(cache), COLUMNS="80"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def loads_of(process: subprocess.Popen[str]) -> list[int]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child.pid for child in children if "burden.py" in " ".join(child.cmdline())]


def test_the_demo_runs_to_its_end_and_leaves_a_journal_to_look_into(tmp_path: Path) -> None:
    with start(tmp_path, *DEMO) as process:
        text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    assert "\x1b" not in text and "\r" not in text
    for part in ("phase 1 of 4", "phase 4 of 4", "Before and after", "both models agreed"):
        assert part in text
    run = find_run(tmp_path / "journal.sqlite")
    asked = re.findall(r"^ {2}grainshift (.+)$", text, flags=re.MULTILINE)
    assert [line.split()[0] for line in asked] == ["story", "story", "report", "replay"]
    for line in asked:  # what it says to type does work
        words = [*line.split(), "--journal", str(tmp_path / "journal.sqlite"), "--json"]
        shown = RUNNER.invoke(cli.app, words)
        assert shown.exit_code == 0 and json.loads(shown.output), shown.output
        assert run.header.run.startswith(words[words.index("--run") + 1])


@pytest.mark.slow
def test_an_interrupt_ends_the_load_and_shows_what_there_is(tmp_path: Path) -> None:
    with start(tmp_path, *DEMO, seconds="40") as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "phase 2 of 4" in line:
                break
        loads = loads_of(process)
        time.sleep(2.0)
        process.send_signal(signal.SIGINT)
        text = "".join(lines) + process.stdout.read()
    assert process.returncode == 130, text
    assert loads and not any(psutil.pid_exists(pid) for pid in loads)
    assert "Ended early" in text and "Before and after" in text and "Traceback" not in text
    assert "report --run" in text and len(runs(tmp_path / "journal.sqlite")) == 1


@pytest.mark.slow
def test_an_interrupt_before_tuning_says_so(tmp_path: Path) -> None:
    with start(tmp_path, *DEMO, seconds="200") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "stock PyTorch alone" in line:
                break
        process.send_signal(signal.SIGINT)
        text = process.stdout.read()
    assert process.returncode == 130 and "before anything was tuned" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_does_not_stop_the_demo(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with start(blocked, *DEMO) as process:
        text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    assert "The Journal could not be kept" in text and "Before and after" in text


def test_seconds_have_a_least() -> None:
    assert RUNNER.invoke(cli.app, ["demo", "--seconds", "1"]).exit_code == 2
