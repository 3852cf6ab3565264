"""Imports point one way, and effects stay where they belong."""

import pytest
import rules_imports as rules
from rules_tree import Module, modules

FILES = modules()
KNOWN = frozenset(module.name for module in FILES)


def bad(name: str, text: str) -> Module:
    return Module(f"grainshift.{name}", text)


def test_there_is_something_to_check() -> None:
    assert {"grainshift.core.choice", "grainshift.environment"} <= KNOWN


@pytest.mark.parametrize("module", FILES, ids=lambda module: module.name)
def test_a_file_keeps_the_directions(module: Module) -> None:
    assert rules.wrong_ways(module, KNOWN) == []
    assert rules.effects(module) == []
    assert rules.private_imports(module) == []
    assert rules.environment_reads(module) == []
    assert rules.import_time_settings(module) == []


def test_no_file_imports_itself_in_a_circle() -> None:
    assert rules.cycles(FILES) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core.site", "from grainshift.machine import facts"),
        ("policies.dqn", "from grainshift.families.recurrence import find"),
        ("policies.dqn", "from ..families.recurrence import find"),
        ("families.recurrence.find", "from grainshift.families.regions import find"),
        ("families.recurrence.find", "import grainshift.policies.dqn"),
        ("tuner.loop", "from grainshift.policies import bandit"),
        ("tuner.loop", "from grainshift.tuner import pulse"),
        ("tuner.loop", "def f():\n    from grainshift.runtime import slot"),
        ("runtime.slot", "from grainshift.api import tune"),
        ("journal.append", "from grainshift import __version__"),
        ("studio.page", "from grainshift.tuner import loop"),
        ("api", "from grainshift.cli import app"),
        ("bench.run", "from grainshift import cli"),
        ("novel.part", "import math"),
    ],
)
def test_a_wrong_way_is_seen(name: str, text: str) -> None:
    names = ("cli", "api", "families.recurrence.find", "families.regions.find", "policies.bandit")
    names += ("machine.facts", "runtime.slot", "tuner.loop", "tuner.pulse", "policies.dqn")
    known = frozenset({"grainshift", *(f"grainshift.{part}" for part in names)})
    assert rules.wrong_ways(bad(name, text), known)


def test_types_alone_may_point_anywhere() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import grainshift.api"
    assert rules.wrong_ways(bad("core.site", text), KNOWN) == []


@pytest.mark.parametrize("name", ["torch", "time", "os.path", "random", "threading"])
def test_an_effect_in_the_core_is_seen(name: str) -> None:
    assert rules.effects(bad("core.site", f"import {name}"))
    assert rules.effects(bad("tuner.loop", f"from {name} import something"))
    assert rules.effects(bad("tuner.driver", f"import {name}")) == []


def test_a_circle_is_seen() -> None:
    ring = [bad("a", "import grainshift.b"), bad("b", "from grainshift import c")]
    ring += [bad("c", "def f():\n    import grainshift.a"), bad("d", "import grainshift.a")]
    assert rules.cycles(ring) == [("grainshift.a", "grainshift.b", "grainshift.c")]


@pytest.mark.parametrize(
    "text", ["import os\nos.environ['A']", "from os import environ", "import os\nos.getenv('A')"]
)
def test_a_read_of_the_environment_is_seen(text: str) -> None:
    assert rules.environment_reads(bad("machine.facts", text))
    assert rules.environment_reads(bad("environment", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "torch.set_num_threads(1)",
        "torch.backends.mkldnn.enabled = False",
        "if True:\n    torch._dynamo.config.allow_rnn = True",
        "class A:\n    torch.manual_seed(0)",
    ],
)
def test_a_setting_at_import_is_seen(text: str) -> None:
    assert rules.import_time_settings(bad("runtime.slot", text))
    inside = "def f():\n" + "\n".join(f"    {line}" for line in text.splitlines())
    assert rules.import_time_settings(bad("runtime.slot", inside)) == []


def test_a_private_import_is_seen() -> None:
    assert rules.private_imports(bad("cli", "from grainshift.core.codec import _same"))
    assert rules.private_imports(bad("cli", "from grainshift import __version__")) == []
