import math
import re
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import grainshift
from grainshift.api import arguments
from grainshift.core.errors import NotTunable
from grainshift.core.machine import Accelerator, Machine
from grainshift.policies import POLICIES

ROOT = Path(__file__).parents[2]
MACHINE = Machine("m", "cpu", (3, 5), 2.0, 1000, accelerators=(Accelerator("gpu", 1),))
ODD = (True, False, [], {}, 1j, b"2GB", object(), nn.Linear, math.nan, math.inf, np.ones(2))


def refuses(name: str, value: Any) -> str:
    """`tune` must refuse this in one sentence with the argument's name and what would do."""
    model = nn.GRU(2, 3)
    with pytest.raises(NotTunable) as caught:
        grainshift.tune(model, **{name: value})
    said = str(caught.value)
    assert isinstance(caught.value, ValueError) and "\n" not in said
    assert said.startswith(name) and "; give " in said
    assert "_grainshift" not in vars(model) and "forward" not in vars(model)
    return said


@pytest.mark.parametrize("model", [None, "model", torch.ones(2), nn.GRU, nn.functional.relu, 3])
def test_a_model_must_be_a_module(model: Any) -> None:
    for door in (grainshift.tune, grainshift.untune, grainshift.report, grainshift.freeze):
        with pytest.raises(NotTunable, match=r"^model=.* is a .*; give a torch\.nn\.Module"):
            door(model)
    with pytest.raises(NotTunable, match="give a torch"):
        grainshift.settle(model)


@pytest.mark.parametrize("door", [grainshift.report, grainshift.freeze, grainshift.settle])
def test_a_model_that_is_not_tuned_is_told_so(door: Any) -> None:
    with pytest.raises(NotTunable, match=r"this GRU is not tuned; call grainshift\.tune\(model\)"):
        door(nn.GRU(2, 3))


@pytest.mark.parametrize("name", ["memory_budget", "error_budget", "latency_budget", "settings"])
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_values_of_a_wrong_kind_are_refused(name: str, value: Any) -> None:
    refuses(name, value)


@pytest.mark.parametrize("name", ["goal", "policy", "engines", "families"])
@pytest.mark.parametrize(
    "value", [*ODD, 3, -1.5, "nonsense", "", ["nonsense"], [3], [[]]], ids=repr
)
def test_names_that_are_unknown_are_refused(name: str, value: Any) -> None:
    if name == "engines" and isinstance(value, np.ndarray):
        value = list(value)
    refuses(name, value)


@pytest.mark.parametrize("name", ["memory_budget", "error_budget", "latency_budget"])
@pytest.mark.parametrize("value", [0, -1, "0", "-1", "-2GB", "", "two", "nan", "inf", "1e", "%"])
def test_budgets_that_are_not_positive_or_cannot_be_read_are_refused(name: str, value: Any) -> None:
    said = refuses(name, value)
    assert repr(value) in said


@pytest.mark.parametrize(
    "value",
    [
        *("2 GB 3", "GB", "2PB", "1e9", "0x10", "2..0GB", "0.4", "0%", "10%%", "0b", "1,5GB"),
        *("9" * 400, "9" * 400 + "%", 10**400, -(10**400), 2.5e9),
    ],
)
def test_a_memory_budget_that_is_no_size_is_refused(value: Any) -> None:
    said = refuses("memory_budget", value)
    assert '"2GB"' in said and '"80%"' in said and len(said) < 300


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (1, 1),
        (np.int64(7), 7),
        ("1", 1),
        ("2GB", 2 * 10**9),
        ("2gb", 2 * 10**9),
        (" 2 g ", 2 * 10**9),
        ("512MiB", 512 << 20),
        ("1.5KiB", 1536),
        ("3k", 3000),
        ("1TB", 10**12),
        ("10%", 100),
        (" 12.5 % ", 125),
        (1 << 62, 1 << 62),
    ],
)
def test_memory_budgets_that_can_be_read(given: Any, size: int) -> None:
    assert arguments.read_bytes("memory_budget", given, MACHINE.memory_bytes) == size


@given(st.text(max_size=12) | st.from_regex(r"\d{1,5}(\.\d{1,3})? ?[kKmMgGtT]?i?[bB%]?"))
def test_any_text_is_a_positive_count_of_bytes_or_refused(text: str) -> None:
    try:
        size = arguments.read_bytes("memory_budget", text, 1 << 34)
    except NotTunable:
        return
    assert size is not None and size >= 1


def test_none_means_no_limit() -> None:
    assert arguments.read_bytes("memory_budget", None, 10) is None
    assert arguments.read_positive("error_budget", None, "") is None
    assert arguments.read_policy(None) is None
    assert arguments.read_engines(None, MACHINE) is MACHINE


@pytest.mark.parametrize("value", [1e-9, 1, 0.5, np.float32(0.5), np.int64(1), Fraction(1, 2)])
def test_positive_numbers_of_any_kind_will_do(value: Any) -> None:
    read = arguments.read_positive("error_budget", value, "")
    assert type(read) is float and read == float(value)


@pytest.mark.parametrize("value", ["a minute", -1, -0.001, math.nan, math.inf, True, None, [1]])
def test_a_timeout_is_seconds(value: Any) -> None:
    model = grainshift.tune(nn.GRU(2, 3))
    with pytest.raises(NotTunable, match=r"^timeout=.* will not do; give seconds such as 60$"):
        grainshift.settle(model, timeout=value)


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("1.13.0", False),
        ("2.8.9", False),
        ("2.9.0", True),
        ("2.9.0a0+git", True),
        ("2.13.0+cpu", True),
        ("2.13.1.dev20260101+cu130", True),
        ("2.14.7", True),
        ("2.15.0", False),
        ("2.15.0a0+gitabc", False),
        ("3.0.0", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_torch_must_be_of_the_range(version: str, fits: bool) -> None:
    if fits:
        arguments.check_torch(version)
        return
    said = f"torch {version} is installed; install torch>=2.9,<2.15"
    with pytest.raises(NotTunable, match=f"^{re.escape(said)}$"):
        arguments.check_torch(version)


def test_the_range_is_the_one_that_is_declared() -> None:
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    low, high = (".".join(map(str, b)) for b in (arguments.TORCH_FROM, arguments.TORCH_BELOW))
    assert f"torch>={low},<{high}" in needs


def test_a_torch_out_of_the_range_is_refused_before_the_model_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.GRU(2, 3)
    monkeypatch.setattr(torch, "__version__", "1.13.0")
    with pytest.raises(NotTunable, match="install torch"):
        grainshift.tune(model)
    assert "forward" not in vars(model)


def test_engines_narrow_the_machine() -> None:
    assert arguments.read_engines(["cpu:1"], MACHINE).cores == (5,)
    assert arguments.read_engines(("cpu:1", "cpu:0", "cpu:1"), MACHINE).cores == (3, 5)
    assert arguments.read_engines(["cpu:0"], MACHINE).accelerators == ()
    assert arguments.read_engines(["cuda:0"], MACHINE).accelerators == MACHINE.accelerators
    assert arguments.read_engines((e for e in ["cpu:1"]), MACHINE).cores == (5,)  # type: ignore[arg-type]
    with pytest.raises(NotTunable, match=r"no 'cpu:2'; give a list out of cpu:0, cpu:1, cuda:0"):
        arguments.read_engines(["cpu:2"], MACHINE)


@pytest.mark.parametrize("engines", [[], (), "cpu:0", {}, iter(())])
def test_an_empty_list_of_engines_is_refused(engines: Any) -> None:
    refuses("engines", engines)


def test_families_and_policies_are_known_by_name() -> None:
    settings = grainshift.Settings(segment_s=0.5)
    (family,) = arguments.read_families(["recurrence", "recurrence"], settings)
    assert family.name == "recurrence" and family.segment_s == 0.5  # type: ignore[attr-defined]
    assert [arguments.read_policy(name) for name in POLICIES] == list(POLICIES)
    for name in ("", "PPO", "ppo "):
        assert ", ".join(POLICIES) in refuses("policy", name)


@pytest.mark.parametrize("families", [[], (), "recurrence", {}])
def test_an_empty_list_of_families_is_refused(families: Any) -> None:
    refuses("families", families)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("goal", arguments.GOALS)
def test_everything_at_once_will_do(policy: str, goal: str) -> None:
    model = nn.GRU(2, 3)
    tuned = grainshift.tune(
        model,
        memory_budget="10%",
        error_budget=1e-2,
        latency_budget=0.5,
        goal=goal,
        engines=["cpu:0"],
        families=["recurrence"],
        policy=policy,
        settings=grainshift.Settings(seed=(1 << 53)),
    )
    assert tuned is model
    grainshift.untune(model)


def test_a_refused_argument_leaves_a_tuned_model_tuned() -> None:
    model = grainshift.tune(nn.GRU(2, 3))
    session = vars(model)["_grainshift"]
    with pytest.raises(NotTunable):
        grainshift.tune(model, goal="speed")
    assert vars(model)["_grainshift"] is session and "forward" in vars(model)
