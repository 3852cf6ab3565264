"""Tuned recurrent layers and models beside the peers, each at its best. Knows no promise."""

import math
from collections.abc import Iterable, Iterator

from grainshift.bench.contender import Workload
from grainshift.bench.contest import Field, contest
from grainshift.bench.peer import Peer, PeerUnavailable
from grainshift.bench.peers import compiled, eager, onnxruntime, openvino_bf16, openvino_f32
from grainshift.bench.recurrence.effort import Effort
from grainshift.bench.recurrence.limit import least_time_s
from grainshift.bench.recurrence.ours import ours
from grainshift.bench.row import Row
from grainshift.bench.workloads.recurrence import BF16, SEQUENCES, STREAMS, TRAINING
from grainshift.core.settings import Settings

ERROR_BUDGET = 1e-2
_PEERS = (eager.PEER, compiled.PEER, onnxruntime.PEER, openvino_f32.PEER)
_BF16_PEERS = (eager.PEER, onnxruntime.PEER, openvino_f32.PEER, openvino_bf16.PEER)
_PREPARE_S = 120.0  # of the compilers, one GRU of a hundred steps takes longer
_SETTLE_S = 8.0  # it ends as soon as exploring does
_MEASURE_S = 3.5


def sequences(effort: Effort) -> Iterator[Row]:
    """Whole sequences in fp32, each with the least time that the machine allows."""
    field = _field(effort, _PEERS)
    settled = ours(effort.seconds(_SETTLE_S))
    for workload in effort.chosen(SEQUENCES):
        limit_s = least_time_s(*workload.build(), effort.machine)
        yield _row(workload, settled, field, limit_s)


def streams(effort: Effort) -> Iterator[Row]:
    """One step a call, the state carried by the caller."""
    yield from _rows(effort, STREAMS, _field(effort, _PEERS), ours(effort.seconds(_SETTLE_S)))


def bf16(effort: Effort) -> Iterator[Row]:
    """Lower precision within an error budget, beside OpenVINO's; the others are shown."""
    shown = frozenset(peer.name for peer in _BF16_PEERS) - {openvino_bf16.PEER.name}
    field = _field(effort, _BF16_PEERS, error_ratio=None, aside=shown)
    tuned = ours(effort.seconds(_SETTLE_S), error_budget=ERROR_BUDGET)
    yield from _rows(effort, BF16, field, tuned)


def training(effort: Effort) -> Iterator[Row]:
    """Forward and backward beside eager PyTorch."""
    field = _field(effort, (eager.PEER,))
    yield from _rows(effort, TRAINING, field, ours(effort.seconds(_SETTLE_S)))


def _field(
    effort: Effort,
    peers: tuple[Peer, ...],
    error_ratio: float | None = Settings().rounding_ratio,
    aside: frozenset[str] = frozenset(),
) -> Field:
    """The peers of a run; a quick one leaves out the peer that compiles for minutes."""
    there = tuple(peer for peer in peers if not (effort.quick and peer is compiled.PEER))
    plan = effort.plan(_MEASURE_S)
    return Field(effort.cores, plan, there, error_ratio, aside, _PREPARE_S, effort.tell)


def _rows(
    effort: Effort, workloads: Iterable[Workload], field: Field, tuned: Peer
) -> Iterator[Row]:
    for workload in effort.chosen(workloads):
        yield _row(workload, tuned, field)


def _row(workload: Workload, tuned: Peer, field: Field, limit_s: float | None = None) -> Row:
    try:
        return contest(workload, tuned, field, limit_s)
    except PeerUnavailable as reason:  # ours: a row without a figure, and the run goes on
        return Row(workload.name, "median", "ms", math.nan, {}, notes=f"ours failed: {reason}")
