"""`grainshift pretrain`: profiles a family here and trains its policy. Decides nothing itself."""

import json as json_text
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from grainshift.core.errors import NotTunable
from grainshift.core.trace import Trace, Traces
from grainshift.environment import environment
from grainshift.policies.pretrain import Pretrained, Regret

_PROFILED_SHARE = 0.6  # of the time; the rest is for training
_LESSONS_A_MINUTE = 6_000
_LONGEST_MINUTES = 24 * 60.0


def pretrain(
    family: Annotated[str, typer.Argument(help="Whose policy to train: recurrence.")],
    minutes: Annotated[float, typer.Option(help="About how long it takes in all.")] = 8.0,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the weights go; by default where `tune` finds them."),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Traces to train on; where there is no such file, what is profiled."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the regrets to this file as well.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
) -> None:
    """Profile layers on this machine, train the family's policy on it, and show its regret.

    Run it on a quiet machine: what else runs is learnt as if it belonged to the layers.
    """
    from grainshift.policies.pretrain import pretrain as train
    from grainshift.policies.pretrain import read_traces, write_traces
    from grainshift.policies.store import save

    if family != "recurrence":
        raise NotTunable(f"there is no policy to train for {family!r}; give recurrence")
    if not 0.0 < minutes <= _LONGEST_MINUTES:
        raise NotTunable(f"--minutes {minutes} will not do; give minutes such as 8")
    console = Console()
    if traces is not None and traces.exists():
        known = read_traces(traces)
    else:
        known = _profiled(minutes * 60.0 * _PROFILED_SHARE, seed, console)
        if traces is not None:
            write_traces(known, traces)
    lessons = max(1, int(minutes * _LESSONS_A_MINUTE))
    console.print(f"Training on {len(known.traces)} traces of {known.machine}.")
    found = train(known.traces, lessons, seed)
    target = out or environment().weights_file(family, found.policy.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    save(found.policy, target)
    _show(console, found)
    console.print(f"The weights are in {target}.", soft_wrap=True)
    if json_file is not None:
        rows = [asdict(regret) for regret in found.regrets]
        told = {"machine": known.machine, "regrets": rows, "notes": found.notes}
        json_file.write_text(json_text.dumps(told, indent=2) + "\n", encoding="utf-8")


def _profiled(seconds: float, seed: int, console: Console) -> Traces:
    from grainshift.bench.load import busy_core
    from grainshift.families.recurrence import Recurrence
    from grainshift.families.recurrence.profile import Stand, grid, profile
    from grainshift.machine import Sensors, find_machine

    place = environment()
    machine = find_machine(place.rates_folder)
    family = Recurrence(kernels=place.kernels_folder)
    sensors = Sensors(machine)
    stand = Stand(
        family,
        machine,
        sensors,
        time.perf_counter,
        lambda cores: busy_core(cores) if cores else nullcontext(),
    )
    found: list[Trace] = []
    try:
        with console.status("Profiling") as status:
            for trace in profile(stand, grid(seed), seconds, seed):
                found.append(trace)
                status.update(f"Profiling: {len(found)} traces, {trace.architecture}")
    finally:
        sensors.close()
    return Traces(family.name, machine.cpu, tuple(found))


def _show(console: Console, found: Pretrained) -> None:
    for group in dict.fromkeys(regret.group for regret in found.regrets):
        ours = [regret for regret in found.regrets if regret.group == group]
        console.print(_table(group, ours))
    console.print(*found.notes, sep="\n")


def _table(group: str, regrets: list[Regret]) -> Table:
    heading = group.replace("trained", "trained on")
    if heading == group:
        heading = f"left out by {group}"
    title = f"{heading} ({regrets[0].questions} questions)"
    table = Table(title=title, title_justify="left", min_width=60)
    table.add_column("picks of")
    for column in ("mean × best", "worst × best", "within 5 %"):
        table.add_column(column, justify="right")
    for regret in regrets:
        figures = (f"{regret.mean_ratio:.3f}", f"{regret.worst_ratio:.2f}", f"{regret.within:.0%}")
        table.add_row(regret.picker, *figures)
    return table
