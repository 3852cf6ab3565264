"""Conditions: what the machine is like now, as a small named vector. Knows no sensor."""

import math
from dataclasses import dataclass
from enum import StrEnum

CONDITION_NAMES = (
    "cpu_ours",  # cores we use, as a share of the cores we may use
    "cpu_others",  # cores that other processes use, as a share of the same
    "cpu_pressure",  # share of time in which some task waited for a core (PSI)
    "memory_pressure",  # share of time in which some task waited for memory (PSI)
    "steal",  # share of time that the hypervisor took
    "free_memory_bytes",  # what we may still allocate inside the container
    "clock_ratio",  # clock now over its highest
    "switches_per_s",  # involuntary context switches of ours
    "faults_per_s",  # page faults of ours
    "cache_hit_ratio",  # last-level cache
    "dram_ratio",  # DRAM traffic over the measured bandwidth
)


class Source(StrEnum):
    """Whether a figure was measured here or modelled from others."""

    MEASURED = "measured"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True)
class Figure:
    """One named number and where it comes from."""

    name: str
    value: float
    source: Source = Source.MEASURED


@dataclass(frozen=True, slots=True)
class Conditions:
    """The figures of one moment."""

    at_s: float
    figures: tuple[Figure, ...] = ()

    def value(self, name: str, missing: float = 0.0) -> float:
        """The figure of that name, or `missing` when the machine does not tell it."""
        for figure in self.figures:
            if figure.name == name:
                return figure.value
        return missing

    def vector(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """The named figures in order, as a policy reads them."""
        return tuple(self.value(name) for name in names)


def condition_state(conditions: Conditions) -> tuple[float, ...]:
    """The Conditions as a Policy reads them: always the same figures, large ones by logarithm."""
    return tuple(math.log1p(max(value, 0.0)) for value in conditions.vector(CONDITION_NAMES))
