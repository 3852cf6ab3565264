"""How far one output is from another. Knows tensors and how they nest, nothing of Choices."""

import math
from collections.abc import Iterator
from typing import Any

import torch

_PART = 1 << 16  # numbers that are compared at once


def relative_error(output: Any, reference: Any) -> float:
    """|output - reference| / |reference| in the 2-norm, the largest over all tensors.

    Infinite when the structure, a shape or a type differs, where one is finite and the other is
    not, and for whatever cannot be compared.
    """
    try:
        return _error(output, reference)
    except Exception:  # noqa: BLE001 - what cannot be compared counts as wrong, and is reverted
        return math.inf


def _error(output: Any, reference: Any) -> float:
    if isinstance(reference, torch.Tensor):
        return _tensor_error(output, reference)
    if type(output) is not type(reference):
        return math.inf
    if isinstance(reference, (tuple, list)):
        if len(output) != len(reference):
            return math.inf
        return max((_error(a, b) for a, b in zip(output, reference, strict=True)), default=0.0)
    if isinstance(reference, dict):
        if output.keys() != reference.keys():
            return math.inf
        return max((_error(output[key], reference[key]) for key in reference), default=0.0)
    if isinstance(reference, (float, complex)):
        return _tensor_error(_wide(output), _wide(reference))
    return 0.0 if output is reference or bool(output == reference) else math.inf


def _wide(number: complex) -> torch.Tensor:
    is_complex = isinstance(number, complex)
    return torch.tensor(number, dtype=torch.complex128 if is_complex else torch.float64)


def _tensor_error(output: Any, reference: torch.Tensor) -> float:
    if not isinstance(output, torch.Tensor) or output.shape != reference.shape:
        return math.inf
    facts = [(t.dtype, t.device, t.layout) for t in (output, reference)]
    if facts[0] != facts[1]:
        return math.inf
    with torch.no_grad():
        if reference.layout is not torch.strided:
            output, reference = output.to_dense(), reference.to_dense()
        if not reference.is_floating_point() and not reference.is_complex():
            return 0.0 if torch.equal(output, reference) else math.inf
        return _distance(output, reference)


def _distance(output: torch.Tensor, reference: torch.Tensor) -> float:
    largest = 0.0
    for a, b in _pairs(output, reference):
        usual = torch.isfinite(b)
        alike = (a == b) | (a.isnan() & b.isnan())
        if not torch.where(usual, torch.isfinite(a), alike).all():
            return math.inf
        largest = max(largest, *(_usual(part).abs().max().item() for part in (a, b)))
    scale = math.ldexp(0.5, math.frexp(largest)[1])  # exact, and no square is out of range
    apart, size = 0.0, 0.0
    for a, b in _pairs(output, reference):
        a, b = _usual(a) / scale, _usual(b) / scale
        size = math.hypot(size, torch.linalg.vector_norm(b).item())
        apart = math.hypot(apart, torch.linalg.vector_norm(a - b).item())
    if not apart:
        return 0.0
    return apart / size if size else math.inf


def _pairs(
    output: torch.Tensor, reference: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both in doubles, a part at a time: what is compared may be most of what memory holds."""
    parts = (torch.split(tensor.detach().reshape(-1), _PART) for tensor in (output, reference))
    for a, b in zip(*parts, strict=True):
        if a.numel():
            yield _doubles(a), _doubles(b)


def _doubles(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to(torch.float64)


def _usual(tensor: torch.Tensor) -> torch.Tensor:
    """Its finite numbers, and 0 for the others."""
    return tensor.nan_to_num(0.0, 0.0, 0.0)
