"""Grainshift as a Peer: tuned by its one line, settled, and called as its user calls it.

Knows nothing of the others.
"""

import time
from functools import partial
from typing import Any

from torch import nn

import grainshift
from grainshift.bench.mode import Mode, plain, surroundings
from grainshift.bench.peer import Inputs, Peer, Run

_LOOK_S = 0.02


def ours(settle_s: float, **budgets: Any) -> Peer:
    """Grainshift with the user's defaults, but for the budgets, after at most `settle_s`."""
    call, stream, train = (partial(_prepare, mode, settle_s, budgets) for mode in Mode)
    return Peer("grainshift", call, stream, train, remark)


def settle(model: nn.Module, call: Run, settle_s: float) -> None:
    """Make calls until exploring is over or the time is."""
    until_s = time.monotonic() + settle_s
    while time.monotonic() < until_s:
        look_s = time.monotonic() + _LOOK_S
        while time.monotonic() < look_s:
            call()
        if grainshift.report(model).settled:
            return


def remark(model: nn.Module) -> str:
    """What a tuned model runs, and whether it is still exploring."""
    report = grainshift.report(model)
    live = " and ".join(dict.fromkeys(line.live for line in report.lines)) or "nothing tuned"
    return live if report.settled or not report.lines else f"{live}, still exploring"


def _prepare(
    mode: Mode,
    settle_s: float,
    budgets: dict[str, Any],
    model: nn.Module,
    inputs: Inputs,
    threads: int,
) -> Run:
    """Tune the model, let it settle on these inputs, and begin the calls that are measured."""
    tuned = grainshift.tune(model, **budgets)
    with surroundings(mode):
        settle(tuned, plain(tuned, inputs, mode), settle_s)
    return plain(tuned, inputs, mode)
