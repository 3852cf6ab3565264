"""The contract of a gauge, what it is opened on, and what it gets. Knows no source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from grainshift.core.conditions import Figure
from grainshift.core.machine import Machine
from grainshift.machine.cache_model import Work
from grainshift.machine.cgroup import Groups

FAULTS = (OSError, ValueError, LookupError, ArithmeticError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process has used since it began."""

    cpu_s: float
    switches: float | None = None
    faults: float | None = None


@dataclass(frozen=True, slots=True)
class Ground:
    """What a gauge is opened on."""

    machine: Machine
    groups: Groups
    proc: Path
    sys: Path
    clock: Callable[[], float]
    counters: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """What a gauge gets: the time, our usage, the model's work, and the figures found so far."""

    at_s: float
    usage: Usage
    work: Work | None
    figures: Mapping[str, Figure]

    def value(self, name: str, missing: float) -> float:
        """A figure found so far, or `missing`."""
        figure = self.figures.get(name)
        return missing if figure is None else figure.value


class Gauge(Protocol):
    """One source of figures. Any of FAULTS means that it has none this time."""

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        """Its figures now."""

    def close(self) -> None:
        """Let go of what it holds open."""


@final
class Rise:
    """How far counters rose, by a second, between one look and the next."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._last: tuple[float, ...] = ()

    def per_s(self, at_s: float, *now: float) -> tuple[float, ...]:
        """The rise of each counter by a second; LookupError at the first look."""
        elapsed_s, last = at_s - self._at_s, self._last
        self._at_s, self._last = at_s, now
        if not last or elapsed_s <= 0.0:
            raise LookupError("no earlier look")
        return tuple(max(0.0, (b - a) / elapsed_s) for a, b in zip(last, now, strict=True))


def share(value: float) -> float:
    """The value, kept within 0 and 1."""
    return min(1.0, max(0.0, value))
