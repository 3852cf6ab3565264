"""What the OpenVINO peers share: a model compiled for the CPU at a given precision."""

from itertools import cycle
from typing import Any

from torch import nn
from torch.utils import _pytree as pytree

from grainshift.bench.export import Flat
from grainshift.bench.peer import Inputs, Run, require


def prepared(model: nn.Module, inputs: Inputs, threads: int, precision: str) -> Run:
    """Convert and compile for latency; inputs and outputs are shared, not copied."""
    request = _compiled(model, inputs, threads, precision).create_infer_request()
    arrays = [tensor.numpy() for tensor in inputs]
    return lambda: tuple(request.infer(arrays, share_inputs=True, share_outputs=True).values())


def streaming(model: nn.Module, inputs: Inputs, threads: int, precision: str) -> Run:
    """Two requests take turns: where one writes its state, there the other reads its own."""
    import openvino

    tensors = pytree.tree_leaves(inputs)
    compiled = _compiled(Flat(model).eval(), tuple(tensors), threads, precision)
    first, second = (compiled.create_infer_request() for _ in range(2))
    for one, other in ((first, second), (second, first)):
        one.set_tensor(compiled.inputs[0], openvino.Tensor(tensors[0].numpy(), shared_memory=True))
        for into, out in zip(compiled.inputs[1:], compiled.outputs[1:], strict=True):
            one.set_tensor(into, other.get_tensor(out))
    for into, tensor in zip(compiled.inputs[1:], tensors[1:], strict=True):
        first.get_tensor(into).data[:] = tensor.numpy()
    turns = cycle((first, second))
    return lambda: tuple(next(turns).infer(share_outputs=True).values())


def _compiled(model: nn.Module, inputs: Inputs, threads: int, precision: str) -> Any:
    require("openvino")
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
    }
    shapes = [list(tensor.shape) for tensor in inputs]  # else every size is left open, and slower
    converted = openvino.convert_model(model, example_input=inputs, input=shapes)
    return openvino.Core().compile_model(converted, "CPU", settings)
