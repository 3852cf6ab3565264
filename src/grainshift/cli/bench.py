"""The command `bench`: measures one family and shows the losses with the gains."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grainshift.core.errors import GrainshiftError

_FILE_COLUMNS = 140


def bench(
    family: Annotated[
        str,
        typer.Argument(help="What to measure: tuner, overhead, journal, recurrence or cachegrind."),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter runs, for a first look.")
    ] = False,
    only: Annotated[
        str | None, typer.Option("--only", help="Only workloads whose name contains this.")
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", help="Write the Report to this file as well; until the end to FILE.partial."
        ),
    ] = None,
) -> None:
    """Measure Grainshift beside its peers, interleaved in one run."""
    from grainshift.bench.report import table
    from grainshift.bench.run import find_suite, report

    suite = find_suite(family)
    if json_file and not os.access(json_file.parent, os.W_OK):  # told before minutes are spent
        raise GrainshiftError(f"--json={json_file} cannot be written; name a folder that can be")
    measured = report(suite, quick, only, json_file)
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console = Console(width=_FILE_COLUMNS)
    console.print(table(measured, suite.name))
