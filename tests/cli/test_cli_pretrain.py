"""`grainshift pretrain`: from traces to weights that `tune` finds, and what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import grainshift.families.recurrence.profile as profiling
import grainshift.policies.pretrain as pretraining
from grainshift import cli
from grainshift.api.weights import start_trained
from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.errors import NotTunable
from grainshift.core.trace import Cost, Trace, Traces
from grainshift.policies import make_policy
from grainshift.policies.pretrain import read_traces, write_traces

RUNNER = CliRunner()
CHOICES = (Choice("stock"), Choice("rolled"), Choice("unrolled", (8,)))


def trace(number: int, left_out: str) -> Trace:
    costs = tuple(
        Cost(choice, (gain,)) for choice, gain in zip(CHOICES, (0, 0.2, 0.5), strict=True)
    )
    features = (("hidden", 64.0 * (1 + number)),)
    return Trace(
        f"layer {number}", "B1.T8", "calm", features, Conditions(0.0), 1.0, costs, left_out
    )


TRACES = tuple(trace(number, "architecture" if number == 2 else "") for number in range(4))


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and no cross-check, which would take seconds to load."""
    monkeypatch.setenv("GRAINSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pretraining, "maskable_ppo", lambda *args: lambda question: [0])


def invoked(*args: str) -> Any:
    done = RUNNER.invoke(cli.app, ["pretrain", "recurrence", "--minutes", "0.05", *args])
    if done.exception is not None:
        raise done.exception
    return done


def test_traces_become_weights_that_tune_finds(tmp_path: Path) -> None:
    known, rows = tmp_path / "traces.json", tmp_path / "rows.json"
    write_traces(Traces("recurrence", "a processor", TRACES), known)
    done = invoked("--traces", str(known), "--json", str(rows))
    assert "4 traces of a processor" in done.output and "left out by architecture" in done.output
    policy = make_policy("ppo")
    assert start_trained(policy, "ppo", "recurrence") == ""
    assert np.any(policy.arrays()["weights"] != make_policy("ppo").arrays()["weights"])
    told = json.loads(rows.read_text())
    assert {row["group"] for row in told["regrets"]} == {"architecture", "trained"}
    assert {"ppo", "stock", "random"} <= {row["picker"] for row in told["regrets"]}
    assert told["machine"] == "a processor" and told["notes"]
    assert read_traces(known).traces == TRACES  # left as they were


def test_without_traces_it_profiles_and_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, int]] = []

    def profile(stand: Any, visits: Any, seconds: float, seed: int) -> Iterator[Trace]:
        asked.append((seconds, seed))
        assert visits == profiling.grid(7) and stand.machine.cores
        yield from TRACES

    monkeypatch.setattr(profiling, "profile", profile)
    known, out = tmp_path / "new.json", tmp_path / "deep" / "weights.npz"
    done = invoked("--traces", str(known), "--out", str(out), "--seed", "7")
    assert asked == [(pytest.approx(0.05 * 60 * 0.6), 7)]
    assert read_traces(known).traces == TRACES
    assert out.exists() and "deep/weights.npz" in done.output.replace("\n", "")


def test_it_refuses_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotTunable, match="'regions'; give recurrence"):
        RUNNER.invoke(cli.app, ["pretrain", "regions"], catch_exceptions=False)
    for minutes in ("0", "-1", "1e9", "nan"):
        with pytest.raises(NotTunable, match="give minutes such as 8"):
            invoked("--minutes", minutes)
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(NotTunable, match="cannot be read as traces"):
        invoked("--traces", str(broken))


def test_a_profile_without_a_trace_to_train_on_is_refused(tmp_path: Path) -> None:
    known = tmp_path / "traces.json"
    write_traces(Traces("recurrence", "a processor", TRACES[2:3]), known)
    with pytest.raises(NotTunable, match="profile for more minutes"):
        invoked("--traces", str(known))
