"""What we use ourselves: cores, involuntary context switches, page faults."""

import os
import time
from importlib.util import find_spec
from typing import final

from grainshift.core.conditions import Figure
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment, Rise, Usage, share

_ACCOUNTED = find_spec("resource") is not None  # not on Windows
if _ACCOUNTED:
    import resource


def own_usage() -> Usage:
    """Our usage as the kernel accounts it, in microseconds where it can."""
    if not _ACCOUNTED:
        return Usage(time.process_time())
    told = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(
        cpu_s=told.ru_utime + told.ru_stime,
        switches=float(told.ru_nivcsw),
        faults=float(told.ru_minflt + told.ru_majflt),
    )


def is_niced() -> bool:
    """Whether we gave way to others, so that the kernel books our time as nice."""
    return hasattr(os, "getpriority") and os.getpriority(os.PRIO_PROCESS, 0) > 0


def open_ours(ground: Ground) -> Gauge:
    """The gauge of our own use."""
    return _Ours(ground.machine.quota_cores)


@final
class _Ours:
    def __init__(self, cores: float) -> None:
        self._cores = cores
        self._rise = Rise()

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        usage = moment.usage
        counters = (usage.cpu_s, usage.switches or 0.0, usage.faults or 0.0)
        cpu, switches, faults = self._rise.per_s(moment.at_s, *counters)
        figures = [Figure("cpu_ours", share(cpu / self._cores))]
        if usage.switches is not None:
            figures.append(Figure("switches_per_s", switches))
        if usage.faults is not None:
            figures.append(Figure("faults_per_s", faults))
        return tuple(figures)

    def close(self) -> None:
        pass
