"""ONNX Runtime on the CPU, from PyTorch's own export."""

from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from grainshift.bench.export import Flat, onnx_bytes
from grainshift.bench.peer import Inputs, Peer, Run, require


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Export to ONNX and open a session; inputs are turned into arrays once, without copying."""
    session = _session(model, inputs, threads)
    feed: dict[str, Any] = {
        slot.name: tensor.numpy() for slot, tensor in zip(session.get_inputs(), inputs, strict=True)
    }
    return lambda: session.run(None, feed)


def stream(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Bind the state twice, each copy the input of one call and the output of the next."""
    flat, tensors = Flat(model).eval(), pytree.tree_leaves(inputs)
    session = _session(flat, tuple(tensors), threads)
    with torch.inference_mode():
        y = flat(*tensors)[0]
    first, second = ([_held(state) for state in tensors[1:]] for _ in range(2))
    shared = _held(tensors[0]), _held(y)
    turns = cycle(
        (_bound(session, *shared, first, second), _bound(session, *shared, second, first))
    )

    def call() -> Any:
        outputs, binding = next(turns)
        session.run_with_iobinding(binding)
        return outputs

    return call


def _session(model: nn.Module, inputs: Inputs, threads: int) -> Any:
    require("onnxruntime", "onnx", "onnxscript")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        onnx_bytes(model, inputs), options, providers=["CPUExecutionProvider"]
    )


def _held(tensor: Tensor) -> Any:
    """A copy of the tensor in the engine's own memory."""
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy().copy())


def _bound(session: Any, x: Any, y: Any, before: list[Any], after: list[Any]) -> tuple[Any, Any]:
    """What a call writes, as arrays that share its memory, and its binding."""
    binding = session.io_binding()
    for slot, value in zip(session.get_inputs(), (x, *before), strict=True):
        binding.bind_ortvalue_input(slot.name, value)
    for slot, value in zip(session.get_outputs(), (y, *after), strict=True):
        binding.bind_ortvalue_output(slot.name, value)
    return [value.numpy() for value in (y, *after)], binding


PEER = Peer("onnxruntime", prepare, stream)
