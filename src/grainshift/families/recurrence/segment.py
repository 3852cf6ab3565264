"""Cuts a sequence into segments long enough that cutting is not felt. Pure; knows no layer.

A cut costs a stock layer its fixed part once more, and a copy of the outputs into one tensor. The
fixed part is the reading of the input matrices for fewer rows, and for LSTM the reordering of all
weights that oneDNN does in every call (measured 0.4 ns a byte here).
"""

from dataclasses import dataclass

from grainshift.families.recurrence.shape import Shape

_SHARE = 0.01  # of a segment's time that its cut may cost
_RUN_S = 40e-6
_READ_S_PER_BYTE = 0.15e-9
_REORDER_S_PER_BYTE = 0.5e-9
_COPY_S_PER_BYTE = 0.15e-9
_LEAST_STEPS = 32  # so that the widest block fits


@dataclass(frozen=True, slots=True)
class CutCost:
    """What one more segment costs a layer, and each of its steps for a batch of one."""

    segment_s: float
    step_s: float


def cut_cost(shape: Shape) -> CutCost:
    """What cutting costs a layer of this Shape when it runs as stock."""
    out_bytes = 4 * shape.hidden * shape.directions
    weights_s = shape.input_matrix_bytes * _READ_S_PER_BYTE
    if shape.kind == "LSTM":
        weights_s = shape.matrix_bytes * _REORDER_S_PER_BYTE
    return CutCost(weights_s + shape.sweeps * _RUN_S, out_bytes * _COPY_S_PER_BYTE)


def segment_steps(pace_s: float, segment_s: float, batch: int, cost: CutCost) -> int:
    """Steps of a segment at a pace of `pace_s` a step; 0 means: the whole sequence."""
    if pace_s <= 0.0 or cost.step_s * batch > _SHARE * pace_s:
        return 0
    steps = max(segment_s, cost.segment_s / _SHARE) / pace_s
    return max(_LEAST_STEPS, 1 << (max(1, int(steps)) - 1).bit_length())


def cuts(steps: int, segment: int) -> tuple[int, ...]:
    """Lengths of the segments; a rest shorter than half a segment joins the one before it."""
    if segment <= 0 or 2 * steps < 3 * segment:
        return (steps,)
    count, rest = divmod(steps, segment)
    if 2 * rest < segment:
        return (segment,) * (count - 1) + (segment + rest,)
    return (segment,) * count + (rest,)


def settle_pace(old_s: float, new_s: float) -> float:
    """The pace after one more call; quick to believe a faster one, slow to believe a slower."""
    if old_s <= 0.0:
        return new_s
    weight = 0.5 if new_s < old_s else 0.05
    return old_s + weight * (new_s - old_s)
