import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence_doors import KINDS, Door, error_ratio, flat, same_bits
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from grainshift.core.choice import Choice
from grainshift.core.forecast import Limits
from grainshift.families.recurrence import Recurrence, backward
from grainshift.families.recurrence.choice import SOLO, STOCK, WAVE, hybrid, rolled, unrolled
from grainshift.families.recurrence.library import load
from grainshift.families.recurrence.net import Net
from grainshift.families.recurrence.shape import parse
from grainshift.families.recurrence.train import Turned, there_and_back
from grainshift.families.recurrence.weights import current, grouped
from grainshift.runtime.slot import Slot

WITHIN = 1e-4
BUCKET = "B4.T64.train"
FIXTURES = [HealthCheck.function_scoped_fixture]  # the family keeps nothing of an example
PROFILES = (rolled(), unrolled(4), unrolled(8, SOLO), hybrid(8), unrolled(2, WAVE))
Tuned = Callable[..., tuple[nn.RNNBase, nn.RNNBase, Door]]


def put_in(family: Recurrence, layer: nn.RNNBase, choice: Choice) -> Door:
    (site,), _ = family.find(layer)
    door = Door([family.build(layer, site, "B4.T64", choice, "").run])
    door.trains = family.build(layer, site, BUCKET, choice, "").run
    family.install(layer, site, door)
    return door


@pytest.fixture
def tuned(kernels: Recurrence) -> Tuned:
    """A layer that trains on the kernels, its untuned twin, and the door in between."""

    def make(kind: Any = nn.GRU, *sizes: int, **options: Any) -> Any:
        torch.manual_seed(0)
        layer = kind(*(sizes or (6, 8)), **options)
        twin = copy.deepcopy(layer)
        return layer, twin, put_in(kernels, layer, unrolled(4))

    return make


def trained(layer: nn.RNNBase, *args: Any) -> list[Tensor]:
    """Outputs and gradients of one step on a loss that all outputs have a part in."""
    outputs = flat(layer(*args))
    layer.zero_grad()
    sum((out * out.cos()).sum() for out in outputs).backward()
    return [*(out.detach() for out in outputs), *grads(layer)]


def grads(layer: nn.Module) -> list[Tensor]:
    return [weight.grad.clone() for weight in layer.parameters() if weight.grad is not None]


@st.composite
def layers(draw: Any) -> nn.RNNBase:
    kind = draw(st.sampled_from(KINDS))
    options: dict[str, Any] = {
        "num_layers": draw(st.integers(1, 3)),
        "bidirectional": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
    }
    if kind is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(("tanh", "relu")))
    torch.manual_seed(draw(st.integers(0, 999)))
    layer: nn.RNNBase = kind(draw(st.integers(1, 40)), draw(st.integers(1, 70)), **options)
    for weight in layer.parameters():
        weight.requires_grad_(draw(st.booleans()))
    return layer


def states(layer: nn.RNNBase, rows: int, draw: Any) -> list[Tensor]:
    size = (layer.num_layers * (2 if layer.bidirectional else 1), rows, layer.hidden_size)
    count = 2 if layer.mode == "LSTM" else 1
    return [torch.randn(size, requires_grad=draw(st.booleans())) for _ in range(count)]


@given(st.data())
@settings(max_examples=120, deadline=None, suppress_health_check=FIXTURES)
def test_outputs_and_all_gradients_agree_with_stock(
    kernels: Recurrence, data: st.DataObject
) -> None:
    layer = data.draw(layers())
    steps, rows = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 9))
    size = (rows, steps) if layer.batch_first else (steps, rows)
    x = torch.randn(*size, layer.input_size, requires_grad=data.draw(st.booleans()))
    parts = states(layer, rows, data.draw) if data.draw(st.booleans()) else []
    args: tuple[Any, ...] = (x, tuple(parts) if len(parts) == 2 else parts[0]) if parts else (x,)
    asked = [part for part in (x, *parts, *layer.parameters()) if part.requires_grad]
    wanted = flat(layer(*args))
    ways = [torch.randn_like(out) for out in wanted]
    used = data.draw(st.sets(st.sampled_from(range(len(wanted))), min_size=1))
    told = _gradients(wanted, ways, used, asked)
    choice = data.draw(st.sampled_from(PROFILES))
    backward.CHUNK_BYTES = data.draw(st.sampled_from((1 << 10, 1 << 22)))
    torch.set_num_threads(data.draw(st.integers(1, 2)))
    try:
        door = put_in(kernels, layer, choice)
        got = flat(layer(*args))
        found = _gradients(got, ways, used, asked)
    finally:
        backward.CHUNK_BYTES = 1 << 22
        torch.set_num_threads(1)
    with torch.no_grad():
        assert error_ratio(got, wanted) <= WITHIN
    assert not asked or error_ratio(found, told) <= WITHIN
    assert all(bucket.endswith(".train") == bool(asked) for bucket, _ in door.seen)
    assert len(door.seen) == 1


def _gradients(
    outputs: list[Tensor], ways: list[Tensor], used: set[int], asked: list[Tensor]
) -> list[Tensor]:
    """Those of what was asked, 0 where an output that is used does not depend on it."""
    if not asked:
        return []
    found = torch.autograd.grad(
        [outputs[n] for n in used], asked, [ways[n] for n in used], allow_unused=True
    )
    pairs = zip(found, asked, strict=True)
    return [torch.zeros_like(part) if grad is None else grad for grad, part in pairs]


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_in_double_goes_through_pytorchs_own(tuned: Tuned, kind: Any) -> None:
    layer, _, door = tuned(kind, 3, 4, num_layers=2)
    layer.double()
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: layer(value)[0], (x,))
    assert door.seen == []


@pytest.mark.parametrize("kind", KINDS)
def test_unbatched_and_transposed_inputs_train(tuned: Tuned, kind: Any) -> None:
    for x in (torch.randn(5, 6), torch.randn(5, 6, 3).transpose(1, 2), torch.randn(5, 1, 6)):
        layer, twin, door = tuned(kind)
        assert error_ratio(trained(layer, x), trained(twin, x)) <= WITHIN
        assert len(door.seen) == 1


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])  # PyTorch's own LSTM has no second gradients
def test_gradients_of_gradients(tuned: Tuned, kind: Any) -> None:
    layer, twin, door = tuned(kind)
    x = torch.randn(5, 2, 6, requires_grad=True)
    found = []
    for each in (layer, twin):
        (first,) = torch.autograd.grad(each(x)[0].square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, *each.parameters()]))
    assert error_ratio(found[0], found[1]) <= WITHIN
    assert len(door.seen) == 1


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_an_output_may_be_changed_in_place_as_in_pytorch(tuned: Tuned, kind: Any) -> None:
    found = []
    for each in tuned(kind)[:2]:
        torch.manual_seed(1)
        y, _ = each(torch.randn(5, 2, 6))
        y.mul_(2.0)
        y.square().sum().backward()
        found.append(grads(each))
    assert error_ratio(found[0], found[1]) <= WITHIN


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["optimizer", "data"])
def test_weights_are_packed_anew_between_steps(tuned: Tuned, kind: Any, change: str) -> None:
    layer, twin, door = tuned(kind, num_layers=2)
    x = torch.randn(5, 2, 6)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.5) for each in (layer, twin)]
    for _ in range(4):
        assert error_ratio(trained(layer, x), trained(twin, x)) <= WITHIN
        for each, optimizer in zip((layer, twin), optimizers, strict=True):
            if change == "optimizer":
                optimizer.step()
            else:  # as optimizers of old did, past PyTorch's counters
                for weight in each.parameters():
                    weight.data.sub_(0.5 * weight.grad)
    assert len(door.seen) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_two_calls_before_one_step_back_and_gradients_that_add_up(tuned: Tuned, kind: Any) -> None:
    found = []
    for each in tuned(kind, 8, 8)[:2]:
        torch.manual_seed(1)
        x = torch.randn(5, 2, 8)
        y, state = each(x)
        loss = each(y, state)[0].sum()
        loss.backward(retain_graph=True)
        loss.backward()
        each(x)[0].square().sum().backward()
        found.append(grads(each))
    assert error_ratio(found[0], found[1]) <= WITHIN


def test_a_weight_written_to_before_the_way_back_is_noticed_by_autograd(tuned: Tuned) -> None:
    layer, _, _ = tuned()
    y, _ = layer(torch.randn(5, 2, 6))
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_memory_is_let_go_on_the_way_back(tuned: Tuned) -> None:
    layer, _, _ = tuned()
    y, _ = layer(torch.randn(5, 2, 6))
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing(tuned: Tuned, kind: Any, use_reentrant: bool) -> None:
    layer, twin, door = tuned(kind)
    x = torch.randn(5, 2, 6, requires_grad=True)

    def run(value: Tensor) -> Tensor:
        out: Tensor = checkpoint(lambda part: layer(part)[0], value, use_reentrant=use_reentrant)
        return out

    (found,) = torch.autograd.grad(run(x).square().sum(), x) if not use_reentrant else (None,)
    run(x).square().sum().backward()
    wanted_x = x.grad.clone()
    x.grad = None
    twin(x)[0].square().sum().backward()
    assert error_ratio([wanted_x, *grads(layer)], [x.grad, *grads(twin)]) <= WITHIN
    if found is not None:
        assert error_ratio(found, x.grad) <= WITHIN
    # The first run of a reentrant checkpoint wants no gradients; the second wants them.
    assert [bucket for bucket, _ in door.seen] == ["B2.T8", "B2.T8.train"] * use_reentrant


def _saving() -> AbstractContextManager[Any]:
    return torch.autograd.graph.save_on_cpu()


def _autocast() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("context", [_saving, _autocast])
@pytest.mark.parametrize("kind", KINDS)
def test_hooks_on_saved_tensors_and_autocast_go_to_stock(
    tuned: Tuned, kind: Any, context: Callable[[], AbstractContextManager[Any]]
) -> None:
    layer, twin, door = tuned(kind)
    x = torch.randn(5, 2, 6)
    with context():
        assert same_bits(trained(layer, x), trained(twin, x))
    assert door.seen == []


def test_dropout_in_training_goes_to_stock_and_in_evaluation_does_not(tuned: Tuned) -> None:
    layer, twin, door = tuned(nn.LSTM, num_layers=2, dropout=0.5)
    x = torch.randn(5, 2, 6)
    found = []
    for each in (layer, twin):
        torch.manual_seed(3)
        found.append(trained(each, x))
    assert same_bits(*found) and door.seen == []
    layer.eval()
    twin.eval()
    assert error_ratio(trained(layer, x), trained(twin, x)) <= WITHIN
    with torch.no_grad():
        layer(x)
    assert [bucket for bucket, _ in door.seen] == ["B2.T8.train", "B2.T8"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_type_of_new_tensors_does_not_matter(
    tuned: Tuned, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, twin, door = tuned(kind, num_layers=2, bidirectional=True)
    x = torch.randn(40, 2, 6)
    monkeypatch.setattr(backward, "CHUNK_BYTES", 1 << 10)
    torch.set_default_dtype(torch.float64)
    try:
        got = trained(layer, x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert error_ratio(got, trained(twin, x)) <= WITHIN
    assert len(door.seen) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_nan_and_infinite_inputs_spread_as_in_stock(tuned: Tuned, kind: Any) -> None:
    for strange in (float("nan"), float("inf")):
        layer, twin, _ = tuned(kind)
        x = torch.randn(5, 2, 6)
        x[2, 1, 3] = strange
        got, wanted = trained(layer, x), trained(twin, x)
        for ours, theirs in zip(got, wanted, strict=True):
            assert torch.equal(ours.isfinite(), theirs.isfinite())


def test_what_fails_on_the_way_back_is_answered_by_stock_and_told_in_the_next_call(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, twin, _ = tuned()
    x = torch.randn(5, 2, 6)

    def fail(*args: Any) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(backward.Walk, "through", fail)
    assert error_ratio(trained(layer, x), trained(twin, x)) <= WITHIN
    with pytest.raises(MemoryError, match="none left"):
        layer(x)


def test_without_a_compiler_training_is_stock_and_says_so(
    kernels: Recurrence, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernels.native is not None
    folder = kernels.native.folder / "empty"
    monkeypatch.setattr("grainshift.runtime.native.find_compiler", lambda: None)
    family = Recurrence(kernels=folder)
    layer = nn.GRU(6, 8)
    (site,), refused = family.find(layer)
    assert [path for path, reason in refused if "compiler" in reason] == [site.path]
    assert family.offer(site, BUCKET, Limits()) == (STOCK,)
    door = Door([])
    family.install(layer, site, door)
    trained(layer, torch.randn(5, 2, 6))
    assert door.seen == []


def test_training_calls_are_offered_the_kernels_profiles_and_no_lower_precision(
    kernels: Recurrence,
) -> None:
    layer = nn.GRU(6, 8)
    (site,), refused = kernels.find(layer)
    offered = kernels.offer(site, BUCKET, Limits(error_ratio=0.1))
    assert offered[0] == STOCK and not refused
    assert {*offered} == {*kernels.offer(site, BUCKET.removesuffix(".train"), Limits())}


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_is_a_step_of_any_choice(kernels: Recurrence, kind: Any) -> None:
    layer = kind(6, 8)
    (site,), _ = kernels.find(layer)
    x, dy, h = torch.randn(5, 2, 6), torch.randn(5, 2, 8), torch.zeros(1, 2, 8)
    found = []
    for choice in (STOCK, *PROFILES):
        layer.zero_grad()
        run = kernels.build(layer, site, BUCKET, choice, "").run
        y = there_and_back(run, layer, x, (h, h) if kind is nn.LSTM else h, dy)
        found.append([y, *grads(layer)])
    assert len(found[0]) == 5
    assert all(error_ratio(each, found[0]) <= WITHIN for each in found[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_trains_alike_while_the_slot_switches_between_choices(
    kernels: Recurrence, kind: Any
) -> None:
    torch.manual_seed(0)
    layer = kind(6, 8, num_layers=2, bidirectional=True)
    twin = copy.deepcopy(layer)
    (site,), _ = kernels.find(layer)
    slot = Slot(site, kernels.build(layer, site, "", STOCK, "").run)
    kernels.install(layer, site, slot)
    bucket = "B2.T8.train"
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (layer, twin)]
    for number in range(13):
        if number == 1:
            for arm, choice in enumerate(PROFILES[:3], 1):
                slot.put(bucket, arm, kernels.build(layer, site, bucket, choice, "").run)
            slot.compare(bucket, 1)
            slot.deal(bucket, 5, (0, 1, 2, 3, 2, 1), range(2))
        x = torch.randn(5, 2, 6)
        for each, optimizer in zip((layer, twin), optimizers, strict=True):
            optimizer.zero_grad()
            y, state = each(x)
            sum(part.square().sum() for part in (y, *flat(state))).backward()
            optimizer.step()
    with torch.no_grad():
        assert error_ratio([*layer.parameters()], [*twin.parameters()]) <= WITHIN
    (told,) = slot.comparisons
    assert told.error_ratio <= WITHIN
    (sample,) = slot.drain()
    assert [r.arm for r in sample.readings if r.trial] == [0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2]
    assert not slot.faults


def test_a_turned_matrix_is_used_again_and_written_over_only_where_nobody_reads_it(
    kernels: Recurrence,
) -> None:
    layer = nn.GRU(6, 8)
    (site,), _ = kernels.find(layer)
    assert kernels.native is not None
    turned = Turned(load(kernels.native.build()), parse(site))
    groups = grouped(current(layer), True)
    first = turned.of(1, groups)
    assert turned.of(1, groups) is first
    kept = first.clone()
    with torch.no_grad():
        layer.weight_hh_l0.zero_()
    second = turned.of(2, groups)
    assert not second.any() and torch.equal(first, kept)
    place = second.data_ptr()
    del second
    with torch.no_grad():
        layer.weight_hh_l0.fill_(3.0)
    third = turned.of(3, groups)
    assert third.data_ptr() == place and third.max() == 3.0


@pytest.mark.parametrize("change", [nn.Module.double, nn.Module.half])
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_the_way_back_reads_the_weights_of_the_way_there(
    tuned: Tuned, kind: Any, change: Callable[[nn.Module], Any]
) -> None:
    layer, twin, _ = tuned(kind)
    x, found = torch.randn(5, 2, 6).requires_grad_(), []
    for one in (layer, twin):
        out = one(x)[0].sum()
        change(one)
        found.append(torch.autograd.grad(out, x))
    assert error_ratio(*found) <= WITHIN


def test_panels_are_packed_over_only_where_nobody_runs_them(kernels: Recurrence) -> None:
    layer = nn.GRU(6, 8)
    assert kernels.native is not None
    net = Net(load(kernels.native.build()), layer, "fp32")
    held = net.fresh()
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2.0)
    other = net.fresh().panels.address
    assert other != held.panels.address
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2.0)
    assert net.fresh().panels.address == other


@pytest.fixture(autouse=True)
def _quiet_threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)
