"""Forecasts what a Choice costs from the machine's rates. Runs nothing.

The constants were read off one machine (2 cores, AVX-512); the wide spread says how little they
promise elsewhere, and Readings take over at once.
"""

from dataclasses import replace

from grainshift.core.choice import Choice
from grainshift.core.forecast import Forecast
from grainshift.core.machine import Machine
from grainshift.core.site import Named
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.choice import (
    STOCK,
    block_counts,
    blocks,
    is_packed,
    is_solo,
    parts,
    precision_of,
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
from grainshift.families.recurrence.reuse import kernel_reuses
from grainshift.families.recurrence.reuse_operators import operator_reuses
from grainshift.families.recurrence.shape import Shape
from grainshift.families.recurrence.vectors import INPUTS, vectors_of
from grainshift.machine.cache_model import hit_ratios

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
    memory = Forecast(
        spread=0.0,
        extra_bytes=extra_bytes,
        working_set_bytes=working_set_bytes,
        touched_bytes=touched_bytes,
        steps=steps,
        rows=batch,
        hits=_hits(shape, batch, steps, choice, machine),
    )
    if choice == STOCK:
        return memory
    stock_s = _stock_s(shape, batch, steps, machine)
    operators = uses_operators(choice)
    profile_s = _profile_s if operators else kernel_s
    ours_s = profile_s(shape, batch, steps, choice, machine)
    known = machine.rate("fp32_flops") > 0 and machine.rate("dram_bytes") > 0
    packs = is_packed(choice) or not operators
    build_s = 2.0 * shape.matrix_bytes * _REORDER_S_PER_BYTE if packs else 0.0
    return replace(
        memory,
        time_ratio=ours_s / stock_s,
        spread=(0.35 if known else 0.7) * (_TRAINING_SPREAD if trains else 1.0),
        build_s=build_s if operators else build_s + COMPILE_S,
    )


def _hits(shape: Shape, batch: int, steps: int, choice: Choice, machine: Machine) -> Named:
    """The cache hits of a call, with a thread on each core unless it runs solo."""
    vectors, threads = vectors_of(machine), 1 if is_solo(choice) else len(machine.cores)
    if uses_operators(choice):
        reuses = operator_reuses(shape, batch, steps, choice, vectors)
    else:
        reuses = kernel_reuses(shape, batch, steps, choice, vectors, threads)
    return hit_ratios(reuses, machine.caches, threads)


def _stock_s(shape: Shape, batch: int, steps: int, machine: Machine) -> float:
    packed = shape.kind == "LSTM"
    reorder_s = shape.matrix_bytes * _REORDER_S_PER_BYTE if packed else 0.0
    operators_s = _STOCK_OPERATORS[shape.kind] * _STOCK_OPERATOR_S
    step_s = operators_s + _product_s(shape.recurrent_bytes, batch, machine, packed)
    return (
        reorder_s
        + _RUN_S
        + sum(_inputs_s(size, batch, (steps,), machine, packed) for size in _input_sizes(shape))
        + (shape.sweeps * steps * step_s)
    )


def _profile_s(shape: Shape, batch: int, steps: int, choice: Choice, machine: Machine) -> float:
    packed = is_packed(choice)
    call_s = _PACKED_CALL_S if packed else 0.0
    product_s = call_s + _product_s(shape.recurrent_bytes, batch, machine, packed)
    total_s = 0.0
    for number, profile in enumerate(parts(choice, shape.sweeps)):
        extra = (1 if packed else 0) + 2.0 / widest_block(profile)
        step_s = (_OPERATORS[shape.kind] + extra) * _OPERATOR_S + product_s
        sizes = tuple(blocks(profile, steps))
        weight_bytes = shape.input_bytes(number // shape.directions)
        inputs_s = _inputs_s(weight_bytes, batch, sizes, machine, packed)
        total_s += _RUN_S + steps * step_s + len(sizes) * call_s + inputs_s
    return total_s


def _input_sizes(shape: Shape) -> tuple[int, ...]:
    """Bytes of the input matrix of each sweep."""
    return tuple(shape.input_bytes(number // shape.directions) for number in range(shape.sweeps))


def _inputs_s(
    weight_bytes: int, batch: int, sizes: tuple[int, ...], machine: Machine, packed: bool
) -> float:
    full = len([size for size in sizes if size == sizes[0]])
    rest = sizes[full:]
    total = full * _product_s(weight_bytes, sizes[0] * batch, machine, packed)
    if rest:
        total += len(rest) * _product_s(weight_bytes, rest[0] * batch, machine, packed)
    return total


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
    weight_bytes = shape.sweeps * shape.recurrent_bytes * steps
    for profile, bytes_ in zip(parts(choice, shape.sweeps), _input_sizes(shape), strict=True):
        reads = 1 if choice == STOCK else sum(count for _, count in block_counts(profile, steps))
        weight_bytes += reads * bytes_
    touched_bytes = weight_bytes // _weight_share(choice) + activation_bytes
    scratch_bytes = max(scratch_bytes - _copy_bytes(shape, choice), 0)
    matrix_bytes = shape.matrix_bytes // _weight_share(choice)
    return matrix_bytes + activation_bytes + scratch_bytes, touched_bytes


def _weight_share(choice: Choice) -> int:
    """How many of its weights take the place of one in fp32."""
    return INPUTS[precision_of(choice)]


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
