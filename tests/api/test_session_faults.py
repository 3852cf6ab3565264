import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from broken_parts import STOCK, Broken, Sabotage, building, explore, late, sabotage, session
from torch import nn
from tuned_models import our_threads, slots, wait_until

import grainshift
from grainshift.api.session import session_of
from grainshift.core.family import Runner
from grainshift.core.forecast import Forecast, Limits
from grainshift.journal import JournalWarning

X = torch.ones(20, 1, 3)


def layer() -> nn.GRU:
    torch.manual_seed(0)
    return nn.GRU(3, 4)


def innards(model: nn.Module) -> list[list[str]]:
    return [list(vars(module)) for module in model.modules()]


@pytest.mark.parametrize("find", [sabotage, late, lambda model: None, lambda model: ((), 3)])
def test_a_family_that_cannot_look_leaves_the_model_as_it_was(find: Any) -> None:
    model = layer()
    before = innards(model)
    wanted = model(X)[0]
    made = session(model, Broken({"find": find}))
    told = grainshift.report(model)
    ((path, reason),) = told.untouched
    assert path == "" and reason.startswith("recurrence could not look at it: ")
    assert "left as it is: recurrence could not look" in str(told)
    assert told.settled and made.settle(1e6, None)
    del model.__dict__["_grainshift"]
    assert innards(model) == before
    assert torch.equal(model(X)[0], wanted)


@pytest.mark.parametrize("word", ["build", "install"])
def test_a_site_that_cannot_begin_is_left_and_the_others_are_tuned(word: str) -> None:
    model = nn.ModuleDict({"a": layer(), "b": layer()})
    family = Broken()

    def breaks_at_a(one: Any, site: Any, *rest: Any) -> Any:
        return sabotage() if site.path == "a" else getattr(family.whole, word)(one, site, *rest)

    family.faults[word] = breaks_at_a
    before = innards(model["a"])
    session(model, family)
    told = grainshift.report(model)
    assert told.untouched == (("a", "recurrence could not begin: Sabotage('by the test')"),)
    assert list(slots(model)) == ["recurrence:b"]
    assert innards(model["a"]) == before and "forward" in vars(model["b"])
    assert torch.equal(model["a"](X)[0], model["b"](X)[0])


def test_one_family_that_is_broken_does_not_keep_another_from_tuning() -> None:
    model = layer()
    session(model, Broken({"find": sabotage}, name="broken"), Broken())
    assert list(slots(model)) == ["recurrence:"]
    assert grainshift.report(model).untouched[0][1].startswith("broken could not look")


@pytest.mark.parametrize("word", ["offer", "forecast"])
def test_a_family_that_cannot_say_what_it_offers_leaves_stock_alone(word: str) -> None:
    model = layer()
    made = session(model, Broken({word: sabotage}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explore(made, model, X, until=lambda: slots(model)["recurrence:"].live("B1.T32") == 0)
        for _ in range(20):
            model(X)
            made.driver.pump()
    said = [str(warning.message) for warning in caught]
    assert len(said) == 1 and f"recurrence could not {word}" in said[0] and "Sabotage" in said[0]
    assert all(line.live == "stock" for line in grainshift.report(model).lines)


@pytest.mark.parametrize("word", ["build", "recipe"])
def test_choices_that_cannot_be_built_are_out_and_the_report_says_so(word: str) -> None:
    family = building(lambda run: sabotage())
    model = layer()
    made = session(model, family if word == "build" else Broken({"recipe": sabotage}))

    def out() -> Any:
        (line,) = grainshift.report(model).lines or (None,)
        return line and [c for c, standing in line.choices if standing == "in quarantine"]

    assert explore(made, model, X, until=out)
    (line,) = grainshift.report(model).lines
    assert line.live == "stock" and dict(line.choices)["stock"] == "live"


def breaks(run: Any) -> Any:
    return sabotage


def nan(run: Any) -> Any:
    return lambda *args: tuple(torch.full_like(tensor, torch.nan) for tensor in run(*args))


def off(run: Any) -> Any:
    return lambda *args: tuple(1.001 * tensor for tensor in run(*args))


def shapeless(run: Any) -> Any:
    return lambda *args: None


def starved(run: Any) -> Any:
    def raise_(*args: Any) -> Any:
        raise MemoryError

    return raise_


def fickle(run: Any) -> Any:
    """Right in its first run beside the baseline, then broken."""
    runs: list[int] = []

    def run_once(*args: Any) -> Any:
        runs.append(1)
        return run(*args) if len(runs) == 1 else sabotage()

    return run_once


@pytest.mark.parametrize("fault", [breaks, nan, off, shapeless, starved, fickle])
def test_a_choice_that_goes_wrong_is_out_and_no_caller_ever_sees_it(fault: Any) -> None:
    model = layer()
    made = session(model, building(fault))

    def all_out() -> bool:
        (line,) = grainshift.report(model).lines or (None,)
        return line is not None and sum(s == "in quarantine" for _, s in line.choices) >= 3

    assert explore(made, model, X, until=all_out)
    (line,) = grainshift.report(model).lines
    assert line.live == "stock"


class Ruin:
    """A policy that does everything wrong."""

    name = "ruin"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def propose(self, query: Any) -> Any:
        return self.answer()

    def learn(self, lessons: Any) -> None:
        sabotage()

    actor = arrays = restore = sabotage


@pytest.mark.parametrize("answer", [sabotage, lambda: None, lambda: "stay", lambda: -1])
def test_a_policy_that_is_broken_changes_nothing(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grainshift.api.session.make_policy", lambda *args: Ruin(answer))
    model = layer()
    made = session(model, Broken())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explore(made, model, X, until=lambda: made.driver.state.cases, most=10)
        for _ in range(300):
            with torch.no_grad():
                model(X)
            made.driver.pump()
    assert slots(model)["recurrence:"].live("B1.T32") == 0
    said = [str(warning.message) for warning in caught]
    assert len(said) == 1 and "the policy of recurrence failed" in said[0]


def test_a_loop_that_breaks_ends_tuning_and_the_report_says_why() -> None:
    torch.manual_seed(0)
    model = nn.GRU(3, 4)
    with torch.no_grad():
        wanted = model(X)[0]
        grainshift.tune(model)
        made = session_of(model)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made.driver.pump = sabotage  # type: ignore[method-assign]
            wait_until(lambda: not made._pulse._thread.is_alive())
        assert torch.equal(model(X)[0], wanted)
    said = "Tuning ended, the model runs as PyTorch has it: Sabotage('by the test')"
    told = grainshift.report(model)
    assert said in told.notes and said in str(told).replace("\n", " ") and told.settled
    assert grainshift.settle(model, timeout=1e6)
    assert [str(warning.message) for warning in caught] == [f"grainshift: t{said[1:]}"]
    grainshift.untune(model)
    assert "forward" not in vars(model)


def test_where_no_thread_can_be_had_the_model_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("grainshift"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    model = layer()
    before = innards(model)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        grainshift.tune(model)
    told = grainshift.report(model)
    assert "no thread could be started: can't start new thread" in str(told).replace("\n", " ")
    assert told.settled and model(X)[0].shape == (20, 1, 4)
    grainshift.untune(model)
    assert innards(model) == before


@pytest.fixture(params=["file", "beneath a file", "proc", "home"])
def unwritable(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that even root cannot write."""
    (tmp_path / "file").write_text("I am a file")
    if request.param == "home":
        for name in ("GRAINSHIFT_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", "/proc")
        return
    places = {
        "file": tmp_path / "file",
        "beneath a file": tmp_path / "file" / "in",
        "proc": "/proc/x",
    }
    monkeypatch.setenv("GRAINSHIFT_CACHE", str(places[request.param]))


@pytest.mark.usefixtures("unwritable")
def test_a_cache_that_cannot_be_written_costs_one_warning_and_nothing_else() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = grainshift.tune(layer(), settings=grainshift.Settings(drain_s=0.001))
        made = session_of(model)
        with torch.no_grad():
            wanted = layer()(X)[0]

            def shown() -> bool:
                assert torch.allclose(model(X)[0], wanted, atol=1e-5)
                return bool(made.journal.status.fault and made.driver.state.cases)

            wait_until(shown)
        told = grainshift.report(model)
        assert any(note.startswith("The Journal is kept in memory only: ") for note in told.notes)
        grainshift.untune(model)
    assert [warning.category for warning in caught] == [JournalWarning]
    assert "the model is not affected" in str(caught[0].message)
    assert not our_threads() or wait_until(lambda: not our_threads())


def test_warnings_that_are_errors_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAINSHIFT_CACHE", "/proc/x")
    monkeypatch.setattr("grainshift.api.session.make_policy", lambda *args: Ruin(sabotage))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = layer()
        made = session(model, Broken())
        explore(made, model, X, until=lambda: made.journal.status.fault, most=100_000)
        explore(made, model, X, until=lambda: made.driver.state.cases, most=10)


def test_a_sabotaged_part_raises_indeed() -> None:
    with pytest.raises(Sabotage):
        Broken({"find": sabotage}).find(None)
    with pytest.raises(Sabotage):
        tuple(late()[0])


@pytest.mark.parametrize("word", ["offer", "forecast"])
def test_the_report_says_why_nothing_is_offered(word: str) -> None:
    model = layer()
    made = session(model, Broken({word: sabotage}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explore(made, model, X, until=lambda: made.driver.state.conditions.figures, most=50)
    assert "Sabotage" in str(grainshift.report(model))


def test_all_choices_together_stay_under_the_memory_budget() -> None:
    model = nn.ModuleDict({name: layer() for name in "abcd"})
    family = Broken()
    most = 1000

    def build(one: Any, site: Any, bucket: str, choice: Any, folder: str) -> Runner:
        runner = family.whole.build(one, site, bucket, choice, folder)
        return Runner(runner.run, held_bytes=0 if choice == STOCK else 600)

    family.faults["build"] = build
    family.faults["forecast"] = lambda site, bucket, choice, *others: (
        Forecast(1.0, 0.0) if choice == STOCK else Forecast(0.9, 0.1, extra_bytes=600)
    )
    made = session(model, family, limits=Limits(memory_bytes=most))

    def held() -> int:
        places = made.driver._places.values()
        return sum(r.held_bytes for place in places for r in place.runners.values())

    with torch.no_grad():
        for _ in range(200):
            for part in model.values():
                part(X)
            made.driver.pump()
            assert held() <= most
