"""Forecasts what a Choice costs from the machine's rates. Runs nothing.

The constants were read off one machine (2 cores, AVX-512); the wide spread says how little they
promise elsewhere, and Readings take over at once.
"""

from grainshift.core.choice import Choice
from grainshift.core.forecast import Forecast
from grainshift.core.machine import Machine
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.choice import (
    STOCK,
    blocks,
    is_packed,
    uses_operators,
    widest_block,
)
from grainshift.families.recurrence.forecast_kernels import (
    COMPILE_S,
    kernel_s,
    packed_bytes,
    way_back_bytes,
)
from grainshift.families.recurrence.rate import stream_rate
from grainshift.families.recurrence.shape import Shape

_STOCK_OPERATOR_S = 0.9e-6  # one operator inside PyTorch's own loop
_OPERATOR_S = 1.3e-6  # one operator called from Python, its output given
_PACKED_CALL_S = 11e-6  # what a oneDNN product takes before it multiplies
_RUN_S = 25e-6  # reading weights, scratch and views of one run
_REORDER_S_PER_BYTE = 0.4e-9  # oneDNN's LSTM reorders all weights in every call
_NOMINAL_FLOPS = 1e11
_STOCK_OPERATORS = {"LSTM": 1, "GRU": 12, "RNN_TANH": 4, "RNN_RELU": 4}
_OPERATORS = {"LSTM": 8, "GRU": 6, "RNN_TANH": 2, "RNN_RELU": 2}
_FP32_BYTES = 4
_TRAINING_SPREAD = 1.5  # the way back is forecast to gain what the way there does


def forecast(shape: Shape, bucket: str, choice: Choice, machine: Machine) -> Forecast:
    """Time over stock's, memory beyond stock's, and the seconds that packing takes."""
    batch, steps = buckets.sizes(bucket)
    trains = buckets.trains(bucket)
    extra_bytes = _extra_bytes(shape, batch, steps, choice) if choice != STOCK else 0
    if trains and choice != STOCK:
        extra_bytes += way_back_bytes(shape, batch, steps)
    working_set_bytes, touched_bytes = _traffic(shape, batch, steps, choice, extra_bytes)
    if choice == STOCK:
        return Forecast(1.0, 0.0, 0, 0.0, working_set_bytes, touched_bytes)
    stock_s = _stock_s(shape, batch, steps, machine)
    operators = uses_operators(choice)
    profile_s = _profile_s if operators else kernel_s
    ours_s = profile_s(shape, batch, steps, choice, machine)
    known = machine.rate("fp32_flops") > 0 and machine.rate("dram_bytes") > 0
    packs = is_packed(choice) or not operators
    build_s = 2.0 * shape.matrix_bytes * _REORDER_S_PER_BYTE if packs else 0.0
    return Forecast(
        time_ratio=ours_s / stock_s,
        spread=(0.35 if known else 0.7) * (_TRAINING_SPREAD if trains else 1.0),
        extra_bytes=extra_bytes,
        build_s=build_s if operators else build_s + COMPILE_S,
        working_set_bytes=working_set_bytes,
        touched_bytes=touched_bytes,
    )


def _stock_s(shape: Shape, batch: int, steps: int, machine: Machine) -> float:
    packed = shape.kind == "LSTM"
    reorder_s = shape.matrix_bytes * _REORDER_S_PER_BYTE if packed else 0.0
    operators_s = _STOCK_OPERATORS[shape.kind] * _STOCK_OPERATOR_S
    step_s = operators_s + _product_s(shape.recurrent_bytes, batch, machine, packed)
    return (
        reorder_s
        + _RUN_S
        + _inputs_s(shape, batch, (steps,), machine, packed)
        + (shape.sweeps * steps * step_s)
    )


def _profile_s(shape: Shape, batch: int, steps: int, choice: Choice, machine: Machine) -> float:
    packed = is_packed(choice)
    extra = (1 if packed else 0) + 2.0 / widest_block(choice)
    operators_s = (_OPERATORS[shape.kind] + extra) * _OPERATOR_S
    call_s = _PACKED_CALL_S if packed else 0.0
    step_s = operators_s + call_s + _product_s(shape.recurrent_bytes, batch, machine, packed)
    sizes = tuple(blocks(choice, steps))
    inputs_s = _inputs_s(shape, batch, sizes, machine, packed)
    calls_s = shape.sweeps * len(sizes) * call_s
    return shape.sweeps * (_RUN_S + steps * step_s) + calls_s + inputs_s


def _inputs_s(
    shape: Shape, batch: int, sizes: tuple[int, ...], machine: Machine, packed: bool
) -> float:
    full = len([size for size in sizes if size == sizes[0]])
    rest = sizes[full:]
    total = 0.0
    for layer in range(shape.layers):
        weight_bytes = shape.input_bytes(layer)
        total += full * _product_s(weight_bytes, sizes[0] * batch, machine, packed)
        if rest:
            total += len(rest) * _product_s(weight_bytes, rest[0] * batch, machine, packed)
    return shape.directions * total


def _product_s(weight_bytes: int, rows: int, machine: Machine, packed: bool) -> float:
    flops_s = machine.rate("fp32_flops") or _NOMINAL_FLOPS
    waste = 1.2 if packed else 2.0
    rereads = 1.0 if packed or rows == 1 or rows >= 16 else 2.5  # MKL is poor at 2 to 15 rows
    arithmetic_s = waste * 2.0 * rows * (weight_bytes / _FP32_BYTES) / flops_s
    return max(arithmetic_s, rereads * weight_bytes / stream_rate(weight_bytes, machine))


def _traffic(
    shape: Shape, batch: int, steps: int, choice: Choice, scratch_bytes: int
) -> tuple[int, int]:
    """The distinct bytes of a call, and all that it touches: weights once a step or a block."""
    features = shape.inputs + shape.hidden * shape.directions * shape.layers
    activation_bytes = _FP32_BYTES * batch * steps * features
    input_reads = 1 if choice == STOCK else -(-steps // widest_block(choice))
    recurrent_bytes = shape.sweeps * shape.recurrent_bytes * steps
    touched_bytes = recurrent_bytes + input_reads * shape.input_matrix_bytes + activation_bytes
    scratch_bytes = max(scratch_bytes - _copy_bytes(shape, choice), 0)
    return shape.matrix_bytes + activation_bytes + scratch_bytes, touched_bytes


def _copy_bytes(shape: Shape, choice: Choice) -> int:
    """What its packed copy of the weights takes."""
    if not uses_operators(choice):
        return packed_bytes(shape, choice)
    return shape.matrix_bytes if is_packed(choice) else 0


def _extra_bytes(shape: Shape, batch: int, steps: int, choice: Choice) -> int:
    block = min(widest_block(choice), steps)
    gates = shape.gates * shape.hidden
    widest_input = max(shape.inputs_of(layer) for layer in range(shape.layers))
    scratch = batch * (block * (gates + widest_input) + gates + 2 * shape.hidden)
    return _FP32_BYTES * scratch + _copy_bytes(shape, choice)
