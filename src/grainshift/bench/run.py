"""Runs a suite of measurements and puts its Rows into a Report. Measures nothing itself."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grainshift.bench.row import Report, Row, write
from grainshift.core.codec import encode
from grainshift.core.errors import GrainshiftError
from grainshift.core.machine import Machine
from grainshift.environment import environment, versions
from grainshift.machine import find_machine

Run = Callable[[bool, str | None], Iterable[Row]]


def _in(module: str) -> Run:
    """The `run` of a file of the bench, imported when it is called."""
    return lambda quick, only: importlib.import_module(module).run(quick=quick, only=only)


def _journal(quick: bool, only: str | None) -> list[Row]:
    from grainshift.bench.journal import run

    return _named(only, [Row(**row) for row in run(*((20, 1.0) if quick else (200, 5.0)))])


def _named(only: str | None, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if only is None or only in row.workload]


@dataclass(frozen=True, slots=True)
class Suite:
    """Something to measure. `run(quick, only)` answers its Rows, each as soon as it is there.

    `quick` is for a first look, `only` for the workloads whose name contains it.
    """

    name: str
    summary: str
    run: Run


SUITES = (
    Suite("tuner", "every rule of the tuner on simulated machines", _in("grainshift.bench.tuner")),
    Suite("overhead", "what Grainshift itself costs", _in("grainshift.bench.overhead")),
    Suite("journal", "what the Journal takes in, and what a kill costs it", _journal),
    Suite(
        "recurrence",
        "LSTM, GRU and RNN layers beside the peers",
        _in("grainshift.bench.recurrence"),
    ),
    Suite(
        "cachegrind",
        "modelled cache hits of the kernels against cachegrind's count",
        _in("grainshift.bench.cachegrind"),
    ),
)


def find_suite(name: str) -> Suite:
    """The suite of that name, or a sentence that names all there are."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    names = ", ".join(suite.name for suite in SUITES)
    raise GrainshiftError(f"there is nothing to measure called {name!r}; there is {names}")


def report(
    suite: Suite, quick: bool = False, only: str | None = None, keep: Path | None = None
) -> Report:
    """Run a suite here and now, and keep its Report in a file, if one is named.

    Until all is measured, a file beside it, `.partial`, holds the Rows so far.
    """
    rows: list[Row] = []
    partial = keep and keep.with_name(keep.name + ".partial")
    for row in suite.run(quick, only):
        rows.append(row)
        if partial is not None:
            write(_report(rows), partial)
    if not rows:
        raise GrainshiftError(f"nothing in {suite.name} has a name that contains {only!r}")
    if keep is not None and partial is not None:
        partial.replace(keep)
    return _report(rows)


def _report(rows: Iterable[Row]) -> Report:
    machine, now = find_machine(environment().rates_folder), datetime.now(UTC)
    return Report(facts(machine), versions(), now.isoformat("T", "seconds"), tuple(rows))


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
