"""What the OpenVINO peers share: a model compiled for the CPU at a given precision."""

from torch import nn

from grainshift.bench.peer import Inputs, Run, require


def prepared(model: nn.Module, inputs: Inputs, threads: int, precision: str) -> Run:
    """Convert and compile for latency; inputs and outputs are shared, not copied."""
    require("openvino")
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
    }
    converted = openvino.convert_model(model, example_input=inputs)
    request = openvino.Core().compile_model(converted, "CPU", settings).create_infer_request()
    arrays = [tensor.numpy() for tensor in inputs]
    return lambda: tuple(request.infer(arrays, share_inputs=True, share_outputs=True).values())
