"""Offers the Choices of a recurrent layer for a bucket of shapes. Knows no cost."""

from collections.abc import Iterator

import torch

from grainshift.core.choice import Choice
from grainshift.core.forecast import Limits
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.choice import (
    LOWER,
    OPERATORS,
    PACKED,
    SOLO,
    STOCK,
    WAVE,
    hybrid,
    planned,
    rolled,
    unrolled,
)
from grainshift.families.recurrence.shape import Shape

_UNROLLS = (2, 4, 8, 16, 32)
_FEW_UNROLLS = (4, 16)  # each further Choice is one more trial, and neighbours differ little
_HYBRIDS = (8, 32)
_MOST_PLANNED = 3  # layers of a stack


def offer_kernels(shape: Shape, bucket: str, limits: Limits) -> tuple[Choice, ...]:
    """The profiles that the kernels run, stock first; lower precision where an error is allowed."""
    _, steps = buckets.sizes(bucket)
    choices = [STOCK, *_profiles(steps), *_few(steps, SOLO), *_plans(shape, steps)]
    is_stack = shape.layers > 1 and shape.directions == 1
    if is_stack:
        choices.extend(unrolled(u, WAVE) for u in _FEW_UNROLLS if 4 * u <= steps)
    for word in LOWER if limits.error_ratio is not None else ():
        choices += [*_few(steps, word), *_few(steps, SOLO, word)]
        if is_stack:
            choices.extend(unrolled(u, WAVE, word) for u in _FEW_UNROLLS if 4 * u <= steps)
    return tuple(choices)


def offer_training(shape: Shape, bucket: str, *, kernels: bool) -> tuple[Choice, ...]:
    """The profiles for calls that want gradients: stock, and those of the kernels in fp32."""
    return offer_kernels(shape, bucket, Limits()) if kernels else (STOCK,)


def offer_operators(bucket: str, *, packing: bool) -> tuple[Choice, ...]:
    """The profiles made of PyTorch's operators, for where there is no compiler."""
    _, steps = buckets.sizes(bucket)
    if buckets.is_ragged(bucket):
        return (STOCK,)  # the profiles of operators walk whole batches
    words = (OPERATORS, PACKED)[: 1 + packing]
    return (STOCK, *(choice for word in words for choice in _profiles(steps, word)))


def can_pack() -> bool:
    """Does this PyTorch have the operators for weights packed for oneDNN?"""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch._C._has_mkldnn and all(hasattr(torch.ops.mkldnn, name) for name in names)


def _plans(shape: Shape, steps: int, *words: str) -> Iterator[Choice]:
    """Plans for short stacks whose first layer differs from the rest.

    Blocks pay where a layer's input matrix is large: the wider layers get them, or wider ones.
    """
    rest = shape.outputs * shape.directions
    if not 2 <= shape.layers <= _MOST_PLANNED or shape.inputs == rest:
        return
    for wide, narrow in ((unrolled(u, *words), slim) for u, slim in _mixes(words) if u <= steps):
        first, others = (wide, narrow) if shape.inputs > rest else (narrow, wide)
        beside = shape.directions
        yield planned(*[first] * beside, *[others] * (shape.sweeps - beside))


def _mixes(words: tuple[str, ...]) -> tuple[tuple[int, Choice], ...]:
    """The block of the layers with wide inputs, and what the others do."""
    return (8, rolled(*words)), (32, unrolled(4, *words))


def _few(steps: int, *words: str) -> Iterator[Choice]:
    yield rolled(*words)
    yield from (unrolled(u, *words) for u in _FEW_UNROLLS if u <= steps)


def _profiles(steps: int, *words: str) -> Iterator[Choice]:
    yield rolled(*words)
    yield from (unrolled(u, *words) for u in _UNROLLS if u <= steps)
    yield from (hybrid(n, *words) for n in _HYBRIDS if 2 * n <= steps)
