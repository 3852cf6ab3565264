"""What came of the demo: a table of before and after, and what it means in words. Says no more
than was measured.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from rich.table import Table

from grainshift.bench.measure import Ratio
from grainshift.cli.stage.pairs import speedup, stock_timings, tuned_timings, whole_speedup
from grainshift.cli.stage.phases import Record

_NOISY_RATIO = 0.1


def table(alone_s: Sequence[float], records: Sequence[Record]) -> Table:
    """Every phase beside the others, the first line being stock PyTorch by itself."""
    shown = Table(title="Before and after", title_justify="left", show_lines=False)
    shown.add_column("")
    for record in records:
        shown.add_column(record.phase.title, justify="right")
    rows = [_cells(record) for record in records]
    for name in dict.fromkeys(name for cells in rows for name in cells):
        shown.add_row(name, *(cells.get(name, "") for cells in rows))
    if alone_s:
        shown.caption = (
            f"Stock alone, before tuning: {_ms(median(alone_s))} a call, {len(alone_s)} calls."
            " Times are medians over the second half of each phase, both models in turn; the"
            " interval holds 95 %."
        )
        shown.caption_justify = "left"
    return shown


def _cells(record: Record) -> dict[str, str]:
    late, cells = record.late, {}
    ratio = speedup(late)
    if ratio is not None:
        cells["stock, a call"] = _ms(stock_timings(late).median)
        cells["tuned, a call"] = _ms(tuned_timings(late).median)
        cells["times as fast"] = f"{ratio.value:.2f}"
        cells["  interval"] = f"{ratio.low:.2f} to {ratio.high:.2f}"
    whole = whole_speedup(record.all)
    if whole is not None:
        cells["  all calls, exploring too"] = f"{whole:.2f}"
    if record.report is not None:
        cells.update({_path(line.site): line.live for line in record.report.lines})
    calls = sum(len(block.all_tuned_s) for block in record.all)
    cells["calls of the tuned model"] = f"{calls:,}"
    if record.counts.runs:
        cells["  runs on trial"] = f"{record.counts.trial_runs / record.counts.runs:.1%}"
        cells["  runs to check the live"] = f"{record.counts.probe_runs / record.counts.runs:.1%}"
        cells["  trials begun"] = str(record.counts.trials)
    for name, word in (("cpu_others", "cores others use"), ("cpu_pressure", "waiting for cores")):
        figure = record.figure(name)
        cells[word] = "not told" if figure is None else f"{figure:.0%}"
    errors = [block.error_ratio for block in record.all]
    cells["largest relative error"] = f"{max(errors):.1g}" if errors else "not compared"
    return cells


def sentences(records: Sequence[Record], rounding_ratio: float) -> list[str]:
    """What the table says, in words."""
    said = [_speed(record) for record in records]
    said.extend(_choices(before, after) for before, after in pairwise(records))
    others = records[0].figure("cpu_others") if records else None
    if others is not None and others > _NOISY_RATIO:
        said.append(
            f"Other processes used {others:.0%} of the cores from the start, so this machine was"
            " not quiet and these figures are noisy."
        )
    errors = [block.error_ratio for record in records for block in record.all]
    if errors:
        agreed = max(errors) <= rounding_ratio
        verdict = "agreed" if agreed else "DID NOT AGREE"
        said.append(
            f"The outputs of both models {verdict} in {len(errors):,} comparisons: the largest"
            f" relative error was {max(errors):.1g}, and {rounding_ratio:g} counts as rounding."
        )
    return said


def _speed(record: Record) -> str:
    where, ratio = record.phase.title.capitalize(), speedup(record.late)
    if ratio is None:
        return f"{where}: too few blocks to tell."
    interval = f"({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{where}: {_verdict(ratio)} {interval}."


def _verdict(ratio: Ratio) -> str:
    if ratio.low > 1.0:
        return f"{ratio.value:.2f} times as fast as stock"
    if ratio.high < 1.0:
        return f"slower than stock, {ratio.value:.2f} times its speed"
    return "no clear difference to stock"


def _choices(before: Record, after: Record) -> str:
    """How what is live changed from one phase to the next."""
    if before.report is None or after.report is None:
        return ""
    was = {line.site: line.live for line in before.report.lines}
    moved = [
        f"{_path(line.site)} went from {was[line.site]} to {line.live}"
        for line in after.report.lines
        if was.get(line.site, line.live) != line.live
    ]
    title = after.phase.title
    if moved:
        return f"Then, {title}: {', '.join(moved)}."
    trials, swaps = after.counts.trials, len(after.swaps)
    looked = f"{trials} trials and {swaps} swaps" if trials or swaps else "without a trial"
    return f"Then, {title}: the live Choices ended as they were, after {looked}."


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _path(site_key: str) -> str:
    return site_key.partition(":")[2] or site_key
