"""Forecasts what a profile of our own kernels takes. Runs nothing.

A step takes as long as its weights need from their cache, or as its arithmetic needs, whichever is
longer, and then the gates and a wait for the other threads.
"""

from grainshift.core.choice import Choice
from grainshift.core.machine import Machine
from grainshift.families.recurrence.choice import (
    BF16,
    FP32,
    INT8,
    block_counts,
    is_solo,
    parts,
    precision_of,
    waves,
)
from grainshift.families.recurrence.rate import stream_rate
from grainshift.families.recurrence.shape import Shape

COMPILE_S = 0.1  # the share of one Choice in what building the library takes, once a machine
_CALL_S = 8e-6  # outputs, the call itself, and looking whether the weights are still the same
_TEAM_S = 2e-6  # borrowing the threads
_WAIT_S = 0.3e-6  # until all members have ended a step
_GATE_S = 1.5e-9  # the arithmetic of one unit of an LSTM
_NOMINAL_FLOPS = 1e11
_REACHED = 0.8  # of the machine's best rates
_ROWS = 6  # that share one reading of a panel
_PANEL_BYTES = 1 << 17
_WEIGHT_BYTES = {FP32: 4, BF16: 2, INT8: 1}
_PANEL_UNITS = 32  # of a turned matrix, at the most
_KEPT = {"LSTM": 5, "GRU": 4}
CHUNK_BYTES = 4 << 20  # of what the kernels leave on the way back, at once


def kernel_s(shape: Shape, batch: int, steps: int, choice: Choice, machine: Machine) -> float:
    """Seconds of one call."""
    threads = 1 if is_solo(choice) else max(len(machine.cores), 1)
    beside = min(shape.directions if shape.directions > 1 else shape.layers, threads)
    apart = beside > 1 and (shape.directions > 1 or waves(choice))
    share = threads / max(len(machine.cores), 1)
    gates_s = _GATE_S * shape.gates / 4 * shape.hidden * batch / threads
    wait_s = 0.0 if threads == 1 or (apart and beside == threads) else _WAIT_S
    total_s = _CALL_S + (_TEAM_S if threads > 1 else 0.0)
    step_s = _product_s(shape, shape.hidden, batch, choice, machine, share) + gates_s + wait_s
    for number, profile in enumerate(parts(choice, shape.sweeps)):
        inputs = shape.inputs_of(number // shape.directions)
        inputs_s = sum(
            count * _product_s(shape, inputs, size * batch, choice, machine, share)
            for size, count in block_counts(profile, steps)
        )
        total_s += steps * step_s + inputs_s
    return total_s


def packed_bytes(shape: Shape, choice: Choice) -> int:
    """The packed copy of all weights, which the Choices of one precision share."""
    return shape.matrix_bytes * _WEIGHT_BYTES[precision_of(choice)] // 4


def way_back_bytes(shape: Shape, batch: int, steps: int) -> int:
    """What training holds beyond stock: the recurrent matrices turned, gates kept, and a chunk."""
    hidden = -(-shape.hidden // _PANEL_UNITS) * _PANEL_UNITS
    turned_bytes = 4 * shape.sweeps * shape.gates * shape.hidden * hidden
    unit_bytes = 4 * batch * steps * shape.hidden * shape.sweeps
    kept_bytes = _KEPT.get(shape.kind, 1) * unit_bytes  # stock keeps as much; a bound is safer
    chunk_bytes = 4 * max(batch * shape.hidden * 4 * shape.directions, CHUNK_BYTES // 4)
    return turned_bytes + kept_bytes + chunk_bytes


def _product_s(
    shape: Shape, inputs: int, rows: int, choice: Choice, machine: Machine, share: float
) -> float:
    weights = shape.gates * shape.hidden * inputs
    weight_bytes = weights * _WEIGHT_BYTES[precision_of(choice)]
    passes = -(-rows // _ROWS)  # the first from its own cache, the others from a nearer one
    flops_s = 2.0 * weights * rows / (machine.rate("fp32_flops") or _NOMINAL_FLOPS)
    own_bytes = int(weight_bytes / (share * max(len(machine.cores), 1)))  # a thread's panels
    read_s = weight_bytes / stream_rate(own_bytes, machine)
    again_s = (passes - 1) * weight_bytes / stream_rate(_PANEL_BYTES, machine)
    return max(flops_s, read_s, again_s) / (_REACHED * share)
