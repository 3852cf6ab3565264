"""torch.compile with frozen weights and kernels chosen by timing."""

import torch
from torch import nn

from grainshift.bench.peer import Inputs, Peer, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model; its first call does the work, and freezing needs it without gradients.

    The settings are the process's own: as `options` of torch.compile, freezing is ignored.
    """
    import torch._inductor.config as inductor

    inductor.freezing = True
    inductor.max_autotune = True
    compiled = torch.compile(model)
    return lambda: compiled(*inputs)


PEER = Peer("compiled_max", prepare)
