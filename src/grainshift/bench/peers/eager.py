"""Stock PyTorch, as the user wrote it."""

from torch import nn

from grainshift.bench.mode import Mode, plain
from grainshift.bench.peer import Inputs, Peer, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Call the model in inference mode."""
    return plain(model, inputs, Mode.CALL)


def stream(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Call the model in inference mode, each time with the state of the last call."""
    return plain(model, inputs, Mode.STREAM)


def train(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Run the model forward and backward."""
    return plain(model, inputs, Mode.TRAIN)


PEER = Peer("eager", prepare, stream, train)
