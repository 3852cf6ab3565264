"""Stock PyTorch, as the user wrote it."""

import torch
from torch import nn

from grainshift.bench.peer import Inputs, Peer, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Call the model in inference mode."""
    return torch.inference_mode()(lambda: model(*inputs))


PEER = Peer("eager", prepare)
