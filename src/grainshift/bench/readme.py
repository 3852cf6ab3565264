"""Turns stored Reports into the figures that the README shows. Measures nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from grainshift.bench.report import figures, machine_line, summary
from grainshift.bench.row import Report, Row, from_json

# Suites that are shown in part; every other is shown whole.
_HEADLINES = {
    "tuner": ("stationary bandit", "shifted bandit", "turncoat bandit"),
    "recurrence": ("summary",),
}
_GAINS = frozenset({"recurrence"})


def stored(folder: Path) -> dict[str, Report]:
    """The Reports in a folder by the name of their file, in the order of the alphabet."""
    return {
        path.stem: from_json(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def headlines(reports: Mapping[str, Report]) -> dict[str, Report]:
    """The Reports without the rows that few readers want; what users gain comes first."""
    return {
        name: replace(
            reports[name], rows=tuple(row for row in reports[name].rows if _is_headline(name, row))
        )
        for name in sorted(reports, key=lambda name: (name not in _GAINS, name))
    }


def _is_headline(name: str, row: Row) -> bool:
    wanted = _HEADLINES.get(name)
    return wanted is None or row.workload in wanted


def figures_block(reports: Mapping[str, Report]) -> str:
    """Every stored Report as a Markdown table under its machine and date."""
    if not reports:
        return "Nothing has been measured yet: `make bench` does."
    return "\n\n".join(_section(name, report) for name, report in reports.items())


def replace_block(text: str, name: str, body: str) -> str:
    """Text with what stands between `<!-- name -->` and `<!-- /name -->` replaced by body."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(opening) != 1 or text.count(closing) != 1:
        raise ValueError(f"there must be one {opening} and one {closing}")
    before, rest = text.split(opening)
    after = rest.split(closing)[1]
    return f"{before}{opening}\n{body}\n{closing}{after}"


def _section(name: str, report: Report) -> str:
    lines = [
        f"**{name}** · {machine_line(report)}. {summary(report.rows)}.",
        "",
        "| workload | metric | ours | best peer | ratio | 95 % interval | limit |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in report.rows:
        cells = (row.workload, row.metric, *figures(row))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
