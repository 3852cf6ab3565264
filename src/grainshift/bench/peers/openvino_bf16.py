"""OpenVINO on the CPU at precision bf16."""

from torch import nn

from grainshift.bench.openvino import prepared, streaming
from grainshift.bench.peer import Inputs, Peer, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model for the CPU at bf16."""
    return prepared(model, inputs, threads, "bf16")


def stream(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model for the CPU at bf16, and carry its state from call to call."""
    return streaming(model, inputs, threads, "bf16")


PEER = Peer("openvino_bf16", prepare, stream)
