"""What was promised, read from the Rows. Measures nothing.

The first word of a workload's name is its part of the bench; "b1" among the others is a batch of 1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from grainshift.bench.recurrence.choosing import METRIC as CHOICE
from grainshift.bench.row import Row, geometric_mean

LEAST_RATIO = 0.97
_CLOSE = 1.05


@dataclass(frozen=True, slots=True)
class _Mean:
    """A geometric mean of ratios that was promised to be at least `limit`."""

    metric: str
    limit: float
    belongs: Callable[[list[str]], bool]


_MEANS = (
    _Mean("fp32 sequences", 1.6, lambda words: words[0] == "fp32"),
    _Mean("fp32 sequences, batch 1", 2.0, lambda words: words[0] == "fp32" and "b1" in words),
    _Mean("streaming", 3.0, lambda words: words[0] == "stream"),
    _Mean("bf16, batch 1, over OpenVINO's", 1.5, lambda words: words[0] == "bf16"),
    _Mean("training, GRU and RNN", 2.0, lambda w: w[0] == "train" and w[1] != "lstm"),
    _Mean("training, LSTM", 1.1, lambda words: words[:2] == ["train", "lstm"]),
)


def summary(rows: Sequence[Row]) -> Iterator[Row]:
    """A Row for each promise over several workloads, as far as there are Rows for it."""
    for mean in _MEANS:
        compared = [row for row in rows if mean.belongs(_words(row)) and row.ratio is not None]
        if compared:
            yield _mean_row(mean, compared)
    sequences = [row for row in rows if _words(row)[0] == "fp32"]
    if compared := [row for row in sequences if row.ratio is not None]:
        yield _lost_row(compared)
    if limited := [row for row in sequences if row.limit is not None and row.ours > 0.0]:
        yield _limit_row(limited)
    if chosen := [row for row in rows if row.metric == CHOICE]:
        yield from _choice_rows("choosing", chosen)
    if loaded := [row for row in rows if _words(row)[0] == "load"]:
        yield _worst_row("a busy core comes and goes", loaded)


def _words(row: Row) -> list[str]:
    return row.workload.split("-")


def _mean_row(mean: _Mean, rows: Sequence[Row]) -> Row:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    below = sum(ratio < LEAST_RATIO for ratio in ratios)
    return _row(
        f"{mean.metric}: best peer over ours, geometric mean",
        "x",
        geometric_mean(ratios),
        mean.limit,
        f"{len(ratios)} workloads, {min(ratios):.2f} to {max(ratios):.2f}, {below} below"
        f" {LEAST_RATIO}; at least {mean.limit} was promised",
    )


def _lost_row(rows: Sequence[Row]) -> Row:
    lost = [row for row in rows if row.ratio is not None and row.ratio < LEAST_RATIO]
    names = ", ".join(row.workload for row in lost) or "none"
    metric = f"fp32 sequences below {LEAST_RATIO} of the best peer"
    return _row(metric, "", float(len(lost)), 0.0, f"{names}; none was promised")


def _limit_row(rows: Sequence[Row]) -> Row:
    shares = [row.limit / row.ours for row in rows if row.limit is not None]
    return _row(
        "fp32 sequences: share of the limit reached, geometric mean",
        "share",
        geometric_mean(shares),
        0.70,
        f"{len(shares)} workloads, {min(shares):.2f} to {max(shares):.2f}; the limit is the least"
        " time by this machine's measured rates",
    )


def _choice_rows(what: str, rows: Sequence[Row]) -> Iterator[Row]:
    slower = _slower(rows)
    share = sum(ratio <= _CLOSE for ratio in slower) / len(slower)
    notes = f"{len(slower)} workloads; at least 0.9 was promised"
    yield _row(
        f"{what}: workloads within 5 % of the best fixed profile", "share", share, 0.9, notes
    )
    yield _worst_row(what, rows)


def _worst_row(what: str, rows: Sequence[Row]) -> Row:
    slower = _slower(rows)
    worst = rows[slower.index(max(slower))]
    return _row(
        f"{what}: time over the best fixed profile's, at worst",
        "x",
        max(slower),
        1.1,
        f"{worst.workload} ({worst.metric}); at most 1.1 was promised",
    )


def _slower(rows: Sequence[Row]) -> list[float]:
    """Ours over the best fixed profile."""
    return [1.0 / row.ratio for row in rows if row.ratio]


def _row(metric: str, unit: str, ours: float, limit: float, notes: str) -> Row:
    return Row("summary", metric, unit, ours, {}, limit=limit, notes=notes)
