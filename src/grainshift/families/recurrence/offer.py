"""Offers the Choices of a recurrent layer for a bucket of shapes. Knows no cost."""

from collections.abc import Iterator

import torch

from grainshift.core.choice import Choice
from grainshift.core.forecast import Limits
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.choice import (
    BF16,
    OPERATORS,
    PACKED,
    SOLO,
    STOCK,
    WAVE,
    hybrid,
    rolled,
    unrolled,
)
from grainshift.families.recurrence.shape import Shape

_UNROLLS = (2, 4, 8, 16, 32)
_HYBRIDS = (8, 32)


def offer_kernels(shape: Shape, bucket: str, limits: Limits) -> tuple[Choice, ...]:
    """The profiles that the kernels run, stock first; lower precision where an error is allowed."""
    _, steps = buckets.sizes(bucket)
    choices = [STOCK]
    for precision in ((), (BF16,))[: 1 + (limits.error_ratio is not None)]:
        choices.extend(_profiles(steps, *precision))
        choices.extend(_profiles(steps, SOLO, *precision))
        if shape.layers > 1 and shape.directions == 1:
            choices.extend(unrolled(u, WAVE, *precision) for u in _UNROLLS if 4 * u <= steps)
    return tuple(choices)


def offer_training(shape: Shape, bucket: str, *, kernels: bool) -> tuple[Choice, ...]:
    """The profiles for calls that want gradients: stock, and those of the kernels in fp32."""
    return offer_kernels(shape, bucket, Limits()) if kernels else (STOCK,)


def offer_operators(bucket: str, *, packing: bool) -> tuple[Choice, ...]:
    """The profiles made of PyTorch's operators, for where there is no compiler."""
    _, steps = buckets.sizes(bucket)
    words = (OPERATORS, PACKED)[: 1 + packing]
    return (STOCK, *(choice for word in words for choice in _profiles(steps, word)))


def can_pack() -> bool:
    """Does this PyTorch have the operators for weights packed for oneDNN?"""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch._C._has_mkldnn and all(hasattr(torch.ops.mkldnn, name) for name in names)


def _profiles(steps: int, *words: str) -> Iterator[Choice]:
    yield rolled(*words)
    yield from (unrolled(u, *words) for u in _UNROLLS if u <= steps)
    yield from (hybrid(n, *words) for n in _HYBRIDS if 2 * n <= steps)
