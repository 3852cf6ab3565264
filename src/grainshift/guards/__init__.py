"""The Guards, one file each: what may be tried, what is good enough, what may stay live."""

from grainshift.core.forecast import Limits
from grainshift.core.guard import Guard
from grainshift.core.settings import Settings
from grainshift.guards.latency import Latency
from grainshift.guards.memory import Memory
from grainshift.guards.numerics import Numerics

__all__ = ["GUARDS", "Latency", "Memory", "Numerics", "make_guards"]

GUARDS = (Memory, Numerics, Latency)


def make_guards(settings: Settings, limits: Limits) -> tuple[Guard, ...]:
    """One of each Guard, for these Settings and Limits."""
    return tuple(kind(settings, limits) for kind in GUARDS)
