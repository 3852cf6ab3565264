"""The pulse: a thread that pumps a driver for as long as its owner lives. Decides nothing."""

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable

_CALM = 5  # times longer between two looks while nothing is under way


class Pulse:
    """Pumps a driver from a daemon thread; a fault in it sends every Site to its baseline."""

    def __init__(
        self,
        pump: Callable[[], object],
        is_calm: Callable[[], bool],
        on_fault: Callable[[], object],
        interval_s: float,
    ) -> None:
        self._pump = weakref.WeakMethod(pump)
        self._is_calm = weakref.WeakMethod(is_calm)
        self._on_fault = weakref.WeakMethod(on_fault)
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="grainshift", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End, and wait until the last look is over."""
        self._end.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _beat(self) -> None:
        wait_s = self._interval_s
        while not self._end.wait(wait_s):
            pump, is_calm = self._pump(), self._is_calm()
            if pump is None or is_calm is None:  # the tuned model is gone
                return
            try:
                pump()
                wait_s = self._interval_s * (_CALM if is_calm() else 1)
            except Exception as fault:  # noqa: BLE001 - tuning must never disturb the model
                self._give_up(fault)
                return
            del pump, is_calm

    def _give_up(self, fault: Exception) -> None:
        on_fault = self._on_fault()
        if on_fault is not None:
            with contextlib.suppress(Exception):
                on_fault()
        sentence = f"grainshift: tuning ended, the model runs as PyTorch has it: {fault!r}"
        with contextlib.suppress(Warning):  # where warnings are errors, the report still says so
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
