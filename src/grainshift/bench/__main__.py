"""`python -m grainshift.bench FOLDER` runs every suite and stores its Report in the folder."""

import sys
from pathlib import Path

from rich.console import Console

from grainshift.bench.report import table
from grainshift.bench.run import SUITES, report


def main(folder: Path, console: Console) -> None:
    """Run every suite, show what came of it, and store it."""
    for suite in SUITES:
        measured = report(suite, keep=folder / f"{suite.name}.json")
        console.print(table(measured, suite.name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Console())
