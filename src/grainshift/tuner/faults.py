"""Calls what is plugged in, and turns its faults into one warning each. Knows nothing of tuning."""

import contextlib
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Faults:
    """Keeps the faults of a policy, a family, a sensor or a log from whoever called it."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def answer(self, what: str, ask: Callable[[], T], otherwise: T) -> T:
        """What `ask` answers, or `otherwise` where it fails; `what` says in words what failed."""
        try:
            return ask()
        except Exception as fault:  # noqa: BLE001 - what is plugged in must not reach the model
            self.tell(what, fault)
            return otherwise

    def tell(self, what: str, fault: BaseException) -> None:
        """Warn, unless this was told before."""
        if what in self.told:
            return
        self.told[what] = f"{what}: {words(fault)}"
        with contextlib.suppress(Warning):  # where warnings are errors, they end no loop either
            warnings.warn(f"grainshift: {self.told[what]}", RuntimeWarning, stacklevel=4)


def words(fault: BaseException) -> str:
    """What a fault says of itself, at most 500 characters."""
    try:
        return f"{type(fault).__name__}: {fault}"[:500]
    except Exception:  # noqa: BLE001 - whoever wrote that exception, the loop goes on
        return type(fault).__name__
