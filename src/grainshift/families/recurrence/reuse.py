"""How far apart the kernels' loops touch the same bytes again. Runs nothing; knows no cache.

The loops are those of `kernels/forward.cpp`. A sweep makes the input products of a block of steps
panel by panel, and then walks its panels once a step, forwards and backwards in turn: a panel comes
back once those between it and the turning point, and itself, were touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from grainshift.core.choice import Choice
from grainshift.families.recurrence.choice import (
    block_counts,
    is_solo,
    parts,
    precision_of,
    waves,
)
from grainshift.families.recurrence.shape import Shape
from grainshift.families.recurrence.vectors import INPUTS, WIDTH, Vectors
from grainshift.machine.cache_model import LINE_BYTES, Reuse

_STATES = {"LSTM": 2, "GRU": 1, "RNN_TANH": 1, "RNN_RELU": 1}
_CURVES = {"LSTM": 5, "GRU": 3, "RNN_TANH": 2, "RNN_RELU": 0}  # tanh of a vector, a panel and step
_CURVE_REFERENCES = 11  # the coefficients of one tanh
_SUM_REFERENCES = 6  # copies of each sum on their way through a step
_CALL_REFERENCES = 24  # registers and pointers put aside around one product
_FLOAT_BYTES = 4
_LEAST_SAMPLES, _MOST_SAMPLES = 16, 512  # that a call compares of each matrix

_Span = tuple[float, float]


def kernel_reuses(
    shape: Shape, batch: int, steps: int, choice: Choice, vectors: Vectors, threads: int = 1
) -> tuple[Reuse, ...]:
    """Every reference of one call that follows others like it, as one of its threads makes them."""
    threads = 1 if is_solo(choice) else max(threads, 1)
    apart = shape.directions if shape.directions > 1 else shape.layers if waves(choice) else 1
    beside = min(apart, threads)
    word = INPUTS[precision_of(choice)]
    walks = [
        _Walk(shape.sweep(number), profile, batch, steps, vectors, threads / beside, word)
        for number, profile in enumerate(parts(choice, shape.sweeps))
    ]
    call_bytes = sum(walk.own_bytes for walk in walks) / beside
    found: list[Reuse] = []
    for number, walk in enumerate(walks):
        walk = replace(walk, idle_bytes=call_bytes) if steps == 1 else walk
        found.extend(walk.blocks(call_bytes if number < shape.directions else walk.own_bytes))
        found.extend(walk.samples(call_bytes))
    # In the smallest layers what is near is, by rounding of sizes, as far away as all the rest.
    return tuple(replace(one, near_bytes=min(one.near_bytes, one.far_bytes)) for one in found)


@dataclass(frozen=True, slots=True)
class _Walk:
    """One sweep as one of its threads walks it; a word of a panel holds `word` inputs.

    In a call of one step no panel is met again; `idle_bytes` are then those between two calls.
    """

    shape: Shape
    profile: Choice
    rows: int
    steps: int
    vectors: Vectors
    threads: float
    word: int
    idle_bytes: float = 0.0

    @property
    def panels(self) -> float:
        units = self.vectors.units(self.shape.kind)
        return max(-(-self.shape.hidden // units) / self.threads, 1.0)

    @property
    def width(self) -> int:
        return WIDTH[self.shape.kind]

    @property
    def sums_bytes(self) -> float:
        """The sums of one row of a panel, which are as wide as one word of it."""
        return self.width * self.vectors.width_bytes

    @property
    def states_bytes(self) -> float:
        """What a step writes of one row of a panel: outputs, and cells of an LSTM."""
        units = self.shape.hidden / (self.panels * self.threads)
        return _STATES[self.shape.kind] * units * _FLOAT_BYTES

    @property
    def weight_bytes(self) -> float:
        both = self.panel_bytes(self.shape.inputs) + self.panel_bytes(self.shape.hidden)
        return self.panels * both

    @property
    def own_bytes(self) -> float:
        """Distinct bytes of the whole sweep."""
        features = self.shape.inputs + self.shape.hidden
        return self.weight_bytes + self.rows * self.steps * features * _FLOAT_BYTES

    def panel_bytes(self, inputs: int) -> float:
        return -(-inputs // self.word) * self.sums_bytes

    def row_bytes(self, inputs: int) -> float:
        return self.rows * inputs * _FLOAT_BYTES

    def cycle_bytes(self, size: int) -> float:
        """Distinct bytes from one block of steps to the next."""
        of_panels = self.panels * self.rows * (self.sums_bytes + self.states_bytes)
        return self.weight_bytes + size * (self.row_bytes(self.shape.inputs) + of_panels)

    def blocks(self, fresh_bytes: float) -> Iterator[Reuse]:
        """A whole call; its inputs and outputs were last touched `fresh_bytes` ago."""
        for size, count in block_counts(self.profile, self.steps):
            one = self._rolled_step if size == 1 else self._block
            for reuse in one(size, fresh_bytes):
                yield reuse.times(count)

    def samples(self, call_bytes: float) -> Iterator[Reuse]:
        """What is compared with PyTorch's own matrices, at other places in each call."""
        for inputs in (self.shape.inputs, self.shape.hidden):
            size = self.shape.gates * self.shape.hidden * inputs
            wanted = max(16 * self.steps * self.rows, _LEAST_SAMPLES)
            some, all_bytes = min(wanted, _MOST_SAMPLES, size), call_bytes + _FLOAT_BYTES * size
            yield Reuse(some, all_bytes, all_bytes)
            yield Reuse(some, call_bytes, call_bytes)

    def _rolled_step(self, size: int, fresh_bytes: float) -> Iterator[Reuse]:
        inputs, hidden = self.shape.inputs, self.shape.hidden
        each_bytes = self.panel_bytes(inputs) + self.panel_bytes(hidden)
        each_bytes += self.rows * self.states_bytes
        shared_bytes = self.row_bytes(inputs) + self.row_bytes(hidden)
        turn = self._turn(each_bytes, shared_bytes)
        near_bytes = each_bytes + shared_bytes
        yield from self._product(hidden, self.rows, turn, (turn[1], near_bytes), each_bytes)
        yield from self._product(inputs, self.rows, turn, (fresh_bytes, near_bytes), each_bytes)
        yield from self._gates(turn, fresh_bytes)

    def _block(self, size: int, fresh_bytes: float) -> Iterator[Reuse]:
        hidden, cycle_bytes = self.shape.hidden, self.cycle_bytes(size)
        yield from self._projection(size, fresh_bytes)
        each_bytes = self.panel_bytes(hidden) + self.rows * (self.states_bytes + self.sums_bytes)
        turn = self._turn(each_bytes, self.row_bytes(hidden))
        between_bytes = cycle_bytes - self.panels * self.panel_bytes(hidden)
        for steps, more in ((1, between_bytes), (size - 1, 0.0)):  # the first follows a projection
            first = turn[0] + more, turn[1] + more
            for reuse in self._product(hidden, self.rows, first, (turn[1], turn[0]), each_bytes):
                yield reuse.times(steps)
        given_lines = self.panels * self.rows * self.sums_bytes / LINE_BYTES
        yield Reuse(size * given_lines, turn[1], cycle_bytes)
        for reuse in self._gates(turn, fresh_bytes):
            yield reuse.times(size)

    def _projection(self, size: int, fresh_bytes: float) -> Iterator[Reuse]:
        """The input products of one block; its sums lie in scratch that each block writes anew."""
        rows, inputs, cycle_bytes = size * self.rows, self.shape.inputs, self.cycle_bytes(size)
        panel_bytes = self.panel_bytes(inputs) + rows * self.sums_bytes
        row = fresh_bytes, panel_bytes + size * self.row_bytes(inputs)
        yield from self._product(inputs, rows, (cycle_bytes, cycle_bytes), row)
        lines = self.panels * rows * self.sums_bytes / LINE_BYTES
        yield Reuse(lines, cycle_bytes, cycle_bytes)
        yield Reuse(self.panels * rows * self.width - lines)

    def _turn(self, each_bytes: float, shared_bytes: float) -> _Span:
        """How far apart the panels of one step and the next are, and what all of them share."""
        if self.idle_bytes:
            return self.idle_bytes, self.idle_bytes
        return shared_bytes + each_bytes, shared_bytes + self.panels * each_bytes

    def _gates(self, turn: _Span, fresh_bytes: float) -> Iterator[Reuse]:
        """The arithmetic of one step after its products."""
        vectors = self.panels * self.rows
        lines = vectors * self.states_bytes / _STATES[self.shape.kind] / LINE_BYTES
        yield Reuse(lines, fresh_bytes, fresh_bytes)
        if self.shape.kind == "LSTM":
            yield Reuse(lines, *turn)
        near = _SUM_REFERENCES * self.width + _CURVES[self.shape.kind] * _CURVE_REFERENCES
        yield Reuse(vectors * near)

    def _product(
        self, inputs: int, rows: int, panel: _Span, row: _Span, again_bytes: float = 0.0
    ) -> Iterator[Reuse]:
        """All panels times all rows, as many rows at a time as registers hold the sums of.

        `panel` is how far back a panel was met, `row` how far the rows of the first panel and of
        the others. A panel's further runs meet it after `again_bytes`.
        """
        runs = -(-rows // self.vectors.most_rows(self.shape.kind))
        some = rows / runs
        weights = self.panels * -(-inputs // self.word) * self.width
        lines = weights * self.vectors.width_bytes / LINE_BYTES
        again_bytes = again_bytes or self.panel_bytes(inputs) + some * inputs * _FLOAT_BYTES
        reads = rows if some <= 2 and self.word == 1 else runs  # as GCC compiles it
        yield Reuse(lines, *panel)
        yield Reuse(lines * (runs - 1), again_bytes, again_bytes)
        yield Reuse(weights * reads - lines * runs)
        row_lines = inputs * rows * _FLOAT_BYTES / LINE_BYTES
        yield Reuse(row_lines, row[0], row[0])
        yield Reuse(row_lines * (self.panels - 1.0), row[1], row[1])
        yield Reuse(self.panels * (inputs * rows - row_lines))
        stacked = 2.0 * inputs * self.vectors.stacked(self.shape.kind, round(some), self.word)
        yield Reuse(self.panels * runs * (stacked + 2.0 * some * self.width + _CALL_REFERENCES))
