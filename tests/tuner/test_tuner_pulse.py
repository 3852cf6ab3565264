"""The pulse ends with its owner, and a fault in it gives the model back."""

import gc
import threading
import warnings
import weakref

import pytest

from grainshift.tuner.pulse import Pulse


class Owner:
    """Owns a pulse, and counts what it is asked to do."""

    def __init__(self, interval_s: float = 0.001, fault: Exception | None = None) -> None:
        self.beats = 0
        self.gave_up = 0
        self.fault = fault
        self.worse: Exception | None = None
        self.beaten = threading.Event()
        self.pulse = Pulse(self.pump, self.is_calm, self.give_up, interval_s)

    def pump(self) -> None:
        self.beats += 1
        if self.fault is not None:
            raise self.fault
        if self.beats >= 3:
            self.beaten.set()

    def is_calm(self) -> bool:
        return False

    def give_up(self) -> None:
        self.gave_up += 1
        self.beaten.set()
        if self.worse is not None:
            raise self.worse


def thread_of(pulse: Pulse) -> threading.Thread:
    return pulse._thread


def test_it_beats_until_it_is_stopped() -> None:
    owner = Owner()
    owner.pulse.start()
    assert owner.beaten.wait(20.0)
    owner.pulse.stop(20.0)
    assert not thread_of(owner.pulse).is_alive()
    beats = owner.beats
    assert beats >= 3
    assert owner.beats == beats
    assert owner.gave_up == 0


def test_the_interval_is_what_it_waits() -> None:
    owner = Owner(interval_s=3600.0)
    owner.pulse.start()
    assert not owner.beaten.wait(0.05)
    owner.pulse.stop(20.0)  # at once, however long the interval
    assert not thread_of(owner.pulse).is_alive()
    assert owner.beats == 0


def test_it_ends_when_its_owner_is_gone() -> None:
    owner = Owner()
    owner.pulse.start()
    assert owner.beaten.wait(20.0)
    thread, gone = thread_of(owner.pulse), weakref.ref(owner)
    del owner
    for _ in range(200):  # the thread may hold it for the length of a beat
        gc.collect()
        thread.join(0.05)
        if not thread.is_alive():
            break
    assert gone() is None
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("worse", [None, RuntimeError("and worse")])
def test_a_fault_gives_up_once_and_says_so(worse: Exception | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        owner = Owner(fault=ValueError("broken"))
        owner.worse = worse
        owner.pulse.start()
        assert owner.beaten.wait(20.0)
        thread_of(owner.pulse).join(20.0)
    assert not thread_of(owner.pulse).is_alive()
    assert (owner.beats, owner.gave_up) == (1, 1)
    (told,) = [str(one.message) for one in caught]
    assert told == (
        "grainshift: tuning ended, the model runs as PyTorch has it: ValueError('broken')"
    )


def test_where_warnings_are_errors_it_ends_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        owner = Owner(fault=ValueError("broken"))
        owner.pulse.start()
        thread_of(owner.pulse).join(20.0)
    assert (owner.gave_up, raised) == (1, [])


class Ending(Owner):
    def pump(self) -> None:
        super().pump()
        self.pulse.stop()


def test_a_pulse_may_be_stopped_from_within() -> None:
    owner = Ending()
    owner.pulse.start()
    thread_of(owner.pulse).join(20.0)
    assert not thread_of(owner.pulse).is_alive()
    assert owner.beats == 1
