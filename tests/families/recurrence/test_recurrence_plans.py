import random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence_doors import KINDS, choices, error_ratio, runner, tuned
from torch import nn

from grainshift.core.choice import is_plan, parts_of, plan, spell
from grainshift.core.codec import decode, encode
from grainshift.core.events import Offer
from grainshift.core.forecast import Forecast
from grainshift.families.recurrence import FAMILY, Recurrence
from grainshift.families.recurrence.choice import (
    BF16,
    OPERATORS,
    SOLO,
    WAVE,
    block_counts,
    hybrid,
    parts,
    planned,
    precision_of,
    rolled,
    unrolled,
    uses_operators,
    waves,
    widest_block,
)
from grainshift.families.recurrence.program import program

WITHIN = 1e-5
FIXTURES = [HealthCheck.function_scoped_fixture]  # the family keeps nothing of an example


def profiles(*words: str) -> st.SearchStrategy[Any]:
    sizes = st.sampled_from((2, 3, 4, 8, 16))
    return st.one_of(
        st.just(rolled(*words)),
        sizes.map(lambda size: unrolled(size, *words)),
        sizes.map(lambda size: hybrid(size, *words)),
    )


def plans(sweeps: int, *words: str) -> st.SearchStrategy[Any]:
    return st.lists(profiles(*words), min_size=sweeps, max_size=sweeps).map(
        lambda own: planned(*own)
    )


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)
def test_random_plans_at_random_segment_edges_agree_with_eager(
    kernels: Recurrence, data: st.DataObject
) -> None:
    layers = data.draw(st.integers(2, 3))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    kind, sizes = data.draw(st.sampled_from(KINDS)), st.integers(1, 40)
    layer = kind(data.draw(sizes), data.draw(sizes), layers, bias=data.draw(st.booleans()))
    x = torch.randn(data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5)), layer.input_size)
    zeros = torch.zeros(layers, x.shape[1], layer.hidden_size)
    state: Any = (zeros, zeros) if kind is nn.LSTM else zeros
    outputs, left = [], len(x)
    with torch.no_grad():
        wanted = layer(x)
        while left:
            words = data.draw(st.sampled_from(((), (SOLO,), (WAVE,), (OPERATORS,))))
            run = runner(kernels, layer, data.draw(plans(layers, *words)))
            edge = data.draw(st.integers(1, left))
            y, state = run(x[-left:][:edge], state)
            outputs.append(y)
            left -= edge
    assert error_ratio((torch.cat(outputs), state), wanted) <= WITHIN


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_each_direction_has_its_own_profile(kernels: Recurrence, kind: Any, threads: int) -> None:
    layer = kind(7, 33, 2, bidirectional=True)
    x, h = torch.randn(21, 3, 7), torch.randn(4, 3, 33)
    state = (h, h) if kind is nn.LSTM else h
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            wanted = layer(x, state)
            for words in ((), (SOLO,), (OPERATORS,)):
                own = hybrid(4, *words), unrolled(5, *words), rolled(*words), unrolled(21, *words)
                got = runner(kernels, layer, planned(*own))(x, state)
                assert error_ratio(got, wanted) <= WITHIN, words
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("word", [SOLO, WAVE, None])
def test_layers_with_unlike_blocks_wait_for_one_another(
    kernels: Recurrence, threads: int, word: str | None
) -> None:
    words = (word,) if word else ()
    layer = nn.LSTM(7, 40, 3)
    x, h = torch.randn(50, 2, 7), torch.randn(3, 2, 40)
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            wanted = layer(x, (h, h))
            for own in (
                (unrolled(32, *words), rolled(*words), unrolled(3, *words)),
                (rolled(*words), hybrid(16, *words), unrolled(8, *words)),
            ):
                got = runner(kernels, layer, planned(*own))(x, (h, h))
                assert error_ratio(got, wanted) <= WITHIN
    finally:
        torch.set_num_threads(1)


def test_a_live_plan_changes_from_segment_to_segment(kernels: Recurrence) -> None:
    layer = nn.GRU(6, 8, num_layers=2)
    family = Recurrence(1e-9, kernels.kernels)
    own = [planned(rolled(), unrolled(8)), planned(unrolled(16), hybrid(8)), rolled()]
    door, _ = tuned(layer, *own, family=family, draw=random.Random(3))
    x = torch.randn(700, 2, 6)
    with torch.no_grad():
        wanted = type(layer).forward(layer, x)
        for _ in range(5):
            layer(x)
        for case in layer.__dict__["forward"]._cases.values():
            for _ in range(9):
                case.rhythm.learn(1.0, 1)  # as if a step took a second
        before = len(door.seen)
        assert error_ratio(layer(x), wanted) <= WITHIN
    assert len(door.seen) - before > 10


def test_a_plan_holds_the_packed_weights_that_its_profiles_share(kernels: Recurrence) -> None:
    layer = nn.LSTM(6, 32, 2)
    (site,), _ = kernels.find(layer)
    one = kernels.build(layer, site, "B4.T64", unrolled(8), "")
    other = kernels.build(layer, site, "B4.T64", planned(unrolled(8), rolled()), "")
    assert one.held_bytes == other.held_bytes
    assert one.run is not other.run


def test_plans_are_offered_where_layers_differ(kernels: Recurrence) -> None:
    def offered(*sizes: int, **options: Any) -> list[Any]:
        return [c for c in choices(kernels, nn.LSTM(*sizes, **options)) if is_plan(c)]

    assert not offered(8, 16)
    assert not offered(16, 16, 2)
    assert not offered(8, 16, 4)
    for choice in offered(8, 16, 2):  # the second layer has the wider inputs
        first, second = parts(choice, 2)
        assert widest_block(first) < widest_block(second)
    for choice in offered(64, 16, 3):
        first, second, third = parts(choice, 3)
        assert widest_block(first) > widest_block(second) and second == third
    for choice in offered(8, 16, 2, bidirectional=True):
        down, up, _, _ = parts(choice, 4)
        assert down == up
    assert len(offered(8, 16, 2)) == len({*offered(8, 16, 2)}) > 0


@given(
    st.integers(2, 6).flatmap(lambda sweeps: st.one_of(plans(sweeps), plans(sweeps, BF16, SOLO)))
)
def test_a_plan_survives_the_journal_and_gives_its_parts_back(choice: Any) -> None:
    own = parts(choice, len(choice.args))
    assert planned(*own) == choice == plan(own)
    told = Offer(choice, Forecast(hits=(("l1", 0.5),), steps=3))
    assert decode(Offer, encode(told)) == told
    assert precision_of(choice) == precision_of(own[0])
    assert not uses_operators(choice) and not waves(choice)
    assert widest_block(choice) == max(map(widest_block, own))


def test_other_families_plans_give_their_parts_back() -> None:
    own = rolled(), hybrid(8)
    assert parts_of(plan(own)) == own


def test_a_plan_is_told_by_the_names_of_its_parts() -> None:
    (site,), _ = FAMILY.find(nn.GRU(3, 4, 2, bidirectional=True))
    choice = planned(rolled(), rolled(), unrolled(8), rolled())
    said = "plan(l0 l0_reverse: rolled, l1: unrolled(8), l1_reverse: rolled)"
    assert spell(choice, site.part_names) == said
    assert spell(rolled(), site.part_names) == "rolled"
    assert spell(choice, ()) == str(choice)


def test_blocks_are_counted() -> None:
    assert block_counts(hybrid(8), 20) == ((1, 12), (8, 1))
    assert block_counts(unrolled(8), 20) == ((4, 1), (8, 2))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.below = nn.LSTM(6, 8, 2, bidirectional=True)
        self.above = nn.Sequential(nn.Linear(16, 5), nn.GRU(5, 4))


def test_the_program_of_a_nested_model_has_a_node_a_layer_and_direction() -> None:
    found = program(nn.ModuleDict({"encoder": Encoder(), "head": nn.RNN(4, 2, 3)}))
    assert [(node.address, node.kind) for node in found.nodes] == [
        ("encoder.below.l0", "LSTM"),
        ("encoder.below.l0_reverse", "LSTM"),
        ("encoder.below.l1", "LSTM"),
        ("encoder.below.l1_reverse", "LSTM"),
        ("encoder.above.1", "GRU"),
        ("head.l0", "RNN_TANH"),
        ("head.l1", "RNN_TANH"),
        ("head.l2", "RNN_TANH"),
    ]
    below = [node.address for node in found.after("encoder.below.l0")]
    assert below == ["encoder.below.l1", "encoder.below.l1_reverse"]
    assert [node.address for node in found.before("head.l2")] == ["head.l1"]
    assert len(found.edges) == 4 + 2
    assert dict(found.node("encoder.below.l1").features)["inputs"] == 16.0


def test_the_parts_of_a_site_are_the_nodes_of_its_program() -> None:
    model = Encoder()
    (below, above), _ = FAMILY.find(model)
    assert [part.path for part in below.parts] == [n.address for n in program(model).nodes[:4]]
    assert above.parts == () and above.part_names == ()
