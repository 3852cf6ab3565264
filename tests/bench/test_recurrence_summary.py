"""What was promised, read from Rows."""

import math
from collections.abc import Iterator

import pytest

from grainshift.bench.recurrence import whole
from grainshift.bench.recurrence.choosing import METRIC
from grainshift.bench.recurrence.effort import Effort
from grainshift.bench.recurrence.summary import summary
from grainshift.bench.row import Row
from grainshift.core.machine import Machine


def beside(workload: str, ratio: float, limit: float | None = None, metric: str = "median") -> Row:
    peers = {"peer": ratio}
    return Row(workload, metric, "ms", 1.0, peers, "peer", ratio, ratio, ratio, limit)


def found(*rows: Row) -> dict[str, Row]:
    return {row.metric: row for row in summary(rows)}


def test_nothing_measured_promises_nothing() -> None:
    assert found() == {}
    failed = Row("fp32-gru-64-b1-t1", "median", "ms", math.nan, {}, limit=0.1, notes="ours failed")
    assert found(failed) == {}


def test_a_part_that_fails_says_so_and_keeps_its_rows() -> None:
    row, told = beside("fp32-a-b1", 2.0), []

    def broken(effort: Effort) -> Iterator[Row]:
        yield row
        raise OSError("no more threads")

    machine = Machine("none", "a CPU", (0,), 1.0, 1 << 30)
    first, ended = whole(broken, Effort(True, None, machine, told.append))
    assert first == row and math.isnan(ended.ours) and ended.workload == "broken"
    assert "no more threads" in ended.notes and "no more threads" in told[0]
    assert len(found(first, ended)) == len(found(first)) > 0


def test_groups_are_told_by_name() -> None:
    rows = (
        beside("fp32-lstm-64-b1-t16", 4.0),
        beside("fp32-lstm-64-b16-t16", 1.0),
        beside("stream-gru-64-b1", 3.0),
        beside("bf16-gru-64-b1-t16", 1.5),
        beside("train-lstm-64-b4-t16", 1.2),
        beside("train-gru-64-b4-t16", 8.0),
        beside("train-rnn-64-b4-t16", 2.0),
    )
    means = {row.metric.partition(":")[0]: (row.ours, row.limit) for row in summary(rows)}
    assert means["fp32 sequences"] == (pytest.approx(2.0), 1.6)
    assert means["fp32 sequences, batch 1"] == (pytest.approx(4.0), 2.0)
    assert means["streaming"] == (pytest.approx(3.0), 3.0)
    assert means["bf16, batch 1, over OpenVINO's"] == (pytest.approx(1.5), 1.5)
    assert means["training, GRU and RNN"] == (pytest.approx(4.0), 2.0)
    assert means["training, LSTM"] == (pytest.approx(1.2), 1.1)


def test_losses_are_counted_and_named() -> None:
    rows = found(beside("fp32-a-b1", 0.96), beside("fp32-b-b1", 0.98), beside("stream-c-b1", 0.5))
    lost = rows["fp32 sequences below 0.97 of the best peer"]
    assert lost.ours == 1.0 and lost.limit == 0.0 and lost.notes.startswith("fp32-a-b1;")


def test_the_share_of_the_limit_is_a_mean_over_sequences() -> None:
    rows = found(beside("fp32-a-b1", 1.0, 0.5), beside("fp32-b-b1", 1.0, 0.125))
    share = rows["fp32 sequences: share of the limit reached, geometric mean"]
    assert share.ours == pytest.approx(0.25) and share.limit == 0.70


def test_choosing_counts_who_is_close_and_names_the_worst() -> None:
    rows = found(
        beside("choose-a", 1.0, metric=METRIC),
        beside("choose-b", 1 / 1.04, metric=METRIC),
        beside("choose-c", 1 / 1.2, metric=METRIC),
        beside("load-d", 1 / 1.5, metric="median in a phase"),
    )
    close = rows["choosing: workloads within 5 % of the best fixed profile"]
    worst = rows["choosing: time over the best fixed profile's, at worst"]
    loaded = rows["a busy core comes and goes: time over the best fixed profile's, at worst"]
    assert close.ours == pytest.approx(2 / 3) and close.limit == 0.9
    assert worst.ours == pytest.approx(1.2) and worst.notes.startswith("choose-c")
    assert loaded.ours == pytest.approx(1.5) and loaded.limit == 1.1
