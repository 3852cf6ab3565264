"""What other processes use of the cores we may use, and what the hypervisor took.

Time at low priority (nice) is not counted, since it gives way to us: our own builders run so.
"""

import os
from typing import final

import psutil  # type: ignore[import-untyped]

from grainshift.core.conditions import Figure
from grainshift.machine.cgroup import Groups
from grainshift.machine.files import OpenFile, first_found
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment, Rise, share
from grainshift.machine.gauges.ours import is_niced


def open_others(ground: Ground) -> Gauge:
    """The gauge of others' use: /proc/stat, and our group's time where it has a quota."""
    machine = ground.machine
    size_bytes = 4096 + 256 * (1 + max(machine.cores, default=0))
    stat = first_found((ground.proc / "stat",), size_bytes)
    if stat is None:
        return _Portable(len(machine.cores))
    group = _group_time(ground.groups) if machine.quota_cores < len(machine.cores) else None
    return _Others(stat, group, machine.cores, machine.quota_cores)


@final
class _GroupTime:
    """The time that our whole control group has used."""

    def __init__(self, file: OpenFile, unit_s: float) -> None:
        self.file = file
        self._unit_s = unit_s

    def read_s(self) -> float:
        first_line = self.file.read().split(b"\n", 1)[0]
        return int(first_line.split()[-1]) * self._unit_s


def _group_time(groups: Groups) -> _GroupTime | None:
    unified = first_found(tuple(folder / "cpu.stat" for folder in groups.unified[:1]))
    if unified is not None:
        return _GroupTime(unified, 1e-6)  # its first line: usage_usec
    usage = first_found(tuple(folder / "cpuacct.usage" for folder in groups.cpu_v1[:1]))
    return _GroupTime(usage, 1e-9) if usage is not None else None


@final
class _Others:
    def __init__(
        self, stat: OpenFile, group: _GroupTime | None, cores: tuple[int, ...], quota: float
    ) -> None:
        self._stat, self._group = stat, group
        self._cores, self._quota = cores, quota
        self._ticks_per_s = float(os.sysconf("SC_CLK_TCK"))
        self._rise = Rise()

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        busy, steal = _busy_and_steal(self._stat.read(), self._cores, is_niced())
        group_s = self._group.read_s() if self._group else 0.0
        rises = self._rise.per_s(moment.at_s, busy, steal, moment.usage.cpu_s, group_s)
        busy_cores, steal_cores = rises[0] / self._ticks_per_s, rises[1] / self._ticks_per_s
        ours, group_cores = rises[2], rises[3]
        on_cores = (busy_cores - ours) / len(self._cores)
        in_group = (group_cores - ours) / self._quota
        return (
            Figure("cpu_others", share(max(on_cores, in_group))),
            Figure("steal", share(steal_cores / len(self._cores))),
        )

    def close(self) -> None:
        self._stat.close()
        if self._group:
            self._group.file.close()


def _busy_and_steal(stat: bytes, cores: tuple[int, ...], niced: bool) -> tuple[int, int]:
    """Ticks in which these cores worked, and ticks taken from them, since the system began."""
    lines = stat[: stat.index(b"\nintr") if b"\nintr" in stat else len(stat)].splitlines()
    wanted = lines[:1]
    if len(lines) - 1 != len(cores):  # only some of the cores are ours
        names = {b"cpu%d" % core for core in cores}
        wanted = [line for line in lines[1:] if line.split(b" ", 1)[0] in names]
    if not wanted or not wanted[0].startswith(b"cpu"):
        raise ValueError("no line of /proc/stat tells of our cores")
    busy = steal = 0
    for line in wanted:
        user, nice, system, _idle, _wait, irq, softirq, stolen = map(int, line.split()[1:9])
        busy += user + system + irq + softirq + (nice if niced else 0)
        steal += stolen
    return busy, steal


@final
class _Portable:
    """The same by psutil, where there is no /proc."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._rise = Rise()

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        times = psutil.cpu_times()
        busy, ours = self._rise.per_s(moment.at_s, times.user + times.system, moment.usage.cpu_s)
        return (Figure("cpu_others", share((busy - ours) / self._cores)),)

    def close(self) -> None:
        pass
