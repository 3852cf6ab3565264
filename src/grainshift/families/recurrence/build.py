"""Builds a Choice of a recurrent layer into something that runs one segment.

Every Runner has one signature: `run(x_TBI, state) -> (y_TBO, state)`, where state is `(h, c)` of
an LSTM and `h` of the others, each of layers times directions by batch by hidden. For a packed
sequence it is `run(x_NI, state, rows)`: the rows of all steps, and how many each step has.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import _VF, Tensor, nn

from grainshift.core.choice import Choice
from grainshift.core.family import Runner
from grainshift.families.recurrence.cell import Cell, cell_of
from grainshift.families.recurrence.choice import STOCK, blocks, is_packed, parts
from grainshift.families.recurrence.find import shape_of
from grainshift.families.recurrence.product import PackedProduct, PlainProduct, Product
from grainshift.families.recurrence.sweep import Cuts, Start, sweep
from grainshift.families.recurrence.weights import Packed, Weights, current, grouped

Run = Callable[..., tuple[Tensor, Any]]


def build(layer: nn.RNNBase, choice: Choice, packed: Packed) -> Runner:
    """A Choice ready to run on a layer; `packed` is shared by the Choices that need it."""
    if choice == STOCK:
        return Runner(stock(layer))
    if not is_packed(choice):
        return Runner(_profile(layer, choice, None))
    packed.of(grouped(current(layer), layer.bias, bool(layer.proj_size)))
    return Runner(_profile(layer, choice, packed), held_bytes=shape_of(layer).matrix_bytes)


def stock(layer: nn.RNNBase) -> Run:
    """What PyTorch's forward runs once it has checked its arguments, as `call.read` has here.

    Where gradients are wanted, the caller gives the weights that they are wanted of.
    """
    function = getattr(_VF, layer.mode.lower())

    def run(
        x_TBI: Tensor,
        state: Any,
        flat: list[Tensor] | None = None,
        rows: tuple[int, ...] | None = None,
    ) -> tuple[Tensor, Any]:
        if rows is not None:
            return _answered(function(x_TBI, torch.tensor(rows), state, *words(flat)))
        return _answered(function(x_TBI, state, *words(flat), False))

    def words(flat: list[Tensor] | None) -> tuple[Any, ...]:
        return (
            flat or current(layer),
            layer.bias,
            layer.num_layers,
            layer.dropout,
            layer.training,
            layer.bidirectional,
        )

    return run


def _answered(answer: tuple[Tensor, ...]) -> tuple[Tensor, Any]:
    return answer[0], (answer[1] if len(answer) == 2 else answer[1:])


def _profile(layer: nn.RNNBase, choice: Choice, packed: Packed | None) -> Run:
    kind, outputs = layer.mode, layer.proj_size or layer.hidden_size
    directions = 2 if layer.bidirectional else 1
    profiles = parts(choice, layer.num_layers * directions)
    known: dict[int, Cuts] = {}

    def run(x_TBI: Tensor, state: Any) -> tuple[Tensor, Any]:
        steps = x_TBI.shape[0]
        cuts = known.get(steps)
        if cuts is None:
            known.clear()  # one entry: most calls have the shape of the last
            cuts = known[steps] = [tuple(blocks(profile, steps)) for profile in profiles]
        groups = grouped(current(layer), layer.bias, bool(layer.proj_size))
        make = _maker(kind, groups, packed)
        start = state if kind == "LSTM" else (state,)
        y_TBO, finals = sweep(x_TBI, start, outputs, directions, cuts, make)
        after = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
        return y_TBO, after if kind == "LSTM" else after[0]

    return run


def _maker(
    kind: str, groups: tuple[Weights, ...], packed: Packed | None
) -> Callable[[int, Start], tuple[Cell, Callable[[Tensor], Tensor]]]:
    copies = packed.of(groups) if packed is not None else None

    def make(number: int, start: Start) -> tuple[Cell, Callable[[Tensor], Tensor]]:
        weights = groups[number]
        bias = _input_bias(kind, weights)
        product: Product
        if copies is None:
            product = PlainProduct(weights, bias)
        else:
            product = PackedProduct(weights, bias, copies[number])
        return cell_of(kind, product, start, weights.projection), product.project

    return make


def _input_bias(kind: str, weights: Weights) -> Tensor | None:
    """What the input product adds; a GRU's recurrent bias belongs inside its reset gate."""
    into, recurrent = weights.bias_in, weights.bias_recurrent
    if kind == "GRU" or into is None or recurrent is None:
        return into
    return into + recurrent
