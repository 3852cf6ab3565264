"""torch.compile as it comes, with its door for recurrent layers open."""

from typing import Any

import torch
from torch import nn

from grainshift.bench.mode import Mode, plain
from grainshift.bench.peer import Inputs, Peer, PeerUnavailable, Run
from grainshift.bench.sweeps import sweeps_of

MOST_UNROLLED = 128


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model; its first call does the work."""
    return plain(_compiled(model, inputs), inputs, Mode.CALL)


def stream(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model, and carry its state from call to call."""
    return plain(_compiled(model, inputs), inputs, Mode.STREAM)


def _compiled(model: nn.Module, inputs: Inputs) -> Any:
    unrolled = sum(sweep.steps for sweep in sweeps_of(model, inputs) if sweep.kind != "LSTM")
    if unrolled > MOST_UNROLLED:
        raise PeerUnavailable(
            f"it unrolls GRU and RNN layers, here {unrolled} steps; beyond {MOST_UNROLLED} that"
            " takes minutes"
        )
    torch._dynamo.config.allow_rnn = True
    return torch.compile(model)


PEER = Peer("compiled", prepare, stream)
