import random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence_doors import KINDS, choices, error_ratio, runner, same_bits, tuned
from torch import nn

from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import STOCK, blocks, hybrid, rolled, unrolled

WITHIN = 1e-5
FIXTURES = [HealthCheck.function_scoped_fixture]  # the family keeps nothing of an example


@st.composite
def layers(draw: Any, directions: tuple[bool, ...] = (False, True)) -> nn.RNNBase:
    kind = draw(st.sampled_from(KINDS))
    options: dict[str, Any] = {
        "num_layers": draw(st.integers(1, 3)),
        "bidirectional": draw(st.sampled_from(directions)),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
    }
    if kind is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(("tanh", "relu")))
    torch.manual_seed(draw(st.integers(0, 999)))
    hidden = draw(st.integers(1, 24))
    if kind is nn.LSTM and hidden > 1 and draw(st.booleans()):
        options["proj_size"] = draw(st.integers(1, hidden - 1))
    layer: nn.RNNBase = kind(draw(st.integers(1, 20)), hidden, **options)
    return layer


@st.composite
def inputs(draw: Any, layer: nn.RNNBase, most_steps: int = 40) -> tuple[Any, ...]:
    steps, batch = draw(st.integers(1, most_steps)), draw(st.integers(1, 5))
    batched = draw(st.booleans())
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    size = (batch, steps) if layer.batch_first else (steps, batch)
    x = torch.randn(*(size if batched else (steps,)), layer.input_size)
    if not draw(st.booleans()):
        return (x,)
    widths = (layer.proj_size or layer.hidden_size, layer.hidden_size)
    states = [torch.randn(rows, *((batch,) if batched else ()), width) for width in widths]
    return (x, tuple(states) if layer.mode == "LSTM" else states[0])


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=FIXTURES)
def test_every_choice_agrees_with_stock(family: Recurrence, data: st.DataObject) -> None:
    layer = data.draw(layers())
    args = data.draw(inputs(layer))
    with torch.no_grad():
        wanted = layer(*args)
        for choice in choices(family, layer):
            door, undo = tuned(layer, choice, family=family)
            assert error_ratio(layer(*args), wanted) <= WITHIN, choice
            assert len(door.seen) == 1
            undo()


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)
def test_a_switch_at_any_segment_edge_agrees_with_stock(
    family: Recurrence, data: st.DataObject
) -> None:
    layer = data.draw(layers((False,)))
    args = data.draw(inputs(layer))
    draw = random.Random(data.draw(st.integers(0, 999)))
    runs = [runner(family, layer, choice) for choice in choices(family, layer)]
    x_TBI = _steps_first(layer, args[0])
    widths = (layer.proj_size or layer.hidden_size, layer.hidden_size)
    zeros = [torch.zeros(layer.num_layers, x_TBI.shape[1], width) for width in widths]
    state: Any = tuple(zeros) if layer.mode == "LSTM" else zeros[0]
    with torch.no_grad():
        wanted = runs[0](x_TBI, state)
        parts, left = [], x_TBI.shape[0]
        while left:
            edge = data.draw(st.integers(1, left))
            y, state = draw.choice(runs)(x_TBI[-left:][:edge], state)
            parts.append(y)
            left -= edge
    assert error_ratio((torch.cat(parts), state), wanted) <= WITHIN


def _steps_first(layer: nn.RNNBase, x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 2:
        return x.unsqueeze(1)
    return x.transpose(0, 1) if layer.batch_first else x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_long_sequences_are_cut_and_profiles_switch_inside(
    kernels: Recurrence, kind: Any, batch_first: bool
) -> None:
    layer = kind(6, 8, num_layers=2, batch_first=batch_first)
    x = torch.randn(2, 700, 6) if batch_first else torch.randn(700, 2, 6)
    family = Recurrence(1e-9, kernels.kernels)
    door, _ = tuned(layer, family=family, draw=random.Random(3))
    with torch.no_grad():
        wanted = type(layer).forward(layer, x)
        for _ in range(4):  # whole, until the pace is known
            assert error_ratio(layer(x), wanted) <= WITHIN
        assert len(door.seen) == 4
        for case in layer.__dict__["forward"]._cases.values():
            for _ in range(9):
                case.rhythm.learn(1.0, 1)  # as if a step took a second
        assert error_ratio(layer(x), wanted) <= WITHIN
    segments = door.seen[4:]
    assert len(segments) == 22
    assert sum(work for _, work in segments) == 2 * 700
    assert {bucket for bucket, _ in door.seen} == {"B2.T1024"}


def test_both_directions_run_as_one_segment() -> None:
    layer = nn.GRU(4, 4, bidirectional=True)
    door, _ = tuned(layer, family=Recurrence(segment_s=1e-9))
    with torch.no_grad():
        for _ in range(3):
            layer(torch.randn(300, 1, 4))
    assert [work for _, work in door.seen] == [300.0] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_stock_keeps_the_bits_and_the_strides(kind: Any) -> None:
    layer = kind(6, 8, batch_first=True)
    x = torch.randn(3, 5, 6)
    with torch.no_grad():
        wanted = layer(x)
        tuned(layer, STOCK)
        got = layer(x)
    assert same_bits(got, wanted)
    assert got[0].stride() == wanted[0].stride()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_leaves_its_input_and_state_alone_and_shares_no_memory(
    family: Recurrence, kind: Any
) -> None:
    layer = kind(6, 8)
    x, h = torch.randn(5, 2, 6), torch.randn(1, 2, 8)
    state = (h, h.clone()) if kind is nn.LSTM else h
    kept = x.clone(), h.clone()
    for choice in choices(family, layer):
        with torch.no_grad():
            y, after = runner(family, layer, choice)(x, state)
        after = after[0] if kind is nn.LSTM else after
        before = after.clone()
        y.fill_(7.0)
        assert torch.equal(after, before), choice
        assert same_bits((x, h), kept), choice


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_outputs_are_the_tensors_that_the_callers_mode_calls_for(
    family: Recurrence, mode: Any
) -> None:
    layer = nn.LSTM(6, 8).requires_grad_(False)
    x = torch.randn(5, 2, 6)
    for choice in choices(family, layer):
        _, undo = tuned(layer, choice, family=family)
        with mode():
            got = layer(x)
            undo()
            wanted = layer(x)
        for ours, theirs in zip((got[0], *got[1]), (wanted[0], *wanted[1]), strict=True):
            assert ours.is_inference() == theirs.is_inference()
            assert ours.requires_grad == theirs.requires_grad
        if mode is not torch.inference_mode:  # they can be used where gradients are wanted
            got[0].mul(torch.ones(8, requires_grad=True)).sum().backward()


def test_nan_passes_through_as_in_stock(family: Recurrence) -> None:
    for kind in KINDS:
        layer = kind(3, 4)
        x = torch.randn(9, 2, 3)
        x[4, 1, 0] = float("nan")
        with torch.no_grad():
            wanted = layer(x)[0]
            for choice in choices(family, layer):
                _, undo = tuned(layer, choice, family=family)
                assert torch.equal(layer(x)[0].isnan(), wanted.isnan()), choice
                undo()


def test_blocks_cover_the_steps() -> None:
    assert list(blocks(rolled(), 3)) == [1, 1, 1]
    assert list(blocks(unrolled(4, "packed"), 10)) == [4, 4, 2]
    assert list(blocks(hybrid(4), 7)) == [4, 1, 1, 1]
    assert list(blocks(hybrid(8), 3)) == [3]
