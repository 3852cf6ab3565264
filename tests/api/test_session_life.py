import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from tuned_models import force, our_threads, rest, slots, speaker, wait_until, words

import grainshift
from grainshift.api.session import session_of
from grainshift.core.site import Site
from grainshift.families.recurrence import Recurrence
from grainshift.runtime.compare import relative_error

THREADS = 8
SWAPS = 1000


def answers(model: nn.Module) -> Any:
    with torch.no_grad():
        return model(words())


def all_gone() -> bool:
    gc.collect()
    return not our_threads()


def test_a_model_nobody_holds_takes_its_threads_along() -> None:
    wait_until(all_gone)
    model = grainshift.tune(speaker(), settings=grainshift.Settings(drain_s=0.001))
    assert {*our_threads()} == {"grainshift", "grainshift-journal"}
    for _ in range(20):
        answers(model)
    seen = [weakref.ref(part) for part in (model, model.gru, session_of(model))]
    del model
    wait_until(all_gone)
    assert [ref() for ref in seen] == [None] * 3


def test_a_layer_that_outlives_its_model_goes_back_to_the_baseline() -> None:
    model = grainshift.tune(speaker())
    rest(session_of(model))
    answers(model)
    force(model, "B2.T32", 1)
    gru, slot = model.gru, slots(model)["recurrence:gru"]
    assert slot.live("B2.T32") == 1
    del model
    wait_until(lambda: all_gone() and slot.live("B2.T32") == 0)
    x = torch.ones(2, 20, 24)
    with torch.no_grad():
        assert relative_error(gru(x), speaker().gru(x)) == 0.0


def test_untune_ends_all_threads_and_frees_the_session() -> None:
    wait_until(all_gone)
    model = grainshift.tune(speaker(), settings=grainshift.Settings(drain_s=0.001))
    answers(model)
    seen = weakref.ref(session_of(model))
    grainshift.untune(model)
    assert our_threads() == []
    wait_until(lambda: all_gone() and seen() is None)


def test_many_models_leave_nothing_behind() -> None:
    wait_until(all_gone)
    for number in range(6):
        model = grainshift.tune(speaker(number))
        answers(model)
        grainshift.tune(model)
        if number % 2:
            grainshift.untune(model)
    del model
    wait_until(all_gone)


def test_nothing_to_tune_takes_no_thread_to_look() -> None:
    wait_until(all_gone)
    model = grainshift.tune(nn.Linear(2, 2))
    assert "grainshift" not in our_threads()
    grainshift.untune(model)
    assert our_threads() == []


class Crowd:
    """Threads that call a model with inputs of their own until told to stop."""

    def __init__(self, model: nn.Module, inputs: list[torch.Tensor], wanted: list[Any]) -> None:
        self.calls = [0] * THREADS
        self.wrong: list[object] = []
        self._pairs = list(zip(inputs, wanted, strict=True))
        self._model = model
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(THREADS)]

    def __enter__(self) -> "Crowd":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _run(self, number: int) -> None:
        torch.set_num_threads(1)
        x, wanted = self._pairs[number]
        while not self._end.is_set():
            try:
                with torch.no_grad():
                    answer = self._model(x)
                if not all(
                    torch.allclose(a, b, atol=1e-5, rtol=0.0)
                    for a, b in zip(answer, wanted, strict=True)
                ):
                    self.wrong.append(number)
            except Exception as fault:  # noqa: BLE001 - told to the test
                self.wrong.append(fault)
            self.calls[number] += 1


def test_8_threads_get_right_answers_while_choices_swap_a_thousand_times() -> None:
    torch.manual_seed(0)
    model = nn.GRU(4, 8)
    inputs = [torch.randn(16, 1, 4) for _ in range(THREADS)]
    with torch.no_grad():
        wanted = [(y, *(s if isinstance(s, tuple) else (s,))) for y, s in map(model, inputs)]
        flat = Flat(grainshift.tune(model))
        flat(inputs[0])
    ((key, slot),) = slots(model).items()
    numbers = range(1, 11)
    for number in numbers:
        assert list(force(model, "B1.T16", number)) == [key]
    with Crowd(flat, inputs, wanted) as crowd:
        for swap in range(SWAPS):
            slot.swap("B1.T16", numbers[swap % len(numbers)] if swap % 7 else 0)
            if swap % 5 == 0:
                before = sum(crowd.calls)
                wait_until(lambda before=before: sum(crowd.calls) > before + 4)  # type: ignore[misc]
            if swap == SWAPS // 2:
                grainshift.report(model)
    assert crowd.wrong == []
    assert all(calls > 20 for calls in crowd.calls)
    grainshift.untune(model)


class Flat(nn.Module):
    """A recurrent layer that answers one flat tuple."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        return (y, *(state if isinstance(state, tuple) else (state,)))


def test_tuning_and_untuning_while_threads_call_never_shows() -> None:
    torch.manual_seed(0)
    model = Flat(nn.GRU(4, 8))
    inputs = [torch.randn(16, 1, 4) for _ in range(THREADS)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
    with Crowd(model, inputs, wanted) as crowd:
        for turn in range(6):
            grainshift.tune(model, settings=grainshift.Settings(drain_s=0.001, seed=turn))
            before = sum(crowd.calls)
            wait_until(lambda before=before: sum(crowd.calls) > before + 100)  # type: ignore[misc]
            grainshift.report(model)
            (grainshift.freeze if turn % 3 else grainshift.untune)(model)
    assert crowd.wrong == []
    grainshift.untune(model)


def test_threads_that_tune_one_model_at_once_leave_one_session_that_can_be_undone() -> None:
    for number in range(5):
        model = speaker(number)
        threads = [threading.Thread(target=grainshift.tune, args=(model,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers(model)
        wait_until(lambda model=model: grainshift.report(model).lines)
        assert grainshift.report(model).untouched == ()
        grainshift.untune(model)
        assert all("forward" not in vars(module) for module in model.modules())
    wait_until(all_gone)


def test_an_interrupt_while_tuning_begins_leaves_a_model_that_can_be_untuned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install = Recurrence.install

    def interrupted(family: Recurrence, model: nn.Module, site: Site, door: Any) -> Any:
        if site.path == "gru":
            raise KeyboardInterrupt
        return install(family, model, site, door)

    model = speaker()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Recurrence, "install", interrupted)
        grainshift.tune(model)
    assert "forward" in vars(model.lstm)
    grainshift.untune(model)
    assert "forward" not in vars(model.lstm)
    assert set(slots(grainshift.tune(model))) == {"recurrence:lstm", "recurrence:gru"}


def test_freezing_keeps_what_is_live_and_settles() -> None:
    model = grainshift.tune(speaker())
    answers(model)
    rest(session_of(model))
    force(model, "B2.T32", 3)
    assert grainshift.freeze(model) is model
    session_of(model).driver.pump()
    assert grainshift.report(model).settled
    assert {slot.live("B2.T32") for slot in slots(model).values()} == {3}
    assert relative_error(answers(model), answers(speaker())) < 1e-5


def test_settle_calls_the_model_and_lets_its_exceptions_through() -> None:
    model = grainshift.tune(speaker())
    with pytest.raises(IndexError):
        grainshift.settle(model, torch.full((1, 3), 99), timeout=60)
    grainshift.freeze(model)
    assert grainshift.settle(model, words(), timeout=60)


def script(text: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in a process of its own, which must end by itself."""
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )


BEGIN = """
import os, sys, threading
import torch
from torch import nn
import grainshift
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.GRU(4, 8)
x = torch.randn(16, 1, 4)
torch.set_grad_enabled(False)
wanted = model(x)[0]
grainshift.tune(model, settings=grainshift.Settings(drain_s=0.001))
for _ in range(200):
    model(x)

def right():
    return all(torch.allclose(model(x)[0], wanted, atol=1e-5) for _ in range(50))
"""

FORK = """
codes = []
for turn in range(3):
    child = os.fork()
    if child == 0:
        ok = right()
        grainshift.report(model)
        if turn % 3 == 1:
            grainshift.untune(model)
        if turn % 3 == 2:
            grainshift.tune(model)
        sys.exit(0 if ok and right() else 1)  # with everything that runs at exit
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert right()
assert threading.active_count() == 3, threading.enumerate()
print(codes)
"""


def test_a_forked_child_gets_right_answers_and_ends() -> None:
    done = script(BEGIN + FORK)
    assert (done.returncode, done.stdout.strip()) == (0, str([0] * 3)), done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 2)"], ids=["its end", "an interrupt"])
def test_a_process_with_a_tuned_model_ends_as_it_would_without(end: str) -> None:
    done, plain = script(BEGIN + end), script("import os, sys\n" + end)
    assert done.returncode == plain.returncode
    lines = plain.stderr.strip().splitlines()[-1:]
    assert done.stderr.strip().splitlines()[-1:] == lines
