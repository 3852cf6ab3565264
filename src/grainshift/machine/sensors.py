"""Samples the machine's Conditions, cheaply enough to be always on. Knows no gauge by name."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import final

from grainshift.core.conditions import Conditions, Figure
from grainshift.core.machine import Machine
from grainshift.machine.cache_model import Work
from grainshift.machine.cgroup import find_groups
from grainshift.machine.files import PROC, SYS
from grainshift.machine.gauges import GAUGES
from grainshift.machine.gauges.gauge import FAULTS, Gauge, Ground, Moment, Usage
from grainshift.machine.gauges.ours import own_usage

_SHORTEST_WINDOW_S = 0.02  # two ticks of the kernel's clock: less would be mostly rounding


@final
class Sensors:
    """Everything that can tell what this machine is like now. One thread may sample at a time."""

    def __init__(
        self,
        machine: Machine,
        clock: Callable[[], float] = time.monotonic,
        *,
        proc: Path = PROC,
        sys: Path = SYS,
        usage: Callable[[], Usage] = own_usage,
        counters: bool = True,
    ) -> None:
        ground = Ground(machine, find_groups(proc, sys), proc, sys, clock, counters)
        self._gauges = _open_all(ground)
        self._clock, self._usage = clock, usage
        self._work: Work | None = None
        self._last = Conditions(0.0)
        self.restart()

    def sample(self, at_s: float) -> Conditions:
        """The Conditions at a time of the clock; rates are over the time since the last sample.

        A source that vanished or makes no sense is left out. Called again within moments, it
        answers with the last figures.
        """
        if 0.0 <= at_s - self._last.at_s < _SHORTEST_WINDOW_S:
            return Conditions(at_s, self._last.figures)
        self._last = Conditions(at_s, self._read(at_s))
        return self._last

    def tell(self, work: Work | None) -> None:
        """Say what the model does to memory, for the figures that must be modelled from it."""
        self._work = work

    def restart(self) -> float:
        """Begin a new window now, and say when that is."""
        at_s = self._clock()
        self._last = Conditions(at_s, self._read(at_s))
        return at_s

    def close(self) -> None:
        """Let go of all open files and counters."""
        for gauge in self._gauges:
            gauge.close()
        self._gauges = []

    def _read(self, at_s: float) -> tuple[Figure, ...]:
        figures: dict[str, Figure] = {}
        moment = Moment(at_s, self._usage(), self._work, figures)
        for gauge in self._gauges:
            try:
                for figure in gauge.read(moment):
                    figures[figure.name] = figure
            except FAULTS:  # the figure is dropped, and tried again at the next sample
                continue
        return tuple(figures.values())


def sampling_cost_s(sensors: Sensors, samples: int = 200, pause_s: float = 0.0) -> float:
    """CPU seconds that one whole sample costs, on average; the window begins anew afterwards.

    A pause before each lets the caches grow cold, as they are when samples are far apart.
    """
    start_s, cost_s = sensors.restart(), 0.0
    for number in range(1, samples + 1):
        if pause_s > 0.0:
            time.sleep(pause_s)
        began_s = time.thread_time()
        sensors.sample(start_s + number)  # a second apart each, so that none is cut short
        cost_s += time.thread_time() - began_s
    sensors.restart()
    return cost_s / samples


def _open_all(ground: Ground) -> list[Gauge]:
    gauges: list[Gauge] = []
    for open_gauge in GAUGES:
        try:
            gauge = open_gauge(ground)
        except FAULTS:  # a source that cannot be opened is one that the machine does not have
            continue
        if gauge is not None:
            gauges.append(gauge)
    return gauges
