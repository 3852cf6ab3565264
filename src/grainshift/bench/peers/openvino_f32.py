"""OpenVINO on the CPU at precision f32."""

from torch import nn

from grainshift.bench.openvino import prepared, streaming
from grainshift.bench.peer import Inputs, Peer, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model for the CPU at f32."""
    return prepared(model, inputs, threads, "f32")


def stream(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Compile the model for the CPU at f32, and carry its state from call to call."""
    return streaming(model, inputs, threads, "f32")


PEER = Peer("openvino_f32", prepare, stream)
