"""Weights in bf16 and int8: offered where an error is allowed, and no further off than that."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence_doors import KINDS, flat, tuned
from torch import nn

from grainshift.core.choice import Exactness
from grainshift.core.forecast import Limits
from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import BF16, INT8, LOWER, rolled, unrolled

ERROR_RATIO = {BF16: 1e-2, INT8: 3e-2}


def distance(got: Any, wanted: Any) -> float:
    """In the 2-norm, over the whole answer; values below 0.1 come of terms that cancel."""
    a, b = (torch.cat([part.flatten() for part in flat(answer)]) for answer in (got, wanted))
    return float((a - b).norm() / b.norm().clamp_min(0.1 * b.numel() ** 0.5))


def test_offered_only_where_an_error_is_allowed(kernels: Recurrence) -> None:
    (site,), _ = kernels.find(nn.GRU(8, 8))
    strict = kernels.offer(site, "B1.T16", Limits())
    loose = kernels.offer(site, "B1.T16", Limits(error_ratio=1e-2))
    assert not any(choice.exactness is Exactness.LOWER for choice in strict)
    lower = [choice for choice in loose if choice.exactness is Exactness.LOWER]
    assert set(loose) - set(lower) == set(strict)
    assert {word for choice in lower for word in LOWER if word in choice.args} == set(LOWER)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(KINDS),
    inputs=st.integers(1, 40),
    hidden=st.integers(1, 70),
    batch=st.integers(1, 9),
    layers=st.integers(1, 2),
    bias=st.booleans(),
    word=st.sampled_from(LOWER),
)
def test_no_further_off_than_the_precision(
    swift: Recurrence,
    kind: Any,
    inputs: int,
    hidden: int,
    batch: int,
    layers: int,
    bias: bool,
    word: str,
) -> None:
    torch.manual_seed(hidden)
    layer = kind(inputs, hidden, num_layers=layers, bias=bias)
    x = torch.randn(7, batch, inputs)
    with torch.no_grad():
        wanted = layer(x)
        tuned(layer, unrolled(4, word), family=swift)
        assert distance(layer(x), wanted) <= ERROR_RATIO[word]


@pytest.mark.parametrize("word", LOWER)
def test_changed_weights_are_used_at_once(swift: Recurrence, word: str) -> None:
    layer = nn.LSTM(16, 24)
    x = torch.randn(6, 2, 16)
    tuned(layer, rolled(word), family=swift)
    with torch.no_grad():
        layer(x)
        for change in (layer.weight_hh_l0, layer.weight_hh_l0.data):
            change.mul_(1.5)
            assert distance(layer(x), nn.LSTM.forward(layer, x)) <= ERROR_RATIO[word]


@pytest.mark.parametrize("word", LOWER)
def test_weights_that_are_no_numbers_stay_none(swift: Recurrence, word: str) -> None:
    layer = nn.GRU(4, 4)
    x = torch.randn(3, 1, 4)
    tuned(layer, rolled(word), family=swift)
    with torch.no_grad():
        layer.weight_ih_l0[9, 2] = float("nan")  # of the candidate gate: it reaches the output
        assert torch.isnan(nn.GRU.forward(layer, x)[0][..., 1]).all()
        assert torch.isnan(layer(x)[0][..., 1]).all()
