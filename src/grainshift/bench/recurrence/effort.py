"""How much time a run of this bench takes, and on which workloads. Measures no model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grainshift.bench.contender import Workload
from grainshift.bench.measure import Plan
from grainshift.bench.run import usable_cores
from grainshift.bench.workloads.recurrence import QUICK
from grainshift.core.machine import Machine
from grainshift.environment import environment
from grainshift.machine import (
    best_rates,
    find_machine,
    keep_rates,
    load_rates,
    measure_rates,
    with_rates,
)

_BLOCKS, _QUICK_BLOCKS = 30, 8
_QUICK_SHARE = 0.3  # of the time that a whole run takes over the same


@dataclass(frozen=True, slots=True)
class Effort:
    """What was asked of a run.

    quick: a first look. only: what a workload's name must contain. machine: with its rates.
    tell: is told what is being done.
    """

    quick: bool
    only: str | None
    machine: Machine
    tell: Callable[[str], object] = str

    @property
    def cores(self) -> int:
        """The most threads that anyone is given."""
        return usable_cores(self.machine)

    def chosen(self, workloads: Iterable[Workload]) -> list[Workload]:
        """Those of the workloads that this run measures."""
        if self.only is not None:
            return [workload for workload in workloads if self.only in workload.name]
        return [one for one in workloads if not self.quick or one.name in QUICK]

    def seconds(self, whole_s: float) -> float:
        """What takes so long in a whole run, in this one."""
        return whole_s * _QUICK_SHARE if self.quick else whole_s

    def plan(self, whole_s: float) -> Plan:
        """So many blocks at least, and the more readings the more time there is."""
        blocks = _QUICK_BLOCKS if self.quick else _BLOCKS
        return Plan(blocks, least_blocks=blocks, budget_s=self.seconds(whole_s))


def measured_machine(again: bool) -> Machine:
    """This machine with the best rates ever measured here; they are kept, as `probe` keeps them."""
    folder = environment().rates_folder
    machine = find_machine(folder)
    known = load_rates(folder, machine)
    if known is not None and not again:
        return with_rates(machine, known)
    rates = best_rates(known, measure_rates(machine))
    keep_rates(folder, machine, rates)
    return with_rates(machine, rates)
