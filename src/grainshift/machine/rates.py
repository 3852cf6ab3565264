"""Measures what this computer reaches: FLOP/s and bytes/s, as Figures. Knows no folder or file."""

import time
from collections.abc import Callable

from grainshift.core.conditions import Figure
from grainshift.core.machine import Machine
from grainshift.machine.modelled import best_rates
from grainshift.machine.probe_bandwidth import measure_bandwidth
from grainshift.machine.probe_cuda import measure_cuda
from grainshift.machine.probe_flops import measure_flops

Clock = Callable[[], float]


_PASSES = 2  # apart in time, so that a burst of other work hides no rate in both


def measure_rates(
    machine: Machine, *, budget_s: float = 5.0, clock: Clock = time.perf_counter
) -> tuple[Figure, ...]:
    """What all usable cores reach together at their best, in about `budget_s` seconds.

    FLOP/s come with torch's own number of threads, which is left as it is.
    """
    best: tuple[Figure, ...] = ()
    for _ in range(_PASSES):
        best = best_rates(best, _measure_once(machine, budget_s / _PASSES, clock))
    return best


def _measure_once(machine: Machine, budget_s: float, clock: Clock) -> tuple[Figure, ...]:
    rates = measure_flops(budget_s / 2, clock)
    rates |= measure_bandwidth(machine, budget_s / 2, clock)
    rates |= measure_cuda(machine, budget_s / 4, clock)
    return tuple(Figure(name, value) for name, value in rates.items())
