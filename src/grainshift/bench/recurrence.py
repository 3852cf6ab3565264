"""Measures tuned recurrent layers beside every peer. Knows nothing of how they are tuned."""

from torch import nn

import grainshift
from grainshift.bench.contest import Field, contest
from grainshift.bench.measure import Plan
from grainshift.bench.peer import Inputs, Peer, Run
from grainshift.bench.peers import PEERS, eager
from grainshift.bench.row import Row
from grainshift.bench.run import usable_cores
from grainshift.bench.workloads.recurrence import WORKLOADS
from grainshift.machine import find_machine

SETTLE_S = 60.0
SLOW_TO_BUILD = ("compiled", "compiled_max", "aot")


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Tune the model, let it settle on these inputs, and go on calling it as its user would."""
    tuned = grainshift.tune(model)
    grainshift.settle(tuned, *inputs, timeout=SETTLE_S)
    return eager.prepare(tuned, inputs, threads)


OURS = Peer("grainshift", prepare)


def run(quick: bool = False, only: str | None = None) -> list[Row]:
    """A Row for each recurrent layer whose name contains `only`.

    A quick run leaves out the peers that compile for minutes, and measures for a shorter time.
    """
    peers = tuple(peer for peer in PEERS if not (quick and peer.name in SLOW_TO_BUILD))
    field = Field(usable_cores(find_machine()), Plan(budget_s=5.0 if quick else 20.0), peers)
    chosen = (workload for workload in WORKLOADS if only is None or only in workload.name)
    return [contest(workload, OURS, field) for workload in chosen]
