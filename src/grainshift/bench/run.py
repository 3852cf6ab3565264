"""Runs a suite of measurements and puts its Rows into a Report. Measures nothing itself."""

import importlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grainshift.bench.row import Report, Row
from grainshift.core.codec import encode
from grainshift.core.errors import GrainshiftError
from grainshift.core.machine import Machine
from grainshift.environment import environment, versions
from grainshift.machine import find_machine


@dataclass(frozen=True, slots=True)
class Suite:
    """A file of the bench whose `run(quick, only)` answers the Rows it measured."""

    name: str
    module: str
    summary: str

    def run(self, quick: bool, only: str | None) -> list[Row]:
        """Measure; `quick` is for a first look, `only` for the workloads whose name contains it."""
        rows: list[Row] = importlib.import_module(self.module).run(quick=quick, only=only)
        return rows


SUITES = (
    Suite("tuner", "grainshift.bench.tuner", "every rule of the tuner on simulated machines"),
    Suite("journal", "grainshift.bench.journal", "what appending to the Journal takes"),
    Suite("recurrence", "grainshift.bench.recurrence", "LSTM, GRU and RNN layers beside the peers"),
)


def find_suite(name: str) -> Suite:
    """The suite of that name, or a sentence that names all there are."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    names = ", ".join(suite.name for suite in SUITES)
    raise GrainshiftError(f"there is nothing to measure called {name!r}; there is {names}")


def report(suite: Suite, quick: bool = False, only: str | None = None) -> Report:
    """Run a suite here and now."""
    rows = tuple(suite.run(quick, only))
    if not rows:
        raise GrainshiftError(f"nothing in {suite.name} has a name that contains {only!r}")
    machine = find_machine(rates_folder(environment().cache_folder))
    return Report(facts(machine), versions(), datetime.now(UTC).isoformat("T", "seconds"), rows)


def facts(machine: Machine) -> dict[str, Any]:
    """What a reader of figures wants to know of the machine they come from."""
    return {
        "cpu": machine.cpu,
        "cores": len(machine.cores),
        "quota_cores": machine.quota_cores,
        "memory_bytes": machine.memory_bytes,
        "caches": encode(machine.caches),
        "instruction_sets": list(machine.instruction_sets),
        "rates": {figure.name: figure.value for figure in machine.rates},
        "fingerprint": machine.fingerprint,
    }


def usable_cores(machine: Machine) -> int:
    """The threads that can run at once inside the container's quota."""
    return max(1, min(len(machine.cores), int(machine.quota_cores)))


def rates_folder(cache_folder: Path) -> Path:
    """Where the rates of this machine are kept once they were measured."""
    return cache_folder / "machine"
