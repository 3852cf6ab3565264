"""Measures what this computer reaches: FLOP/s and bytes/s, as Figures. Knows no folder or file."""

import time
from collections.abc import Callable
from itertools import chain

from grainshift.core.conditions import Figure
from grainshift.core.machine import Machine
from grainshift.machine.probe_bandwidth import measure_bandwidth
from grainshift.machine.probe_cuda import measure_cuda
from grainshift.machine.probe_flops import measure_flops

Clock = Callable[[], float]


def measure_rates(
    machine: Machine, *, budget_s: float = 4.0, clock: Clock = time.perf_counter
) -> tuple[Figure, ...]:
    """What all usable cores reach together at their best, in about `budget_s` seconds.

    FLOP/s come with torch's own number of threads, which is left as it is.
    """
    probes: tuple[dict[str, float], ...] = (
        measure_flops(budget_s / 2, clock),
        measure_bandwidth(machine, budget_s / 2, clock),
        measure_cuda(machine, budget_s / 4, clock),
    )
    named = chain.from_iterable(rates.items() for rates in probes)
    return tuple(Figure(name, value) for name, value in named)
