"""How far one output is from another. Knows tensors and how they nest, nothing of Choices."""

import math
from typing import Any

import torch


def relative_error(output: Any, reference: Any) -> float:
    """|output - reference| / |reference| in the 2-norm, the largest over all tensors.

    Infinite when the structure, a shape or a type differs, or where one is finite and the other
    is not.
    """
    if isinstance(reference, torch.Tensor):
        return _tensor_error(output, reference)
    if isinstance(reference, (tuple, list)):
        if not isinstance(output, type(reference)) or len(output) != len(reference):
            return math.inf
        errors = (relative_error(a, b) for a, b in zip(output, reference, strict=True))
        return max(errors, default=0.0)
    if isinstance(reference, dict):
        if not isinstance(output, dict) or output.keys() != reference.keys():
            return math.inf
        return max((relative_error(output[k], reference[k]) for k in reference), default=0.0)
    if isinstance(reference, float) and isinstance(output, float):
        return _tensor_error(torch.tensor(output), torch.tensor(reference))
    return 0.0 if bool(output == reference) else math.inf


def _tensor_error(output: Any, reference: torch.Tensor) -> float:
    if not isinstance(output, torch.Tensor) or output.shape != reference.shape:
        return math.inf
    if output.dtype != reference.dtype or output.device != reference.device:
        return math.inf
    if not reference.is_floating_point() and not reference.is_complex():
        return 0.0 if torch.equal(output, reference) else math.inf
    with torch.no_grad():
        wide = torch.promote_types(reference.dtype, torch.float64)
        a, b = output.detach().to(wide), reference.detach().to(wide)
        usual = torch.isfinite(b)
        if not torch.equal(torch.where(usual, 0.0, a).nan_to_num(9e99), _strange(b, usual)):
            return math.inf
        difference = torch.linalg.vector_norm(torch.where(usual, a - b, 0.0)).item()
        size = torch.linalg.vector_norm(torch.where(usual, b, 0.0)).item()
    if not math.isfinite(difference):
        return math.inf
    return 0.0 if difference == 0.0 else float(difference / size) if size else math.inf


def _strange(reference: torch.Tensor, usual: torch.Tensor) -> torch.Tensor:
    return torch.where(usual, 0.0, reference).nan_to_num(9e99)
