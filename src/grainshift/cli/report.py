"""The command `report`: how a run ended, rebuilt from its Journal. Decides nothing itself."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from grainshift.api.reporting import Report, site_line
from grainshift.cli.story import JOURNAL_NAME
from grainshift.core.errors import JournalFault
from grainshift.core.events import Opened
from grainshift.core.instructions import Swap
from grainshift.environment import environment
from grainshift.guards import make_guards
from grainshift.journal import Run, entries, find_run
from grainshift.tuner import loop


def report(
    journal: Annotated[
        Path | None, typer.Option("--journal", help="The Journal; by default the user's own.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="The run (its first letters suffice); by default the latest."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how a run ended: what each Site runs, what it gains, and why."""
    path = journal or environment().cache_folder / JOURNAL_NAME
    try:
        found = find_run(path, run)
        ended = end_of(found)
    except JournalFault as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(1) from fault
    if as_json:
        about = {"run": found.header.run, "started_at_s": found.header.started_at_s}
        typer.echo(json.dumps({**about, **ended.to_dict()}, indent=1))
    else:
        console = Console()
        console.print(_headline(found), highlight=False)
        console.print(ended)


def end_of(run: Run) -> Report:
    """The state after a run's last event, as `grainshift.report` tells it of a live model."""
    settings, limits = run.header.settings, run.header.limits
    state = loop.begin(settings, limits, make_guards(settings, limits))
    reasons: dict[tuple[str, str], str] = {}
    live: dict[tuple[str, str], int] = {}
    opened: set[tuple[str, str]] = set()
    notes: dict[str, None] = {}
    number = 0
    for entry in entries(run):
        if entry.number != number:
            notes[_gap(entry.number - number, number, run)] = None
        number = entry.number + 1
        state, rebuilt = loop.step(state, entry.event)
        if rebuilt != entry.instructions:
            notes["This version of the tuner decides otherwise: see `grainshift replay`."] = None
        if isinstance(entry.event, Opened):
            opened.add((entry.event.site.key, entry.event.bucket))
        for done in entry.instructions:
            if isinstance(done, Swap):
                key = (done.site_key, done.bucket)
                reasons[key], live[key] = done.reason, done.arm
    lines = tuple(
        # what was recorded counts, should this version rebuild it otherwise
        site_line(state, replace(case, live=live.get(key, 0)), reasons.get(key, ""))
        for key, case in state.cases.items()
    )
    for site_key, bucket in sorted(live.keys() - opened):
        notes[f"{site_key} {bucket}: its beginning was rotated away; see `story`."] = None
    return Report(lines, (), loop.settled(state), tuple(notes))


def _gap(count: int, first: int, run: Run) -> str:
    why = "were rotated away" if not first and run.cut else "are missing"
    return f"{count} events from number {first} on {why}; the figures are of the rest."


def _headline(run: Run) -> Text:
    header = run.header
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(header.started_at_s))
    torch = dict(header.versions).get("torch", "unknown")
    return Text(f"run {header.run}, begun {began}, torch {torch}, {run.entries:,} events")
