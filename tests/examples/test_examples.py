"""Every example runs, alone and as a reader would run it."""

import subprocess
import sys
from pathlib import Path

from grainshift.environment import child_variables

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, cache: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        env=child_variables(GRAINSHIFT_CACHE=str(cache)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tune_lstm(tmp_path: Path) -> None:
    text = run("tune_lstm.py", tmp_path, "1")
    assert "live Choice" in text and "B4.T16" in text
    assert float(text.rstrip().rpartition(" ")[2]) < 1e-4
    assert (tmp_path / "journal.sqlite").is_file()
