from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recurrence_doors import KINDS
from torch import nn

from grainshift.core.choice import Exactness
from grainshift.core.codec import decode, encode
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.forecast import Limits
from grainshift.core.machine import Cache, Machine
from grainshift.core.site import Site, Tempo
from grainshift.families.recurrence import FAMILY, Recurrence
from grainshift.families.recurrence import bucket as buckets
from grainshift.families.recurrence.choice import is_packed
from grainshift.families.recurrence.find import shape_of
from grainshift.families.recurrence.offer import can_pack, offer_kernels, offer_operators
from grainshift.families.recurrence.segment import CutCost, Rhythm, cut_costs, cuts, segment_steps
from grainshift.families.recurrence.shape import Shape, parse


class Own(nn.LSTM):
    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(input, hx)


class Named(nn.LSTM):
    """A subclass that changes nothing of the forward."""


def _parametrized() -> nn.Module:
    return torch.nn.utils.parametrizations.weight_norm(nn.GRU(4, 4), "weight_hh_l0")


def _patched() -> nn.Module:
    layer = nn.GRU(4, 4)
    layer.forward = lambda *args: args  # type: ignore[method-assign]
    return layer


REFUSED = [
    (lambda: nn.GRU(4, 4).double(), "torch.float64"),
    (lambda: nn.GRU(4, 4, device="meta"), "on meta"),
    (lambda: nn.GRUCell(4, 4), "cell"),
    (lambda: Own(4, 4), "Own runs a forward of its own"),
    (_patched, "forward of its own"),
    (_parametrized, "parametrization"),
    (lambda: torch.jit.script(nn.GRU(4, 4)), "TorchScript"),
    (lambda: torch.ao.nn.quantized.dynamic.GRU(4, 4), "quantized"),
]


@pytest.mark.parametrize(("make", "word"), REFUSED, ids=[word for _, word in REFUSED])
@pytest.mark.filterwarnings("ignore")
def test_a_place_that_cannot_be_a_site_has_a_reason(make: Any, word: str) -> None:
    sites, refused = FAMILY.find(nn.ModuleDict({"seq": make()}))
    assert not sites
    assert [path for path, _ in refused][:1] == ["seq"]
    assert word in refused[0][1]


def test_sites_are_the_layers_each_once() -> None:
    shared = nn.GRU(4, 8)
    model = nn.ModuleDict(
        {"a": shared, "b": nn.Sequential(shared, Named(8, 8)), "c": nn.Linear(2, 2)}
    )
    sites, refused = FAMILY.find(model)
    assert [(site.key, site.tempo) for site in sites] == [
        ("recurrence:a", Tempo.SEGMENT),
        ("recurrence:b.1", Tempo.SEGMENT),
    ]
    assert not refused
    assert all(decode(Site, encode(site)) == site for site in sites)


def test_fingerprints_tell_layers_apart_by_what_matters() -> None:
    layers = [kind(4, 8, bias=bias, num_layers=layers, bidirectional=both)
              for kind in KINDS for bias in (True, False) for layers in (1, 2)
              for both in (True, False)]  # fmt: skip
    layers += [nn.RNN(4, 8, nonlinearity="relu"), nn.GRU(5, 8), nn.GRU(4, 9)]
    prints = [FAMILY.find(layer)[0][0].fingerprint for layer in layers]
    assert len(set(prints)) == len(prints)
    for layer in layers:
        (site,), _ = FAMILY.find(layer)
        assert parse(site) == shape_of(layer)
    again = FAMILY.find(nn.GRU(5, 8, batch_first=True))[0][0]
    assert again.fingerprint == prints[-2]


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_bucket_holds_the_sizes_it_names(batch: int, steps: int) -> None:
    most_batch, most_steps = buckets.sizes(buckets.name(batch, steps))
    assert most_batch / 2 < batch <= most_batch
    assert most_steps / 2 < steps <= most_steps


def test_offers_start_with_stock_and_fit_the_bucket() -> None:
    short, long = (offer_operators(name, packing=True) for name in ("B1.T1", "B1.T128"))
    assert [str(choice) for choice in short] == ["stock", "rolled(operators)", "rolled(packed)"]
    assert "hybrid(8, operators)" in map(str, long)
    assert "unrolled(32, packed)" in map(str, long)
    assert len(set(long)) == len(long)
    (site,), _ = FAMILY.find(nn.GRU(4, 4))
    packed = [choice for choice in FAMILY.offer(site, "B1.T8", Limits()) if is_packed(choice)]
    assert bool(packed) == can_pack()


def test_kernels_are_offered_where_they_can_be_built(kernels: Recurrence) -> None:
    (site,), _ = FAMILY.find(nn.GRU(4, 4, num_layers=2))
    offered = kernels.offer(site, "B1.T128", Limits())
    names = [str(choice) for choice in offered]
    assert names[:3] == ["stock", "rolled", "unrolled(2)"]
    assert {"hybrid(8)", "unrolled(32)", "unrolled(16, solo)", "unrolled(4, wave)"} <= set(names)
    assert len(set(offered)) == len(offered)
    assert all(choice.exactness is not Exactness.LOWER for choice in offered)
    lower = kernels.offer(site, "B1.T128", Limits(error_ratio=0.01))
    assert {c.exactness for c in lower if "bf16" in c.args} == {Exactness.LOWER}
    assert not any("wave" in str(c) for c in offer_kernels(ONE_LAYER, "B1.T128", Limits()))


ONE_LAYER = Shape("GRU", 8, 8, 1, 1, True)
MACHINE = Machine(
    "m", "cpu", (0, 1), 2.0, 1 << 34,
    caches=(Cache(2, 1 << 20, 1), Cache(3, 32 << 20, 2)),
    rates=(Figure("fp32_flops", 2e11), Figure("l2_bytes", 1e11), Figure("dram_bytes", 3e10)),
)  # fmt: skip
NOW = Conditions(0.0)


def _forecasts(layer: nn.Module, bucket: str, machine: Machine = MACHINE) -> dict[str, Any]:
    (site,), _ = FAMILY.find(layer)
    return {
        str(choice): FAMILY.forecast(site, bucket, choice, machine, NOW)
        for choice in (
            *offer_operators(bucket, packing=True),
            *offer_kernels(parse(site), bucket, Limits())[1:],
        )
    }


def test_forecasts_order_the_choices_as_measured() -> None:
    gru = _forecasts(nn.GRU(512, 512), "B8.T64")
    assert gru["stock"].time_ratio == 1.0
    assert gru["unrolled(32, packed)"].time_ratio < gru["unrolled(32, operators)"].time_ratio < 1.0
    narrow = _forecasts(nn.GRU(64, 64), "B1.T64")
    assert narrow["unrolled(32)"].time_ratio < 0.5 * narrow["unrolled(32, operators)"].time_ratio
    large = _forecasts(nn.LSTM(1024, 1024), "B1.T32")
    assert large["unrolled(8, packed)"].time_ratio < 0.7
    small = _forecasts(nn.LSTM(64, 64), "B1.T128")
    assert min(f.time_ratio for name, f in small.items() if "operators" in name) > 1.2
    assert min(small.values(), key=lambda f: f.time_ratio).time_ratio < 0.7


def test_forecasts_count_memory() -> None:
    costs = _forecasts(nn.GRU(512, 512), "B8.T64")
    block = costs["unrolled(32, operators)"].extra_bytes - costs["rolled(operators)"].extra_bytes
    assert block == 4 * 31 * 8 * (3 * 512 + 512)
    packed = costs["rolled(packed)"].extra_bytes
    assert packed - costs["rolled(operators)"].extra_bytes == 2 * 4 * 3 * 512 * 512


def test_an_unknown_machine_widens_the_spread() -> None:
    unknown = Machine("m", "cpu", (0,), 1.0, 1 << 30)
    for layer in (nn.LSTM(8, 8), nn.GRU(8, 8, num_layers=2), nn.RNN(8, 8, bidirectional=True)):
        known = _forecasts(layer, "B2.T16")["rolled"]
        wide = _forecasts(layer, "B2.T16", unknown)["rolled"]
        assert wide.spread > known.spread
        assert wide.time_ratio > 0


@given(st.integers(1, 10_000), st.sampled_from([0, 32, 64, 128, 1024]))
def test_cuts_cover_the_sequence_in_like_parts(steps: int, segment: int) -> None:
    parts = cuts(steps, segment)
    assert sum(parts) == steps
    if len(parts) > 1:
        assert all(segment / 2 <= part < 1.5 * segment for part in parts)


def test_segments_are_long_enough_that_cutting_is_not_felt() -> None:
    cost = CutCost(segment_s=20e-6, step_s=1e-9)
    steps = segment_steps(100e-6, 0.002, 1, cost)
    assert 0.002 <= steps * 100e-6 <= 0.004
    assert segment_steps(0.0, 0.002, 1, cost) == 0  # no pace is known yet
    assert segment_steps(1e-6, 0.002, 64, cost) == 0  # copying outputs would be felt
    lstm, profile = cut_costs(Shape("LSTM", 1024, 1024, 1, 1, True))
    assert segment_steps(0.3e-3, 0.002, 1, lstm) * 0.3e-3 >= 100 * 10e-3
    assert segment_steps(0.1e-3, 0.002, 1, profile) * 0.1e-3 <= 4e-3  # which reorders nothing


def _shares(slower: float, calls: int) -> tuple[int, float]:
    """Cut calls, and time over that of whole calls, when a cut call takes `slower` as long."""
    rhythm, cost = Rhythm(), CutCost(segment_s=20e-6, step_s=0.0)
    cut, total_s = 0, 0.0
    for _ in range(calls):
        segments = len(rhythm.cut(1000, 1, 0.002, cost))
        step_s = 100e-6 * (slower if segments > 1 else 1.0)
        rhythm.learn(step_s, segments)
        cut += segments > 1
        total_s += step_s
    return cut, total_s / (100e-6 * calls)


def test_calls_are_cut_while_cutting_is_not_felt() -> None:
    cut, ratio = _shares(1.005, 1000)
    assert cut > 900
    assert ratio < 1.006


def test_cutting_ends_where_it_is_felt_and_is_tried_again_ever_more_rarely() -> None:
    cut, ratio = _shares(3.0, 2000)
    assert 3 <= cut <= 8
    assert ratio < 1.01


def test_cutting_returns_once_it_is_no_longer_felt() -> None:
    rhythm, cost = Rhythm(), CutCost(segment_s=20e-6, step_s=0.0)
    cut_calls = []
    for call in range(1000):
        segments = len(rhythm.cut(1000, 1, 0.002, cost))
        busy = 200 <= call < 300
        rhythm.learn(100e-6 * (3.0 if busy and segments > 1 else 1.0), segments)
        cut_calls.append(segments > 1)
    assert sum(cut_calls[200:300]) <= 3
    assert sum(cut_calls[600:]) > 350


def test_the_family_names_itself() -> None:
    assert (FAMILY.name, FAMILY.policy) == ("recurrence", "bandit")
    assert Recurrence(0.01).segment_s == 0.01
    assert Recurrence() == FAMILY
    (site,), _ = FAMILY.find(nn.GRU(4, 4))
    assert FAMILY.recipe(site, "B1.T1", offer_operators("B1.T1", packing=False)[1]) is None
