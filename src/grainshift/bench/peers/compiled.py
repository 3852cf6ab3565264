"""torch.compile as it comes."""

import torch
from torch import nn

from grainshift.bench.peer import Inputs, Peer, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model; its first call does the work."""
    compiled = torch.compile(model)
    return torch.inference_mode()(lambda: compiled(*inputs))


PEER = Peer("compiled", prepare)
