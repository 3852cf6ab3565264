"""ONNX Runtime on the CPU, from PyTorch's own export."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from grainshift.bench.peer import Inputs, Peer, Run, require


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Export to ONNX and open a session; inputs are turned into arrays once, without copying."""
    require("onnxruntime", "onnx", "onnxscript")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        _exported(model, inputs), options, providers=["CPUExecutionProvider"]
    )
    feed: dict[str, Any] = {
        slot.name: tensor.numpy() for slot, tensor in zip(session.get_inputs(), inputs, strict=True)
    }
    return lambda: session.run(None, feed)


def _exported(model: nn.Module, inputs: Inputs) -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        torch.onnx.export(model, inputs, file, dynamo=True, verbose=False, external_data=False)
        return file.read_bytes()


PEER = Peer("onnxruntime", prepare)
