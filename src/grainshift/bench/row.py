"""Rows and Reports: what was measured, as data, and as JSON. Knows nothing of measuring."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of ours beside those of the peers, in one workload.

    `ratio` is the best peer over ours where less is better (times, bytes) and ours over the best
    peer where more is, so above 1 is always better; `ratio_low` and `ratio_high` are its 95 %
    interval. `limit` is the bound to compare with, in the same unit: what the machine allows, or
    what was promised. Figures that do not exist are None.
    """

    workload: str
    metric: str
    unit: str
    ours: float
    peers: Mapping[str, float]
    best_peer: str | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    limit: float | None = None
    notes: str = ""

    @property
    def lost(self) -> bool:
        """Whether the best peer is ahead, beyond doubt."""
        return self.ratio_high is not None and self.ratio_high < 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """The Rows of one run, and the machine, versions and date they belong to."""

    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    date: str
    rows: tuple[Row, ...]


def to_json(report: Report) -> str:
    """A Report as JSON text; a figure that is not finite becomes null."""
    return json.dumps(_plain(asdict(report)), indent=1, allow_nan=False) + "\n"


def from_json(text: str) -> Report:
    """The Report that `to_json` wrote."""
    data = json.loads(text)
    names = {field.name for field in fields(Row)}
    rows = []
    for row in data["rows"]:
        if row.keys() != names:
            raise ValueError(f"a row has the fields {sorted(row)}; it needs {sorted(names)}")
        rows.append(Row(**{**row, "ours": _number(row["ours"]), "peers": _numbers(row["peers"])}))
    return Report(data["machine"], data["versions"], data["date"], tuple(rows))


def write(report: Report, path: Path) -> None:
    """Store a Report as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(to_json(report), encoding="utf-8")
    draft.replace(path)


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive values; not a number when there are none."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: _number(value) for name, value in values.items()}
