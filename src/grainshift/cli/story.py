"""The command `story`: prints a Site's life. Knows no more than the Journal tells."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grainshift.core.errors import JournalFault
from grainshift.environment import environment
from grainshift.journal.story import Line
from grainshift.journal.story import story as lines_of

JOURNAL_NAME = "journal.sqlite"
_COLOURS = {
    "swapped": "bold green",
    "reverted": "bold yellow",
    "quarantined": "bold red",
    "failed": "red",
    "cut": "yellow",
}


def story(
    site: Annotated[str, typer.Argument(help="The Site, such as recurrence:encoder.lstm.")],
    journal: Annotated[
        Path | None, typer.Option("--journal", help="The Journal; by default the user's own.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="The run (its first letters suffice); by default the latest."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a Site's life: what was offered, tried, swapped and reverted, and why."""
    path = journal or environment().cache_folder / JOURNAL_NAME
    try:
        lines = lines_of(path, site, run)
    except JournalFault as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(1) from fault
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines], indent=1))
    else:
        Console().print(_table(site, lines))


def _table(site: str, lines: tuple[Line, ...]) -> Table:
    table = Table("at", "bucket", "what", "", title=escape(site), title_justify="left", box=None)
    start_s = min((line.at_s for line in lines if line.what != "cut"), default=0.0)
    for line in lines:
        colour = _COLOURS.get(line.what, "default")
        what = f"[{colour}]{line.what}[/]"
        at = f"{max(line.at_s - start_s, 0.0):.2f} s"
        table.add_row(at, escape(line.bucket), what, escape(line.text))
    return table
