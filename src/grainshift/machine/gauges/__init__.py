"""One file for each source of Conditions. A gauge is opened on a Ground, or is not to be had."""

from collections.abc import Callable

from grainshift.machine.gauges.accelerator import open_accelerator
from grainshift.machine.gauges.cache import open_cache
from grainshift.machine.gauges.clock import open_clock
from grainshift.machine.gauges.gauge import Gauge, Ground
from grainshift.machine.gauges.memory import open_memory
from grainshift.machine.gauges.others import open_others
from grainshift.machine.gauges.ours import open_ours
from grainshift.machine.gauges.pressure import open_cpu_pressure, open_memory_pressure

GAUGES: tuple[Callable[[Ground], Gauge | None], ...] = (
    open_ours,
    open_others,
    open_cpu_pressure,
    open_memory_pressure,
    open_memory,
    open_clock,
    open_cache,  # after those whose figures it reads
    open_accelerator,
)

__all__ = ["GAUGES"]
