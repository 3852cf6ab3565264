"""A Report as a table for the terminal, losses included. Knows nothing of measuring."""

import math
from collections.abc import Sequence

from rich.table import Table

from grainshift.bench.row import Report, Row, geometric_mean


def table(report: Report, title: str) -> Table:
    """Every Row of a Report; what the peers won is shown like what they lost."""
    shown = Table(title=f"{title} · {machine_line(report)}", caption=summary(report.rows))
    shown.add_column("workload", min_width=10)
    shown.add_column("metric", min_width=18)
    for heading in ("ours", "best peer", "ratio", "95 % interval", "limit"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in report.rows:
        shown.add_row(row.workload, row.metric, *figures(row), style="red" if row.lost else None)
    return shown


def figures(row: Row) -> tuple[str, str, str, str, str]:
    """The figures of a Row as text: ours, best peer, ratio, interval, limit."""
    peer = f"{row.best_peer} {_figure(row.peers[row.best_peer])}" if row.best_peer else ""
    known = row.ratio_low is not None and row.ratio_high is not None
    return (
        f"{_figure(row.ours)} {row.unit}".strip(),
        peer,
        "" if row.ratio is None else f"{row.ratio:.2f}",
        f"{row.ratio_low:.2f} to {row.ratio_high:.2f}" if known else "",
        "" if row.limit is None else _figure(row.limit),
    )


def summary(rows: Sequence[Row]) -> str:
    """How many Rows have a peer, the geometric mean of their ratios, and how many are lost."""
    ratios = [row.ratio for row in rows if row.ratio is not None and row.ratio > 0.0]
    if not ratios:
        return f"{len(rows)} rows"
    lost = sum(row.lost for row in rows)
    mean = geometric_mean(ratios)
    return f"{len(ratios)} rows beside peers: geometric mean {mean:.2f}, lost {lost}"


def machine_line(report: Report) -> str:
    """The machine and the day of a Report, in words."""
    cpu, cores = report.machine.get("cpu", "unknown CPU"), report.machine.get("cores", "?")
    torch = report.versions.get("torch", "?")
    return f"{cpu}, {cores} cores, torch {torch}, {report.date[:10]}"


def _figure(value: float) -> str:
    """Three digits that count."""
    if not math.isfinite(value):
        return "none"
    if value == 0.0 or 1e-3 <= abs(value) < 1e3:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.2e}"
