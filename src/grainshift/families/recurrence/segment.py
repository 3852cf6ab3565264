"""Cuts a sequence into segments long enough that cutting is not felt. Pure; knows no layer.

A cut costs a stock layer its fixed part once more, and a copy of the outputs into one tensor. The
fixed part is the reading of the input matrices for fewer rows, and for LSTM the reordering of all
weights that oneDNN does in every call (measured 0.4 ns a byte here).
"""

from dataclasses import dataclass

from grainshift.families.recurrence.shape import Shape

_SHARE = 0.01  # of a segment's time that its cut may cost
_RUN_S = 40e-6
_PROFILE_RUN_S = 10e-6  # blocks read the input matrices as often as before
_READ_S_PER_BYTE = 0.15e-9
_REORDER_S_PER_BYTE = 0.5e-9
_COPY_S_PER_BYTE = 0.15e-9
LEAST_STEPS = 32  # so that the widest block fits
_WARM_CALLS = 4
_WHOLE_EVERY = 16
_FELT = 1.1  # of the time of a whole call, well above what noise of the clock does
_FIRST_WAIT = 64  # calls without a cut once it was felt
_LONGEST_WAIT = 4096


@dataclass(frozen=True, slots=True)
class CutCost:
    """What one more segment costs a layer, and each of its steps for a batch of one."""

    segment_s: float
    step_s: float


def cut_costs(shape: Shape) -> tuple[CutCost, CutCost]:
    """What cutting costs a layer of this Shape when it runs as stock, and on our profiles."""
    step_s = 4 * shape.outputs * shape.directions * _COPY_S_PER_BYTE
    weights_s = shape.input_matrix_bytes * _READ_S_PER_BYTE
    if shape.kind == "LSTM":
        weights_s = shape.matrix_bytes * _REORDER_S_PER_BYTE
    stock = CutCost(weights_s + shape.sweeps * _RUN_S, step_s)
    return stock, CutCost(_PROFILE_RUN_S, step_s)


def segment_steps(pace_s: float, segment_s: float, batch: int, cost: CutCost) -> int:
    """Steps of a segment at a pace of `pace_s` a step; 0 means: the whole sequence."""
    if pace_s <= 0.0 or cost.step_s * batch > _SHARE * pace_s:
        return 0
    steps = max(segment_s, cost.segment_s / _SHARE) / pace_s
    return max(LEAST_STEPS, 1 << (max(1, int(steps)) - 1).bit_length())


def cuts(steps: int, segment: int) -> tuple[int, ...]:
    """Lengths of the segments; a rest shorter than half a segment joins the one before it."""
    if segment <= 0 or 2 * steps < 3 * segment:
        return (steps,)
    count, rest = divmod(steps, segment)
    if 2 * rest < segment:
        return (segment,) * (count - 1) + (segment + rest,)
    return (segment,) * count + (rest,)


class Rhythm:
    """Whether the calls of one bucket are cut, judged by what whole and cut calls really took.

    The cost of a cut above is that of a calm machine. On a busy one, each more operator on several
    threads waits for a core, and a cut sequence was seen to take three times as long; so some
    calls stay whole, and cutting ends for a while, longer each time, when it is felt.
    """

    __slots__ = ("_cut_s", "_turn", "_wait", "_whole_calls", "_whole_s")

    def __init__(self) -> None:
        self._whole_s = 0.0
        self._whole_calls = 0
        self._cut_s = 0.0
        self._wait = _FIRST_WAIT
        self._turn = 0

    def cut(self, steps: int, batch: int, segment_s: float, cost: CutCost) -> tuple[int, ...]:
        """The segments of the next call."""
        lengths = cuts(steps, segment_steps(self._whole_s, segment_s, batch, cost))
        if len(lengths) == 1 or self._whole_calls < _WARM_CALLS:
            return (steps,)
        self._turn += 1
        if self._cut_s > _FELT * self._whole_s:
            if self._turn < self._wait:
                return (steps,)
            self._cut_s, self._turn = 0.0, 1
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
        elif self._turn % _WHOLE_EVERY == 0:
            return (steps,)
        return lengths

    def learn(self, step_s: float, segments: int) -> None:
        """Take in what a step of a call took that ran in so many segments."""
        if segments == 1:
            self._whole_calls += 1
            self._whole_s = _settle(self._whole_s, step_s)
            return
        felt = self._cut_s > _FELT * self._whole_s
        self._cut_s = _settle(self._cut_s, step_s)
        if not felt and self._cut_s > _FELT * self._whole_s:
            self._turn = 0
        elif self._turn > _LONGEST_WAIT:
            self._wait, self._turn = _FIRST_WAIT, 1


def _settle(old_s: float, new_s: float) -> float:
    """The pace after one more call; quicker to believe a faster one than a slower one."""
    if old_s <= 0.0:
        return new_s
    return old_s + (0.5 if new_s < old_s else 0.2) * (new_s - old_s)
