"""The two products of a recurrent step, on weights as they are or packed. Knows no gate."""

from typing import Protocol

import torch
from torch import Tensor

from grainshift.families.recurrence.weights import Weights


class Product(Protocol):
    """The products of one layer in one direction, for one run."""

    def project(self, x_NI: Tensor) -> Tensor:
        """Input product of N rows; the next call of the same N may write over the answer."""

    def add_recurrent(self, base_BG: Tensor, h_BH: Tensor, out_BG: Tensor) -> None:
        """Write the recurrent product plus `base`, without a bias, into `out`."""

    def recurrent(self, h_BH: Tensor, out_BG: Tensor) -> None:
        """Write the recurrent product and its bias into `out`."""


class PlainProduct:
    """Products on the parameters themselves."""

    __slots__ = ("_bias", "_bias_recurrent", "_gates", "_into_IG", "_recurrent_HG")

    def __init__(self, weights: Weights, bias: Tensor | None) -> None:
        self._into_IG = weights.into.t()
        self._recurrent_HG = weights.recurrent.t()
        self._bias = bias
        self._bias_recurrent = weights.bias_recurrent
        self._gates: Tensor | None = None

    def project(self, x_NI: Tensor) -> Tensor:
        """Input product of N rows, into one scratch for all blocks of N."""
        gates = self._gates
        if gates is None or gates.shape[0] != x_NI.shape[0]:
            gates = self._gates = x_NI.new_empty((x_NI.shape[0], self._into_IG.shape[1]))
        if self._bias is None:
            return torch.mm(x_NI, self._into_IG, out=gates)
        return torch.addmm(self._bias, x_NI, self._into_IG, out=gates)

    def add_recurrent(self, base_BG: Tensor, h_BH: Tensor, out_BG: Tensor) -> None:
        """Write the recurrent product plus `base` into `out`."""
        torch.addmm(base_BG, h_BH, self._recurrent_HG, out=out_BG)

    def recurrent(self, h_BH: Tensor, out_BG: Tensor) -> None:
        """Write the recurrent product and its bias into `out`."""
        if self._bias_recurrent is None:
            torch.mm(h_BH, self._recurrent_HG, out=out_BG)
        else:
            torch.addmm(self._bias_recurrent, h_BH, self._recurrent_HG, out=out_BG)


class PackedProduct:
    """Products on copies packed for oneDNN; its operator allocates each answer."""

    __slots__ = ("_bias", "_bias_recurrent", "_into", "_linear", "_recurrent")

    def __init__(self, weights: Weights, bias: Tensor | None, pair: tuple[Tensor, Tensor]) -> None:
        self._into, self._recurrent = pair
        self._bias = _dense(bias)
        self._bias_recurrent = _dense(weights.bias_recurrent)
        self._linear = torch.ops.mkldnn._linear_pointwise.default

    def project(self, x_NI: Tensor) -> Tensor:
        """Input product of N rows."""
        gates: Tensor = self._linear(x_NI, self._into, self._bias, "none", [], "")
        return gates

    def add_recurrent(self, base_BG: Tensor, h_BH: Tensor, out_BG: Tensor) -> None:
        """Write the recurrent product plus `base` into `out`."""
        product = self._linear(h_BH, self._recurrent, None, "none", [], "")
        torch.add(base_BG, product, out=out_BG)

    def recurrent(self, h_BH: Tensor, out_BG: Tensor) -> None:
        """Write the recurrent product and its bias into `out`."""
        out_BG.copy_(self._linear(h_BH, self._recurrent, self._bias_recurrent, "none", [], ""))


def _dense(bias: Tensor | None) -> Tensor | None:
    """A bias as oneDNN's operator reads it: whatever its strides, one number after the other."""
    return None if bias is None else bias.contiguous()
