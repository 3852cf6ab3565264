"""What one call of a model does, counted; and the least time that it can take."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from grainshift.bench.recurrence.limit import bytes_per_s, least_time_s
from grainshift.bench.sweeps import Sweep, dense_flops, sweeps_of
from grainshift.bench.workloads.recurrent_models import decoder
from grainshift.core.conditions import Figure
from grainshift.core.machine import Cache, Machine

MACHINE = Machine(
    "none",
    "a CPU",
    (0, 1),
    2.0,
    1 << 34,
    (Cache(1, 32 << 10, 1), Cache(2, 1 << 20, 1), Cache(3, 8 << 20, 2)),
    rates=tuple(
        Figure(name, value)
        for name, value in (
            ("fp32_flops", 1e11),
            ("l1_bytes", 8e11),
            ("l2_bytes", 4e11),
            ("l3_bytes", 1e11),
            ("dram_bytes", 2e10),
        )
    ),
)


def test_every_layer_and_direction_is_a_sweep() -> None:
    model = nn.LSTM(3, 5, num_layers=2, bidirectional=True, batch_first=True)
    assert sweeps_of(model, (torch.randn(7, 11, 3),)) == [
        *[Sweep("LSTM", 3, 5, 11, 7)] * 2,
        *[Sweep("LSTM", 10, 5, 11, 7)] * 2,
    ]


def test_a_layer_called_again_is_swept_again() -> None:
    model, inputs = decoder(hidden=4, batch=2, steps=6)
    assert sweeps_of(model, inputs) == [Sweep("LSTM", 4, 4, 1, 2)] * 6
    assert dense_flops(model, inputs) == 6 * 2 * 2 * 4 * 4


def test_flops_and_bytes_are_those_of_both_matrices() -> None:
    sweep = Sweep("GRU", inputs=3, hidden=5, steps=7, batch=2)
    assert sweep.recurrent_bytes == 4 * 15 * 5
    assert sweep.flops == 2 * 15 * (3 + 5) * 7 * 2


def test_a_convolution_counts_each_of_its_outputs() -> None:
    model = nn.Conv1d(2, 3, 5, padding=2)
    assert dense_flops(model, (torch.randn(1, 2, 10),)) == 2 * 30 * 2 * 5


@pytest.mark.parametrize(
    ("size_bytes", "rate"),
    [(64 << 10, 8e11), (2 << 20, 4e11), ((2 << 20) + 1, 1e11), (8 << 20, 1e11), (9 << 20, 2e10)],
)
def test_weights_come_from_the_smallest_level_that_holds_them(size_bytes: int, rate: float) -> None:
    assert bytes_per_s(size_bytes, MACHINE) == rate


def test_one_row_is_bound_by_bandwidth_and_many_by_arithmetic() -> None:
    model = nn.RNN(512, 512)
    weights_s = 10 * 4 * 512 * 512 / 4e11
    flops = 2 * 512 * 1024 * 10
    assert flops / 1e11 > weights_s  # a slow machine: even one row is arithmetic
    fast = replace(MACHINE, rates=(*MACHINE.rates[1:], Figure("fp32_flops", 1e13)))
    one, many = (torch.randn(10, batch, 512) for batch in (1, 64))
    assert least_time_s(model, (one,), fast) == pytest.approx(weights_s)
    assert least_time_s(model, (one,), MACHINE) == pytest.approx(flops / 1e11)
    assert least_time_s(model, (many,), fast) == pytest.approx(64 * flops / 1e13)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 8), st.floats(1.0, 10.0))
def test_a_faster_machine_or_less_work_never_takes_longer(
    steps: int, batch: int, factor: float
) -> None:
    model, x_TBI = nn.GRU(8, 8), torch.randn(steps, batch, 8)
    faster = replace(
        MACHINE, rates=tuple(Figure(one.name, factor * one.value) for one in MACHINE.rates)
    )
    whole_s = least_time_s(model, (x_TBI,), MACHINE)
    assert least_time_s(model, (x_TBI,), faster) == pytest.approx(whole_s / factor)
    assert least_time_s(model, (x_TBI[:1],), MACHINE) == pytest.approx(whole_s / steps)
