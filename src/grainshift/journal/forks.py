"""Tells every living writer of a fork. The system takes such a wish once and for good, so it is
made once for all writers, who come and go. Knows nothing of what they do about it.
"""

import os
import weakref
from collections.abc import Callable
from functools import cache

from grainshift.journal.pump import Pump

_writers: set[weakref.ref[Pump]] = set()  # each step on it is one operation: no lock to inherit


def follow(pump: Pump) -> None:
    """Tell this writer of every fork, for as long as it lives."""
    _listen()
    _writers.add(weakref.ref(pump, _writers.discard))


@cache
def _listen() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_each(Pump.before_fork),
            after_in_parent=_each(Pump.after_fork_in_parent),
            after_in_child=_each(Pump.after_fork_in_child),
        )


def _each(tell: Callable[[Pump], None]) -> Callable[[], None]:
    def tell_all() -> None:
        for known in list(_writers):
            if (pump := known()) is not None:
                tell(pump)

    return tell_all
