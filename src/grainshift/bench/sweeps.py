"""The walks over sequences that one call of a model makes, and the dense arithmetic beside them.

Knows no peer, no clock and no machine.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Sweep", "dense_flops", "sweeps_of"]

_FP32_BYTES = 4
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_DENSE = (nn.Linear, nn.Conv1d, nn.Conv2d)
_Seen = Callable[[nn.Module, tuple[Any, ...], Any], None]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One layer in one direction, walked once over a sequence."""

    kind: str
    inputs: int
    hidden: int
    steps: int
    batch: int

    @property
    def recurrent_bytes(self) -> int:
        """The recurrent matrix, in fp32."""
        return _FP32_BYTES * _GATES[self.kind] * self.hidden * self.hidden

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products of all steps."""
        rows = _GATES[self.kind] * self.hidden
        return 2 * rows * (self.inputs + self.hidden) * self.steps * self.batch


def sweeps_of(model: nn.Module, inputs: tuple[Any, ...]) -> list[Sweep]:
    """Every Sweep of one call, seen by making it."""
    seen: list[Sweep] = []
    _watch(model, inputs, (nn.RNNBase,), lambda layer, given, _: seen.extend(_read(layer, given)))
    return seen


def dense_flops(model: nn.Module, inputs: tuple[Any, ...]) -> int:
    """Multiplications and additions of the linear and convolution layers of one call."""
    counts: list[int] = []

    def count(layer: nn.Module, given: tuple[Any, ...], y: Any) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        counts.append(2 * y.numel() * weight[0].numel())

    _watch(model, inputs, _DENSE, count)
    return sum(counts)


def _watch(
    model: nn.Module, inputs: tuple[Any, ...], kinds: tuple[type[nn.Module], ...], seen: _Seen
) -> None:
    """Make one call, with a hook on each layer of these kinds."""
    with ExitStack() as stack, torch.no_grad():
        for module in model.modules():
            if isinstance(module, kinds):
                stack.enter_context(module.register_forward_hook(seen))
        model(*inputs)


def _read(layer: nn.Module, given: tuple[Any, ...]) -> list[Sweep]:
    assert isinstance(layer, nn.RNNBase)
    x = given[0]
    batch, steps = x.shape[:2] if layer.batch_first else (x.shape[1], x.shape[0])
    directions = 2 if layer.bidirectional else 1
    widths = [layer.input_size] + [layer.hidden_size * directions] * (layer.num_layers - 1)
    return [
        Sweep(layer.mode, width, layer.hidden_size, steps, batch)
        for width in widths
        for _ in range(directions)
    ]
