"""The command `demo`: tunes a small model live, puts load on the machine, tells what came of it.

Wires the parts in `stage`; the figures are measured in the run that shows them.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Annotated, Any

import typer
from rich.console import Console

QUICK_S, LEAST_S = 12.0, 4.0
_STOCK_SHARE = 0.06
_SHARES = (0.38, 0.34, 0.22)


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
        raise typer.Exit(130)


def _perform(console: Console, seconds: float) -> bool:
    """The whole demo; whether it came to its end."""
    import grainshift
    from grainshift.api.session import session_of
    from grainshift.cli.stage import model as models
    from grainshift.cli.stage.feed import Feed
    from grainshift.cli.stage.phases import Record, Tour, make_contest, stock_alone
    from grainshift.cli.stage.screen import open_screen

    stock, chunks = models.make_model(), models.make_chunks()
    tuned = deepcopy(stock)
    contest = make_contest(stock, tuned, chunks, time.perf_counter)
    cores, phases = _phases(seconds)
    _introduce(console, models.WORDS, seconds, cores)
    alone_s: list[float] = []
    records: list[Record] = []
    ended = False
    begin_s = time.monotonic()
    try:
        console.print(f"Measuring stock PyTorch alone for {_STOCK_SHARE * seconds:.0f} s …")
        alone_s.extend(stock_alone(contest, _STOCK_SHARE * seconds, time.perf_counter))
        grainshift.tune(tuned)
        session = session_of(tuned)
        feed = Feed(session.journal)
        tour = Tour(contest, session, feed, time.monotonic)
        with open_screen(console, begin_s) as screen:
            for look in tour.go(phases, records):
                screen.show(look)
        ended = True
    except KeyboardInterrupt:
        console.print("Ended early; this is what was measured until then.")
    _conclude(console, tuned, alone_s, records)
    return ended


def _introduce(console: Console, words: str, seconds: float, cores: str) -> None:
    import torch

    console.print(
        f"Grainshift tunes {words}. It runs for {seconds:.0f} s on {cores}, with"
        f" {torch.get_num_threads()} PyTorch threads, beside the same model as PyTorch runs it."
    )


def _phases(seconds: float) -> tuple[str, Sequence[Any]]:
    """The cores in words, and the phases after stock alone."""
    from grainshift.bench.load import busy_core
    from grainshift.cli.stage.phases import Phase
    from grainshift.machine import find_machine

    machine = find_machine()
    usable = len(machine.cores)
    busy = max(1, round(machine.quota_cores / 2))
    titles = ("as it is", f"{busy} of {usable} cores busy", "load gone")

    def load() -> AbstractContextManager[object]:
        return busy_core(busy)

    loads = (nullcontext, load, nullcontext)
    phases = [
        Phase(title, share * seconds, load)
        for title, share, load in zip(titles, _SHARES, loads, strict=True)
    ]
    return f"{usable} cores", phases


def _conclude(
    console: Console, tuned: Any, alone_s: Sequence[float], records: Sequence[Any]
) -> None:
    from grainshift.api import untune
    from grainshift.api.session import session_of
    from grainshift.cli.stage import outcome
    from grainshift.core.errors import NotTunable

    try:
        session = session_of(tuned)
    except NotTunable:  # ended before it began
        return
    settings, journal = session.driver.state.settings, session.journal
    sites = sorted({line.site for line in session.report().lines})
    untune(tuned)
    console.print()
    console.print(outcome.table(alone_s, records))
    for sentence in filter(None, outcome.sentences(records, settings.rounding_ratio)):
        console.print(sentence, highlight=False)
    console.print()
    fault = journal.status.fault
    if fault:
        console.print(f"The Journal could not be kept, so there is nothing to look into: {fault}")
        return
    run = journal.header.run[:8]
    console.print(f"All of it is in the Journal, {journal.path}. Look deeper:", soft_wrap=True)
    for command in (
        *(f"story {site} --run {run}" for site in sites),
        f"report --run {run}",
        f"replay --run {run}",
    ):
        console.print(f"  grainshift {command}", highlight=False, soft_wrap=True)
