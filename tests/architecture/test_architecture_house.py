"""The house: one command for each thing, five dependencies, PyTorch pinned in one place."""

import re
import subprocess
import tomllib
from collections.abc import Iterable

import pytest
from rules_tree import ROOT, kept_files

TARGETS = ("all", "demo", "test", "test-slow", "check", "bench", "docs", "clean")
CORE = {"torch", "numpy", "psutil", "rich", "typer"}
EXTRAS = {"backends", "pretrain", "studio", "bench", "test"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements}


def pins_of_torch(text: str) -> list[str]:
    return re.findall(r"\btorch\s*={2,3}\s*\d[\w.+]*", text)


@pytest.mark.parametrize("target", TARGETS)
def test_make_has_a_command_for_each_thing(target: str) -> None:
    asked = subprocess.run(
        ["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True
    )
    assert asked.returncode == 0, asked.stderr
    assert target == "clean" or "pip install" in asked.stdout  # each does its own set-up


def test_a_target_that_is_missing_is_seen() -> None:
    asked = subprocess.run(["make", "--dry-run", "nonsense"], cwd=ROOT, capture_output=True)
    assert asked.returncode != 0


def test_the_core_needs_five_packages_and_the_rest_are_extras() -> None:
    assert names(PYPROJECT["project"]["dependencies"]) == CORE
    assert set(PYPROJECT["project"]["optional-dependencies"]) == EXTRAS
    assert names(["torch>=2.9,<3", "a[b]>=1", "c"]) == {"torch", "a", "c"}


def test_torch_is_pinned_in_one_place() -> None:
    texts = {
        path.name: path.read_text() for path in kept_files() if path.suffix in {".txt", ".toml"}
    }
    pinned = [name for name, text in texts.items() if pins_of_torch(text)]
    assert pinned == ["constraints.txt"]
    assert pins_of_torch("torch==2.13.0") and not pins_of_torch("torch>=2.9,<2.15")


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
