"""The weights of a layer as they are now, and packed copies that notice when those change.

A packed copy is checked at the start of every run: against the parameter's storage, its version
counter, and a sample of its contents, since a write through `param.data` or NumPy moves neither.
The hole that remains: such a write which misses every sampled element is not seen. Ordinary
in-place updates, optimizers and `load_state_dict` move the counter and are always seen.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_SAMPLES = 509
_PLAIN = (Tensor, nn.Parameter)
_Packs = tuple[tuple[Tensor, Tensor], ...]


class Weights(NamedTuple):
    """The weights of one layer in one direction."""

    into: Tensor
    recurrent: Tensor
    bias_in: Tensor | None = None
    bias_recurrent: Tensor | None = None
    projection: Tensor | None = None


def current(layer: nn.RNNBase) -> list[Tensor]:
    """The layer's weights in PyTorch's flat order, after any replacement of a parameter."""
    flat: list[Tensor] = layer._flat_weights  # type: ignore[assignment]
    parameters = layer._parameters
    for name, weight in zip(layer._flat_weights_names, flat, strict=True):
        if parameters.get(name) is not weight:
            layer._update_flat_weights()
            return layer._flat_weights  # type: ignore[return-value]
    return flat


def is_plain(value: Any) -> bool:
    """Is this a tensor whose numbers lie in memory as fp32, with nothing said beside them?"""
    return (
        type(value) in _PLAIN
        and value.dtype is torch.float32
        and value.is_cpu
        and value.layout is torch.strided
        and not value.is_nested
        and not value.is_neg()  # a kernel would read the numbers without their lazy sign
        and not value._is_zerotensor()
    )


def grouped(flat: list[Tensor], bias: bool, projected: bool = False) -> tuple[Weights, ...]:
    """Flat weights by layer and direction."""
    some = 4 if bias else 2
    size = some + projected
    groups = (Weights(*flat[at : at + some]) for at in range(0, len(flat), size))
    if not projected:
        return tuple(groups)
    return tuple(
        group._replace(projection=last)
        for group, last in zip(groups, flat[some::size], strict=True)
    )


class Packed:
    """The matrices of a layer, packed for oneDNN, and packed anew whenever they change.

    Threads may share one: the copies are replaced as a whole, never written into.
    """

    __slots__ = ("__weakref__", "_kept")

    def __init__(self) -> None:
        self._kept: tuple[tuple[_Stamp, ...], _Packs] = ((), ())

    def of(self, groups: tuple[Weights, ...]) -> _Packs:
        """The packed input and recurrent matrix of each layer and direction."""
        stamps, copies = self._kept
        matrices = [matrix for group in groups for matrix in group[:2]]
        if len(stamps) == len(matrices) and all(map(_is_fresh, stamps, matrices)):
            return copies
        with torch.no_grad():
            stamps = tuple(_stamp(matrix) for matrix in matrices)
            copies = tuple((_pack(group[0]), _pack(group[1])) for group in groups)
        self._kept = stamps, copies
        return copies


class _Stamp(NamedTuple):
    """What a matrix was when it was packed; `view` keeps its storage from being used again."""

    address: int
    version: int
    shape: torch.Size
    stride: tuple[int, ...]
    view: Tensor
    sample: Tensor


def _stamp(matrix: Tensor) -> _Stamp:
    version = _version(matrix)
    view = matrix.detach()
    if matrix.is_contiguous():
        view = view.view(-1)[:: _stride(matrix)]
    return _Stamp(matrix.data_ptr(), version, matrix.shape, matrix.stride(), view, view.clone())


def _is_fresh(stamp: _Stamp, matrix: Tensor) -> bool:
    return (
        stamp.address == matrix.data_ptr()
        and stamp.version == _version(matrix)
        and stamp.shape == matrix.shape
        and stamp.stride == matrix.stride()
        and torch.equal(stamp.view, stamp.sample)
    )


def _stride(matrix: Tensor) -> int:
    """Without a common divisor with the rows' length, so that many rows and columns are met."""
    stride = max(1, matrix.numel() // _SAMPLES)
    while math.gcd(stride, matrix.shape[1]) > 1:
        stride += 1
    return stride


def _version(matrix: Tensor) -> int:
    return -1 if matrix.is_inference() else matrix._version


def _pack(matrix: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix.detach().contiguous())
    return packed
