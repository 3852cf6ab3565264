"""Shows the demo while it runs: a live picture in a terminal, plain lines elsewhere. Measures
nothing.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from grainshift.api.reporting import Report
from grainshift.cli.stage.feed import Told
from grainshift.cli.stage.phases import Look, Record

RECENT_BLOCKS = 12
_STORY_LINES, _LEAST_STORY = 12, 4
_FIXED_LINES = 14
_PLAIN_EVERY_S = 5.0
_SHOWN = ("opened", "proposed", "swapped", "reverted", "quarantined", "failed", "noted")
_LASTING = ("swapped", "reverted", "quarantined", "failed")
_COLOURS = {
    "swapped": "green",
    "reverted": "yellow",
    "quarantined": "red",
    "failed": "red",
    "noted": "default",
}


class Screen(Protocol):
    """Where looks are shown."""

    def show(self, look: Look) -> None:
        """Show one look."""


@contextmanager
def open_screen(console: Console, begin_s: float) -> Iterator[Screen]:
    """The screen that fits the console, until the demo is over."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(console, begin_s)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _Picture(live, console, begin_s)


class _Picture:
    """Draws anew at each look, in the thread that measures, so that nothing runs beside it."""

    def __init__(self, live: Live, console: Console, begin_s: float) -> None:
        self._live = live
        self._console = console
        self._begin_s = begin_s
        self._story: deque[Told] = deque(maxlen=_STORY_LINES)

    def show(self, look: Look) -> None:
        self._story.extend(told for told in look.told if told.line.what in _SHOWN)
        room = self._console.height - _FIXED_LINES - _sites(look.record)
        newest = list(self._story)[-max(min(room, _STORY_LINES), _LEAST_STORY) :]
        self._live.update(picture(look, newest, self._begin_s), refresh=True)


class _Lines:
    """Prints what lasts as it happens, and every few seconds how things stand."""

    def __init__(self, console: Console, begin_s: float) -> None:
        self._console = console
        self._begin_s = begin_s
        self._phase = 0
        self._next_s = 0.0

    def show(self, look: Look) -> None:
        if look.number != self._phase:
            self._phase, self._next_s = look.number, look.at_s + _PLAIN_EVERY_S
            self._console.print(f"-- {headline(look)}", highlight=False)
        for told in look.told:
            if told.line.what in _LASTING:
                self._console.print(story_line(told, self._begin_s), soft_wrap=True)
        if look.at_s >= self._next_s:
            self._next_s += _PLAIN_EVERY_S
            pace = f"{look.at_s - self._begin_s:6.1f} s  {pace_line(look.record)}"
            self._console.print(Text(pace), highlight=False, soft_wrap=True)


def picture(look: Look, story: list[Told], begin_s: float) -> RenderableType:
    """One look as it is drawn in a terminal."""
    record = look.record
    passed_s = look.at_s - record.begin_s
    bar = ProgressBar(total=record.phase.seconds, completed=passed_s, width=40)
    parts: list[RenderableType] = [
        Text(headline(look), style="bold", no_wrap=True, overflow="ellipsis"),
        bar,
        Text(""),
        _figures(record),
        Text(""),
    ]
    if record.report is not None:
        parts.append(_sites_table(record.report))
    parts.append(Text(""))
    parts.extend(story_line(told, begin_s, one_line=True) for told in story)
    return Group(*parts)


def headline(look: Look) -> str:
    """Which phase this is and how long it still takes."""
    record = look.record
    left_s = max(record.phase.seconds - (look.at_s - record.begin_s), 0.0)
    return f"phase {look.number} of {look.of}: {record.phase.title}, {left_s:.0f} s left"


def pace_line(record: Record) -> str:
    """What a call takes now of either model, and what is live."""
    stock_s, tuned_s = _recent(record)
    live = ""
    if record.report is not None:
        live = ", ".join(f"{site_path(line.site)} {line.live}" for line in record.report.lines)
    if stock_s is None or tuned_s is None:
        return f"nothing measured yet; live: {live}"
    pace = f"stock {1e3 * stock_s:.3g} ms, tuned {1e3 * tuned_s:.3g} ms a call"
    return f"{pace} ({stock_s / tuned_s:.2f}×); live: {live}"


def story_line(told: Told, begin_s: float, *, one_line: bool = False) -> Text:
    """A line of a Site's story."""
    line = told.line
    at = f"{max(line.at_s - begin_s, 0.0):6.1f} s  "
    what = line.text if line.what in ("noted", "opened") else f"{line.what} {line.text}"
    text = Text(at, style="dim", no_wrap=one_line, overflow="ellipsis" if one_line else "fold")
    text.append(f"{site_path(told.site_key)} ", style="bold not dim")
    return text.append(what, style=f"{_COLOURS.get(line.what, 'default')} not dim")


def _figures(record: Record) -> Table:
    stock_s, tuned_s = _recent(record)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=10)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row("stock", _pace(stock_s, stock_s, tuned_s))
    table.add_row("tuned", _pace(tuned_s, stock_s, tuned_s))
    counts, calls = record.counts, sum(len(block.all_tuned_s) for block in record.all)
    spent = f"{calls:,} of the tuned model in this phase"
    if counts.runs:
        spent += f"; {counts.trial_runs / counts.runs:.1%} of runs on trial"
    table.add_row("calls", spent)
    budget_s = record.budget_s
    may = "exploring was ended" if budget_s is None else f"{1e3 * budget_s:,.0f} ms to explore with"
    table.add_row("budget", may)
    table.add_row("machine", _machine(record))
    return table


def _pace(seconds: float | None, stock_s: float | None, tuned_s: float | None) -> Text:
    if seconds is None or stock_s is None or tuned_s is None:
        return Text("not measured yet", style="dim")
    bar = "█" * max(1, round(30 * seconds / max(stock_s, tuned_s)))
    text = Text(f"{1e3 * seconds:7.3g} ms a call  ")
    text.append(bar, style="cyan" if seconds is stock_s else "green")
    return text if seconds is stock_s else text.append(f" {stock_s / seconds:.2f}×", style="bold")


def _machine(record: Record) -> str:
    if not record.conditions:
        return "not sensed yet"
    now = record.conditions[-1]
    others, pressure = now.value("cpu_others"), now.value("cpu_pressure")
    return f"others use {others:.0%} of the cores, tasks wait for one {pressure:.0%} of the time"


def _sites_table(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Site", no_wrap=True)
    table.add_column("live Choice", no_wrap=True, min_width=20, style="bold")
    table.add_column("beside it", no_wrap=True, overflow="ellipsis")
    for line in report.lines:
        table.add_row(site_path(line.site), line.live, line.doing or "nothing on trial")
    return table


def _sites(record: Record) -> int:
    return len(record.report.lines) if record.report is not None else 0


def _recent(record: Record) -> tuple[float | None, float | None]:
    """The median of the newest blocks' medians, of either model."""
    newest = record.all[-RECENT_BLOCKS:]
    if not newest:
        return None, None
    return (
        median(median(block.stock_s) for block in newest),
        median(median(block.tuned_s) for block in newest),
    )


def site_path(site_key: str) -> str:
    """A Site's place in the model, without its family."""
    return site_key.partition(":")[2] or site_key
