"""The command `demo`: tunes a small model live, puts load on the machine, tells what came of it.

Wires the parts in `stage`; every figure is measured in the run that shows it.
"""

import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Annotated

import torch
import typer
from rich.console import Console

from grainshift.api import freeze, tune, untune
from grainshift.api.session import Session, session_of
from grainshift.bench.load import busy_core
from grainshift.cli.stage import model as models
from grainshift.cli.stage import outcome
from grainshift.cli.stage.feed import Feed
from grainshift.cli.stage.pairs import Contest
from grainshift.cli.stage.phases import Phase, Record, Tour, stock_alone
from grainshift.cli.stage.screen import open_screen, story_line
from grainshift.journal import Journal
from grainshift.machine import find_machine

QUICK_S, LEAST_S = 12.0, 4.0
_ALONE_SHARE = 0.06
_SHARES = (0.36, 0.30, 0.18, 0.10)
_INTERRUPTED = 130


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", min=LEAST_S, help="How long it takes in all.")
    ] = 75.0,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"Only {QUICK_S:g} s: a first look, little is proved.")
    ] = False,
) -> None:
    """Tune a small LSTM model live, put load on the machine, and compare with stock PyTorch."""
    console = Console()
    if not _perform(console, QUICK_S if quick else seconds):
        raise typer.Exit(_INTERRUPTED)


def _perform(console: Console, seconds: float) -> bool:
    """The whole demo; whether it came to its end."""
    stock, chunks = models.make_model(), models.make_chunks()
    tuned = deepcopy(stock)
    contest = Contest(stock, tuned, chunks, time.perf_counter, random.Random(0))
    alone_s = _measure_alone(console, contest, seconds)
    if not alone_s:
        return False
    tune(tuned)
    session = session_of(tuned)
    begin_s, records = time.monotonic(), list[Record]()
    tour = Tour(contest, session, Feed(session.journal), time.monotonic)
    ended = False
    try:
        with open_screen(console, begin_s) as screen:
            for look in tour.go(_phases(seconds, tuned), records):
                screen.show(look)
        ended = True
    except KeyboardInterrupt:
        console.print("Ended early; this is what was measured until then.")
    _conclude(console, session, alone_s, records, begin_s)
    untune(tuned)
    _point_to(console, session.journal, sorted({case[0] for case in session.driver.state.cases}))
    return ended


def _measure_alone(console: Console, contest: Contest, seconds: float) -> list[float]:
    """Seconds of the stock model's calls by itself; none when it was interrupted."""
    alone_s = _ALONE_SHARE * seconds
    try:
        console.print(
            f"Grainshift tunes {models.WORDS}. It takes {seconds:.0f} s, with"
            f" {torch.get_num_threads()} PyTorch threads, beside the same model as PyTorch runs"
            " it.",
            highlight=False,
        )
        console.print(f"First, stock PyTorch alone for {alone_s:.0f} s …", highlight=False)
        return stock_alone(contest, alone_s, time.perf_counter)
    except KeyboardInterrupt:
        console.print("Ended before anything was tuned.")
        return []


def _phases(seconds: float, tuned: torch.nn.Module) -> Sequence[Phase]:
    """The phases after stock alone."""
    machine = find_machine()
    busy = max(1, round(machine.quota_cores / 2))

    def load() -> AbstractContextManager[object]:
        return busy_core(busy)

    def frozen() -> AbstractContextManager[object]:
        return nullcontext(freeze(tuned))

    quiet, loaded, after, settled = (share * seconds for share in _SHARES)
    under = f"Load on {busy} of {len(machine.cores)} cores"
    return (
        Phase("as it is", "The machine as it is", quiet, nullcontext),
        Phase("load", under, loaded, load),
        Phase("load gone", "The load gone", after, nullcontext),
        Phase("frozen", "Exploring ended by freeze", settled, frozen),
    )


def _conclude(
    console: Console,
    session: Session,
    alone_s: Sequence[float],
    records: Sequence[Record],
    begin_s: float,
) -> None:
    console.print()
    if console.is_terminal:  # elsewhere they were printed as they happened
        for told in (told for record in records for told in record.swaps):
            console.print(story_line(told, begin_s))
    console.print(outcome.table(alone_s, records))
    for sentence in outcome.sentences(records, session.driver.state.settings.rounding_ratio):
        console.print(sentence, highlight=False)
    console.print()


def _point_to(console: Console, journal: Journal, sites: Sequence[str]) -> None:
    """Where to look deeper."""
    fault = journal.status.fault
    if fault:
        console.print(f"The Journal could not be kept, so there is nothing to look into: {fault}")
        return
    run = journal.header.run[:8]
    console.print(f"All of it is in the Journal {journal.path}; look deeper:", soft_wrap=True)
    for command in (*(f"story {site}" for site in sites), "report", "replay"):
        console.print(f"  grainshift {command} --run {run}", highlight=False, soft_wrap=True)
