"""How far apart PyTorch's own operators touch the same bytes again. Runs nothing; knows no cache.

A product reads its matrix from front to back, a tile of it for a few rows at a time; the operators
after it pass over the gates of one step. Their sources are not ours: this is a model of any such
library, and was not held against a count.
"""

from collections.abc import Iterator

from grainshift.core.choice import Choice
from grainshift.families.recurrence.choice import STOCK, block_counts, parts
from grainshift.families.recurrence.shape import Shape
from grainshift.families.recurrence.vectors import Vectors
from grainshift.machine.cache_model import LINE_BYTES, Reuse

_PASSES = 6  # over the gates of a step
_TILE = 4  # vectors of outputs that a product makes at once
_FLOAT_BYTES = 4


def operator_reuses(
    shape: Shape, batch: int, steps: int, choice: Choice, vectors: Vectors
) -> tuple[Reuse, ...]:
    """Every reference of one call that follows others like it."""
    found: list[Reuse] = []
    for number, profile in enumerate(parts(choice, shape.sweeps)):
        sizes = ((steps, 1),) if choice == STOCK else block_counts(profile, steps)
        for size, count in sizes:
            block = _block(shape.sweep(number), batch, size, vectors)
            found.extend(reuse.times(count) for reuse in block)
    return tuple(found)


def _block(shape: Shape, rows: int, size: int, vectors: Vectors) -> Iterator[Reuse]:
    row_bytes = _FLOAT_BYTES * rows * shape.gates * shape.hidden
    near_bytes = shape.recurrent_bytes + 2.0 * row_bytes
    between_bytes = shape.matrix_bytes + size * (row_bytes + _FLOAT_BYTES * rows * shape.inputs)
    yield from _product(shape, shape.inputs, size * rows, between_bytes, vectors)
    for reuse in _product(shape, shape.outputs, rows, near_bytes, vectors):
        yield reuse.times(size)
    references = size * row_bytes / vectors.width_bytes
    yield Reuse(references, near_bytes, between_bytes)
    yield Reuse((_PASSES - 1) * references, row_bytes, 2.0 * row_bytes)


def _product(
    shape: Shape, inputs: int, rows: int, back_bytes: float, vectors: Vectors
) -> Iterator[Reuse]:
    """One product; its matrix was read last `back_bytes` ago."""
    weight_bytes = _FLOAT_BYTES * shape.gates * shape.hidden * inputs
    most = max(1, (vectors.registers - _TILE - 1) // _TILE)
    runs = -(-rows // most)
    lines, reads = weight_bytes / LINE_BYTES, weight_bytes / vectors.width_bytes
    again_bytes = _FLOAT_BYTES * inputs * (_TILE * vectors.lanes + most)
    yield Reuse(lines, back_bytes, back_bytes)
    yield Reuse(lines * (runs - 1), again_bytes, again_bytes)
    yield Reuse(reads * runs - lines * runs)
    yield Reuse(reads * rows / _TILE, 0.0, again_bytes)
