"""Offers the Choices of a recurrent layer for a bucket of shapes. Knows no cost."""

import torch

from grainshift.core.choice import Choice
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.choice import STOCK, hybrid, rolled, unrolled

_UNROLLS = (2, 4, 8, 16, 32)
_HYBRIDS = (8, 32)


def offer(bucket: str, *, packing: bool) -> tuple[Choice, ...]:
    """The Choices for shapes of a bucket, stock first; packed ones where they can be built."""
    _, steps = buckets.sizes(bucket)
    choices = [STOCK]
    for packed in (False, True)[: 1 + packing]:
        choices.append(rolled(packed=packed))
        choices.extend(unrolled(u, packed=packed) for u in _UNROLLS if u <= steps)
        choices.extend(hybrid(n, packed=packed) for n in _HYBRIDS if 2 * n <= steps)
    return tuple(choices)


def can_pack() -> bool:
    """Does this PyTorch have the operators for weights packed for oneDNN?"""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch._C._has_mkldnn and all(hasattr(torch.ops.mkldnn, name) for name in names)
