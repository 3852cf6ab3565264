"""Stock PyTorch with images and weights laid out channels last."""

import torch
from torch import Tensor, nn

from grainshift.bench.peer import Inputs, Peer, PeerUnavailable, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Lay out what has four dimensions channels last, once, and call the model."""
    if not any(tensor.dim() == 4 for tensor in inputs):
        raise PeerUnavailable("no input has four dimensions")
    laid_out = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = tuple(_channels_last(tensor) for tensor in inputs)
    return lambda: laid_out(*images)


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


PEER = Peer("eager_channels_last", prepare)
