"""`grainshift probe`: what this computer is, reaches and is like now. Measures; tunes nothing."""

import json as json_text
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from grainshift.core.conditions import CONDITION_NAMES, Conditions, Figure
from grainshift.core.machine import Machine
from grainshift.environment import environment
from grainshift.machine import (
    Sensors,
    best_rates,
    find_machine,
    keep_rates,
    load_rates,
    measure_rates,
    sampling_cost_s,
    with_rates,
)

_WINDOW_S = 0.5
_SAMPLES, _PAUSE_S = 20, 0.02
_BUSY = 0.1
_ABSENT = dict.fromkeys(("cache_hit_ratio", "dram_ratio"), "modelled, once a model runs")
_UNITS = (("_flops", 1e9, "GFLOP/s"), ("_bytes", 1e9, "GB/s"))


def probe(
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Show this computer's facts, limits, measured rates, and its conditions right now.

    The rates are kept for later runs, the best ever seen of each.
    """
    folder = environment().rates_folder
    machine = find_machine()
    sensors = Sensors(machine)
    time.sleep(_WINDOW_S)
    conditions = sensors.sample(time.monotonic())
    cost_s = sampling_cost_s(sensors, samples=_SAMPLES, pause_s=_PAUSE_S)
    rates = best_rates(load_rates(folder, machine), measure_rates(machine))
    others = sensors.sample(time.monotonic()).value("cpu_others")
    sensors.close()
    kept = keep_rates(folder, machine, rates)
    machine = with_rates(machine, rates)
    if json:
        typer.echo(json_text.dumps(_as_data(machine, conditions, cost_s, others), indent=2))
    else:
        _show(Console(), machine, conditions, cost_s)
        Console().print(*_remarks(others, kept, str(folder)), sep="\n")


def _show(console: Console, machine: Machine, conditions: Conditions, cost_s: float) -> None:
    console.print(_facts(machine), _rates(machine), _now(conditions), _cost(cost_s), sep="\n")


def _remarks(others: float, kept: bool, folder: str) -> list[str]:
    remarks = [f"The rates are kept in {folder}."]
    if not kept:
        remarks = [f"The rates could not be kept: {folder} cannot be written."]
    if others > _BUSY:
        remarks.append(
            f"Other processes used {others:.0%} of the cores while the rates were measured, so"
            " they may be too low: run this again when the machine is quiet."
        )
    return remarks


def _facts(machine: Machine) -> Table:
    table = _table("This machine", "fact", "value")
    table.add_row("processor", machine.cpu)
    table.add_row("cores we may use", f"{len(machine.cores)} ({_listed(machine.cores)})")
    table.add_row("limit of CPU time", f"{machine.quota_cores:g} cores")
    table.add_row("limit of memory", _readable("_bytes", machine.memory_bytes))
    for cache in machine.caches:
        shared = "a core's own" if cache.shared_by == 1 else f"shared by {cache.shared_by} cores"
        size = f"{cache.size_bytes / 1024:,.0f} KiB"
        table.add_row(f"level {cache.level} cache", f"{size}, {shared}")
    table.add_row("instruction sets", ", ".join(machine.instruction_sets) or "none that matter")
    for device in machine.accelerators:
        table.add_row("accelerator", f"{device.name}, {_readable('_bytes', device.memory_bytes)}")
    if not machine.accelerators:
        table.add_row("accelerators", "none")
    table.add_row("fingerprint", machine.fingerprint)
    return table


def _rates(machine: Machine) -> Table:
    table = _table("What it reaches, all usable cores together", "rate", "value", "source")
    for figure in machine.rates:
        for ending, unit, shown in _UNITS:
            if figure.name.endswith(ending):
                table.add_row(figure.name, f"{figure.value / unit:,.1f} {shown}", figure.source)
    return table


def _now(conditions: Conditions) -> Table:
    table = _table(f"Right now, over {_WINDOW_S:g} s", "condition", "value", "source")
    found = {figure.name: figure for figure in conditions.figures}
    for name in dict.fromkeys((*CONDITION_NAMES, *found)):
        if name in found:
            table.add_row(name, _readable(name, found[name].value), found[name].source)
        else:
            table.add_row(name, "", _ABSENT.get(name, "not told by this machine"))
    return table


def _cost(cost_s: float) -> str:
    share = cost_s / _WINDOW_S
    return f"One sample costs {cost_s * 1e6:.0f} µs, or {share:.3%} of a core at two a second."


def _readable(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{value / (1 << 30):,.1f} GiB"
    return f"{value:,.1f}" if name.endswith("_per_s") else f"{value:.1%}"


def _listed(cores: tuple[int, ...]) -> str:
    if len(cores) > 2 and cores == tuple(range(cores[0], cores[-1] + 1)):
        return f"{cores[0]} to {cores[-1]}"
    return ", ".join(map(str, cores))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, min_width=60)
    for column in columns:
        table.add_column(column)
    return table


def _as_data(
    machine: Machine, conditions: Conditions, cost_s: float, others: float
) -> dict[str, Any]:
    return {
        "machine": {
            "fingerprint": machine.fingerprint,
            "cpu": machine.cpu,
            "cores": machine.cores,
            "quota_cores": machine.quota_cores,
            "memory_bytes": machine.memory_bytes,
            "caches": [
                {"level": c.level, "size_bytes": c.size_bytes, "shared_by": c.shared_by}
                for c in machine.caches
            ],
            "instruction_sets": machine.instruction_sets,
            "accelerators": [
                {"name": a.name, "memory_bytes": a.memory_bytes} for a in machine.accelerators
            ],
        },
        "rates": _figures(machine.rates),
        "conditions": _figures(conditions.figures),
        "cpu_others_while_measuring": others,
        "sampling_cost_s": cost_s,
    }


def _figures(figures: tuple[Figure, ...]) -> dict[str, dict[str, Any]]:
    return {f.name: {"value": f.value, "source": f.source.value} for f in figures}
