"""Packed sequences: rows that end at different steps, through every profile of the kernels."""

import contextlib
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence_doors import KINDS, error_ratio, tuned
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from grainshift.core.forecast import Limits
from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.call import read
from grainshift.families.recurrence.choice import STOCK, rolled, unrolled

BUCKET = "B8.T16.ragged"


def same(got: Any, wanted: Any) -> None:
    (ours, state), (theirs, wanted_state) = got, wanted
    assert type(ours) is PackedSequence
    for part, other in zip(ours[1:], theirs[1:], strict=True):
        assert (part is None) == (other is None)
        assert part is None or torch.equal(part, other)
    assert error_ratio((ours.data, state), (theirs.data, wanted_state)) <= 1e-4


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(KINDS),
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=9),
    layers=st.integers(1, 3),
    directions=st.integers(1, 2),
    bias=st.booleans(),
    given_state=st.booleans(),
    is_sorted=st.booleans(),
    data=st.data(),
)
def test_every_profile_agrees_with_pytorch(
    swift: Recurrence,
    kind: Any,
    lengths: list[int],
    layers: int,
    directions: int,
    bias: bool,
    given_state: bool,
    is_sorted: bool,
    data: st.DataObject,
) -> None:
    torch.manual_seed(len(lengths))
    lengths = sorted(lengths, reverse=True) if is_sorted else lengths
    layer = kind(5, 19, num_layers=layers, bidirectional=directions == 2, bias=bias)
    (site,), _ = swift.find(layer)
    choice = data.draw(st.sampled_from(swift.offer(site, BUCKET, Limits())))
    x = pack_padded_sequence(
        torch.randn(max(lengths), len(lengths), 5), torch.tensor(lengths), enforce_sorted=is_sorted
    )
    args: tuple[Any, ...] = (x,)
    if given_state:
        h = torch.randn(layers * directions, len(lengths), 19)
        args = (x, (h, h.neg()) if kind is nn.LSTM else h)
    with torch.no_grad():
        wanted = layer(*args)
        door, _ = tuned(layer, choice, family=swift)
        same(layer(*args), wanted)
    assert door.seen[0][1] == sum(lengths)


def test_no_compiler_leaves_them_to_stock() -> None:
    family, layer = Recurrence(), nn.GRU(4, 4)
    (site,), _ = family.find(layer)
    assert family.offer(site, BUCKET, Limits()) == (STOCK,)


@pytest.mark.parametrize(
    "rows", [[3, 3, 3], [2, 3], [9, 9], [4, 0, 1], [-1, 6], [], [5, 1]], ids=str
)
def test_lengths_that_cannot_be_never_reach_the_kernels(swift: Recurrence, rows: list[int]) -> None:
    layer = nn.GRU(4, 6)
    door, _ = tuned(layer, unrolled(4), family=swift)
    sequence = PackedSequence(torch.randn(5, 4), torch.tensor(rows, dtype=torch.int64))
    with torch.no_grad(), contextlib.suppress(RuntimeError, IndexError):
        layer(sequence)
    assert not door.seen


def test_changed_weights_are_seen(swift: Recurrence) -> None:
    layer = nn.LSTM(4, 6)
    x = pack_padded_sequence(torch.randn(5, 2, 4), [5, 3])
    tuned(layer, rolled(), family=swift)
    with torch.no_grad():
        layer(x)
        layer.weight_hh_l0.mul_(3.0)
        layer.weight_ih_l0.data[0] += 0.5
        same(layer(x), nn.LSTM.forward(layer, x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [[0], [0, 1, 2, 0], [[0, 1, 2]], 1], ids=str)
def test_an_order_of_other_rows_is_left_to_pytorch(kind: Any, order: Any) -> None:
    layer, h = kind(4, 6), torch.randn(1, 3, 6)
    state = (h, h) if kind is nn.LSTM else h
    data, rows = torch.randn(6, 4), torch.tensor([3, 3])
    back = torch.arange(3)
    whole, part = (
        PackedSequence(data, rows, torch.tensor(places), back) for places in ([2, 0, 1], order)
    )
    with torch.no_grad():
        assert read(layer, (whole, state), {}) is not None
        assert read(layer, (part, state), {}) is None  # PyTorch's layers may crash on it
