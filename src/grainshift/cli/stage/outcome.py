"""What came of the demo: a table of before and after, and what it means in words. Says no more
than was measured.
"""

from collections.abc import Sequence
from statistics import median

from rich import box
from rich.table import Table

from grainshift.bench.measure import Ratio
from grainshift.cli.stage.pairs import speedup, stock_timings, tuned_timings, whole_speedup
from grainshift.cli.stage.phases import Record
from grainshift.cli.stage.screen import site_path

_NOISY_RATIO = 0.1
_STOCK = "stock"


def table(alone_s: Sequence[float], records: Sequence[Record]) -> Table:
    """Every phase beside the others."""
    shown = Table(
        title="Before and after", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    shown.add_column("", no_wrap=True)
    for record in records:
        shown.add_column(record.phase.name, justify="right")
    rows = [_cells(record) for record in records]
    for name in dict.fromkeys(name for cells in rows for name in cells):
        shown.add_row(name, *(cells.get(name, "") for cells in rows))
    shown.caption_justify = "left"
    shown.caption = (
        f"Stock alone, before tuning: {_ms(median(alone_s))} a call, {len(alone_s)} calls. Times"
        " are medians over the second half of a phase, both models in turn, runs on trial included;"
        " 'all calls' compares the means of the whole phase, every outlier included."
    )
    return shown


def _cells(record: Record) -> dict[str, str]:
    late, cells = record.late, {}
    ratio = speedup(late)
    if ratio is not None:
        cells["stock, a call"] = _ms(stock_timings(late).median)
        cells["tuned, a call"] = _ms(tuned_timings(late).median)
        cells["times as fast"] = f"{ratio.value:.2f}"
        cells["  95 % interval"] = f"{ratio.low:.2f} to {ratio.high:.2f}"
    whole = whole_speedup(record.all)
    if whole is not None:
        cells["  all calls"] = f"{whole:.2f}"
    if record.report is not None:
        cells.update({site_path(line.site): line.live for line in record.report.lines})
    calls = sum(len(block.all_tuned_s) for block in record.all)
    cells["tuned calls"] = f"{calls:,}"
    if record.counts.runs:
        cells["  trials, swaps"] = f"{record.counts.trials}, {len(record.swaps)}"
        cells["  runs on trial"] = f"{record.counts.trial_runs / record.counts.runs:.1%}"
        cells["  runs re-checking"] = f"{record.counts.probe_runs / record.counts.runs:.1%}"
    for name, word in (("cpu_others", "cores others use"), ("cpu_pressure", "wait for a core")):
        figure = record.figure(name)
        cells[word] = "not told" if figure is None else f"{figure:.0%}"
    errors = [block.error_ratio for block in record.all]
    cells["largest error"] = f"{max(errors):.1g}" if errors else "not compared"
    return cells


def sentences(records: Sequence[Record], rounding_ratio: float) -> list[str]:
    """What the table says, in words."""
    said = [
        f"{record.phase.title}: {_changes(before, record)}{_speed(record)}"
        for before, record in zip((None, *records), records, strict=False)
    ]
    others = records[0].figure("cpu_others") if records else None
    if others is not None and others > _NOISY_RATIO:
        said.append(
            f"Other processes used {others:.0%} of the cores from the start, so this machine was"
            " not quiet and these figures are noisy."
        )
    errors = [block.error_ratio for record in records for block in record.all]
    if errors:
        verdict = "agreed" if max(errors) <= rounding_ratio else "DID NOT AGREE"
        said.append(
            f"The outputs of both models {verdict} in {len(errors):,} comparisons: the largest"
            f" relative error was {max(errors):.1g}, and {rounding_ratio:g} counts as rounding."
        )
    return said


def _changes(before: Record | None, after: Record) -> str:
    """How what is live changed since the phase before."""
    if after.report is None:
        return ""
    lines = before.report.lines if before is not None and before.report is not None else ()
    was = {line.site: line.live for line in lines}
    moved = [
        f"{site_path(line.site)} went from {was.get(line.site, _STOCK)} to {line.live}"
        for line in after.report.lines
        if was.get(line.site, _STOCK) != line.live
    ]
    trials = _count(after.counts.trials, "trial")
    if moved:
        return f"{', '.join(moved)}, after {trials}; "
    swaps = _count(len(after.swaps), "swap")
    return f"what is live ended as it was, after {trials} and {swaps}; "


def _speed(record: Record) -> str:
    ratio = speedup(record.late)
    if ratio is None:
        return "too few blocks to tell the speed."
    said = f"{_verdict(ratio)} ({ratio.low:.2f} to {ratio.high:.2f})."
    lines = record.report.lines if record.report is not None else ()
    if ratio.high < 1.0 and all(line.live == _STOCK for line in lines):
        said += " Every Site ended on stock: this is what trials cost, and noise."
    return said


def _verdict(ratio: Ratio) -> str:
    if ratio.low > 1.0:
        return f"{ratio.value:.2f} times as fast as stock"
    if ratio.high < 1.0:
        return f"slower than stock, {ratio.value:.2f} times its speed"
    return f"no clear difference to stock, {ratio.value:.2f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
