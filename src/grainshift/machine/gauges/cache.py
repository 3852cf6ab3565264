"""Cache hits and memory traffic: counted where the kernel allows it, else modelled from the work.

What is counted is ours: every thread alive when the gauge was opened, and all that they start.
"""

from typing import final

from grainshift.core.conditions import Figure, Source
from grainshift.core.machine import Machine
from grainshift.machine.cache_model import model_traffic
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment, Rise, share
from grainshift.machine.perf_event import Counter, Event, open_counter

_LINE_BYTES = 64
_MOST_THREADS = 64


def open_cache(ground: Ground) -> Gauge:
    """The gauge of the last-level cache and of memory traffic."""
    threads = _threads(ground) if ground.counters else []
    references = open_counter(Event.CACHE_REFERENCES, threads)
    misses = open_counter(Event.CACHE_MISSES, threads)
    if references and misses:
        return _Counted(ground.machine, references, misses)
    for counter in (references, misses):
        if counter:
            counter.close()
    return _Modelled(ground.machine)


def _threads(ground: Ground) -> list[int]:
    try:
        names = [entry.name for entry in (ground.proc / "self" / "task").iterdir()]
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdecimal())[:_MOST_THREADS]


@final
class _Counted:
    def __init__(self, machine: Machine, references: Counter, misses: Counter) -> None:
        self._dram_bytes_per_s = machine.rate("dram_bytes")
        self._references, self._misses = references, misses
        self._rise = Rise()

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        counts = self._references.read(), self._misses.read()
        references, misses = self._rise.per_s(moment.at_s, *counts)
        figures = []
        if references > 0.0:
            figures.append(Figure("cache_hit_ratio", share(1.0 - misses / references)))
        if self._dram_bytes_per_s > 0.0:
            ratio = misses * _LINE_BYTES / self._dram_bytes_per_s
            figures.append(Figure("dram_ratio", share(ratio)))
        return tuple(figures)

    def close(self) -> None:
        self._references.close()
        self._misses.close()


@final
class _Modelled:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        work, machine = moment.work, self._machine
        if work is None:
            return ()
        ours, others = moment.value("cpu_ours", 1.0), moment.value("cpu_others", 0.0)
        ours_of_busy = ours / (ours + others) if ours > 0.0 else 1.0
        traffic = model_traffic(work, machine.caches, len(machine.cores), ours_of_busy)
        if traffic is None:
            return ()
        figures = [Figure("cache_hit_ratio", traffic.hit_ratio, Source.MODELLED)]
        if work.seconds > 0.0 and machine.rate("dram_bytes") > 0.0:
            ratio = traffic.dram_bytes / work.seconds / machine.rate("dram_bytes")
            figures.append(Figure("dram_ratio", share(ratio), Source.MODELLED))
        return tuple(figures)

    def close(self) -> None:
        pass
