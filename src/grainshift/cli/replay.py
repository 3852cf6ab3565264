"""The command `replay`: rebuilds a run's decisions and compares. Decides nothing itself."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from grainshift.cli.story import JOURNAL_NAME
from grainshift.core.codec import encode_tagged
from grainshift.core.errors import JournalFault
from grainshift.core.instructions import AnyInstruction
from grainshift.environment import environment
from grainshift.guards import make_guards
from grainshift.journal.header import RunHeader
from grainshift.journal.read import Run, find_run
from grainshift.journal.replay import Replayed
from grainshift.journal.replay import replay as replay_run
from grainshift.tuner import loop
from grainshift.tuner.state import State


def replay(
    journal: Annotated[
        Path | None, typer.Option("--journal", help="The Journal; by default the user's own.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="The run (its first letters suffice); by default the latest."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rebuild every decision of a run from its events, and compare with the Journal."""
    path = journal or environment().cache_folder / JOURNAL_NAME
    try:
        found = find_run(path, run)
        replayed = replay_run(found, _begin, loop.step)
    except JournalFault as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(1) from fault
    if as_json:
        typer.echo(json.dumps(_data(found, replayed), indent=1))
    else:
        Console().print(_text(found, replayed))
    if not replayed.agrees:
        raise typer.Exit(1)


def _begin(header: RunHeader) -> State:
    guards = make_guards(header.settings, header.limits)
    return loop.begin(header.settings, header.limits, guards)


def _data(run: Run, replayed: Replayed) -> dict[str, object]:
    difference = replayed.first_difference
    return {
        "run": run.header.run,
        "agrees": replayed.agrees,
        "events": replayed.events,
        "decisions": replayed.decisions,
        "decision_hash": replayed.decision_hash,
        "recorded_hash": replayed.recorded_hash,
        "missing": replayed.missing,
        "first_difference": None
        if difference is None
        else {
            "number": difference.number,
            "event": encode_tagged(difference.event),
            "recorded": [encode_tagged(done) for done in difference.recorded],
            "rebuilt": [encode_tagged(done) for done in difference.rebuilt],
        },
    }


def _text(run: Run, replayed: Replayed) -> str:
    counts = f"{replayed.events} events, {replayed.decisions} decisions"
    lines = [f"run {run.header.run}: {counts}, hash {replayed.decision_hash[:16]}"]
    if (difference := replayed.first_difference) is not None:
        lines += [
            f"[bold red]differs[/] first at event {difference.number}:",
            escape(f"  event     {difference.event}"),
            escape(f"  recorded  {_listed(difference.recorded)}"),
            escape(f"  rebuilt   {_listed(difference.rebuilt)}"),
        ]
    if replayed.missing:
        lines.append(f"[yellow]{escape(replayed.missing)}[/]")
    if replayed.agrees:
        lines.append("[bold green]agrees[/]: every decision came out the same")
    return "\n".join(lines)


def _listed(instructions: tuple[AnyInstruction, ...]) -> str:
    return ", ".join(map(str, instructions)) or "nothing"
