import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import torch._dynamo
from hypothesis import given, settings
from hypothesis import strategies as some
from recurrence_doors import KINDS, Door, error_ratio, flat, same_bits, tuned
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from grainshift.families.recurrence import FAMILY
from grainshift.families.recurrence.operator import (
    recurrent,
    recurrent_backward,
    recurrent_kept,
)

NOBODY = 0  # the number of no layer


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def told(layer: nn.RNNBase, site: int = NOBODY) -> tuple[Any, ...]:
    form = (layer.mode, layer.bias, layer.num_layers, layer.bidirectional, layer.batch_first)
    return list(layer.parameters()), *form, site


def site_of(layer: nn.Module) -> int:
    number: int = vars(layer)["forward"].site
    return number


def parts_of(state: Any) -> tuple[Any, Any]:
    return state if isinstance(state, tuple) else (state, None)


@some.composite
def calls(draw: Any) -> tuple[nn.RNNBase, Tensor, Any]:
    """A layer of any form, an input and an initial state or none."""
    kind, flag = draw(some.sampled_from(KINDS)), some.booleans()
    form = {name: draw(flag) for name in ("bias", "batch_first", "bidirectional")}
    form |= {"nonlinearity": draw(some.sampled_from(("tanh", "relu")))} if kind is nn.RNN else {}
    layer = kind(3, 4, draw(some.integers(1, 3)), **form)
    steps, batch = draw(some.integers(1, 6)), draw(some.integers(0, 3))
    sizes = (batch,) if draw(flag) else ()
    x = torch.randn(*((*sizes, steps) if layer.batch_first else (steps, *sizes)), 3)
    rows = layer.num_layers * (1 + layer.bidirectional)
    parts = tuple(torch.randn(2 if kind is nn.LSTM else 1, rows, *sizes, 4))
    return layer, x, draw(some.sampled_from((None, parts if kind is nn.LSTM else parts[0])))


@given(calls())
@settings(max_examples=60, deadline=None)
def test_the_operator_is_the_layer(call: Any) -> None:
    layer, x, state = call
    got = recurrent(x, *parts_of(state), *told(layer))
    wanted = flat(layer(x, state))
    if x.numel():
        assert error_ratio(got, wanted) <= 1e-5
    fake = FakeTensorMode()
    with fake:
        weights, *form = told(layer)
        given = (x, *parts_of(state), *weights)
        fakes = [None if part is None else fake.from_tensor(part) for part in given]
        faked = recurrent(*fakes[:3], fakes[3:], *form)
    assert [(p.shape, p.dtype) for p in faked] == [(p.shape, p.dtype) for p in got]
    if x.numel():
        assert [part.stride() for part in faked] == [part.stride() for part in got]


@given(calls())
@settings(max_examples=40, deadline=None)
def test_the_gradients_are_those_of_the_layer(call: Any) -> None:
    layer, x, state = call
    inputs = [x, *([] if state is None else flat(state))]
    leaves = [*(tensor.requires_grad_() for tensor in inputs), *layer.parameters()]
    weighs = [torch.randn_like(part) for part in flat(layer(x, state))]
    wanted = torch.autograd.grad(flat(layer(x, state)), leaves, weighs)
    for operator in (recurrent, recurrent_kept):
        answer = operator(x, *parts_of(state), *told(layer))[: len(weighs)]
        got = torch.autograd.grad(answer, leaves, weighs)
        if x.numel():
            assert error_ratio(list(got), list(wanted)) <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [{}, {"batch_first": True, "bidirectional": True}])
@pytest.mark.parametrize("grad", [False, True])
def test_pytorch_finds_nothing_wrong_with_the_operators(
    kind: Any, form: dict[str, Any], grad: bool
) -> None:
    layer = kind(3, 4, **form).requires_grad_(grad)
    x = torch.randn((2, 5, 3) if layer.batch_first else (5, 2, 3), requires_grad=grad)
    rows = 1 + layer.bidirectional
    c = torch.randn(rows, 2, 4, requires_grad=grad) if kind is nn.LSTM else None
    weights, *form = told(layer)
    for h in (None, torch.randn(rows, 2, 4)):
        state = (h, None if h is None else c)
        torch.library.opcheck(recurrent, (x, *state, weights, *form))
        torch.library.opcheck(recurrent_kept, (x, *state, weights, *form))
        grads = [torch.randn_like(part) for part in recurrent(x, *state, weights, *form)]
        plain = [None if part is None else part.detach() for part in (x, *state, *weights)]
        wanted = [number % 2 == 0 and part is not None for number, part in enumerate(plain)]
        given = (grads, None, *plain[:3], plain[3:], *form, wanted)
        torch.library.opcheck(recurrent_backward, given)


def test_the_forward_pass_of_a_training_step_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, ran = nn.GRU(3, 4), torch.randn(5, 2, 3), []
    stock = torch._VF.gru

    def count(*args: Any) -> Any:
        ran.append(args)
        return stock(*args)

    tuned(layer)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    monkeypatch.setattr(torch._VF, "gru", count)
    for number in range(1, 4):
        compiled(x)[0].sum().backward()
        assert len(ran) == number


def test_a_tape_ends_with_the_step_it_was_made_for() -> None:
    layer, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
    answer = recurrent_kept(x, None, None, *told(layer))
    kept = weakref.ref(answer[-1].grainshift[1][0])
    loss = answer[0].square().sum()
    del answer
    gc.collect()
    assert kept() is not None
    loss.backward()
    del loss
    gc.collect()
    assert kept() is None


def test_a_step_that_overwrites_its_answers_has_the_right_gradients() -> None:
    layer, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    weights = list(layer.parameters())
    wanted = torch.autograd.grad(layer(x)[0].sum(), weights)
    answer = recurrent_kept(x, None, None, *told(layer))
    loss = answer[0].sum()
    for part in answer[:3]:
        part.data.zero_()  # as a compiler does that uses memory again
    assert error_ratio(torch.autograd.grad(loss, weights), wanted) <= 1e-5


class Onlooker(TorchDispatchMode):
    """Sees every operator, and lets it run."""

    def __torch_dispatch__(self, run: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_right_while_somebody_looks_on(kind: Any) -> None:
    layer, x = kind(3, 4, bidirectional=True), torch.randn(5, 2, 3)
    weights = list(layer.parameters())
    wanted = torch.autograd.grad(layer(x)[0].square().sum(), weights)
    with Onlooker():
        for operator in (recurrent, recurrent_kept):
            loss = operator(x, None, None, *told(layer))[0].square().sum()
            assert error_ratio(torch.autograd.grad(loss, weights), wanted) <= 1e-5


@pytest.mark.parametrize("kind", (nn.GRU, nn.RNN))
def test_first_and_second_derivatives_in_double(kind: Any) -> None:
    layer = kind(2, 3).double()
    weights, *form = told(layer)
    x, h = (torch.randn(*size).double().requires_grad_() for size in ((3, 2, 2), (1, 2, 3)))

    def run(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(recurrent(x, h, None, list(weights), *form))

    assert torch.autograd.gradcheck(run, (x, h, *weights))
    assert torch.autograd.gradgradcheck(run, (x, h, *weights))


def test_answers_that_share_storage_are_taken_apart() -> None:
    layer = nn.GRU(6, 8)
    FAMILY.install(layer, FAMILY.find(layer)[0][0], Door([lambda x, h: (h, h[:1])]))
    x, h = torch.randn(1, 2, 6), torch.randn(1, 2, 8)
    y, after = recurrent(x, h, None, *told(layer, site_of(layer)))
    assert same_bits([y, after], [h, h])
    assert len({part.data_ptr() for part in (y, after, h)}) == 3


def stood_in(layer: nn.RNNBase) -> list[Tensor]:
    return [weight.detach().clone() for weight in layer.parameters()]


def turned(layer: nn.RNNBase) -> list[Tensor]:
    """The layer's own memory, read in another order."""
    return [weight.t() if weight.dim() == 2 else weight for weight in layer.parameters()]


@pytest.mark.parametrize("other", [stood_in, turned])
def test_weights_that_are_not_the_layers_own_are_the_ones_that_count(other: Any) -> None:
    layer, x = nn.RNN(6, 6), torch.randn(5, 2, 6)
    door, _ = tuned(layer)
    _, *form = told(layer, site_of(layer))
    weights = other(layer)
    with torch.no_grad():
        wanted = recurrent(x, None, None, weights, *form[:-1], NOBODY)
        assert same_bits(recurrent(x, None, None, weights, *form), wanted)
    assert door.seen == []


def test_a_layer_that_changed_is_not_asked() -> None:
    layer, x = nn.LSTM(6, 8, num_layers=2, dropout=0.5).eval(), torch.randn(5, 2, 6)
    door, _ = tuned(layer)
    given = told(layer, site_of(layer))
    wanted = recurrent(x, None, None, *given)
    assert len(door.seen) == 1
    layer.train()  # now it would drop, and what was captured does not
    assert error_ratio(recurrent(x, None, None, *given), wanted) <= 1e-5
    layer.eval().batch_first = True
    assert error_ratio(recurrent(x, None, None, *given), wanted) <= 1e-5
    assert len(door.seen) == 1


def test_a_program_finds_its_layer_again_after_it_was_tuned_anew() -> None:
    layer, x = nn.GRU(6, 8), torch.randn(5, 2, 6)
    first, undo = tuned(layer)
    program = torch.export.export(layer, (x,)).module()
    undo()
    wanted = layer(x)
    assert same_bits(program(x), wanted)
    assert first.seen == []
    second, undo = tuned(layer)
    assert error_ratio(program(x), wanted) <= 1e-5
    assert len(second.seen) == 1
    undo()
    undo()
    assert same_bits(program(x), wanted)


def test_what_was_compiled_follows_tuning_and_untuning() -> None:
    layer, x = nn.GRU(6, 8), torch.randn(5, 2, 6)
    compiled = torch.compile(layer, backend="eager")
    with torch.no_grad():
        wanted = compiled(x)
        for _ in range(2):
            door, undo = tuned(layer)
            assert error_ratio(compiled(x), wanted) <= 1e-5
            assert len(door.seen) == 1
            undo()
            assert same_bits(compiled(x), wanted)
            assert len(door.seen) == 1


def test_a_tuned_layer_is_not_kept_alive_and_leaves_nothing_behind() -> None:
    from torch._dynamo.variables.builder import VariableBuilder

    layer = nn.GRU(6, 8)
    tuned(layer)
    known, number = weakref.ref(layer), id(layer)
    assert number in VariableBuilder._id_dispatch()
    del layer
    gc.collect()
    assert known() is None
    assert number not in VariableBuilder._id_dispatch()


def test_an_untuned_layer_breaks_the_graph_as_it_always_did() -> None:
    model, x = nn.Sequential(nn.GRU(6, 8)), torch.randn(5, 2, 6)
    _, undo = tuned(model)
    torch.compile(model, backend="eager", fullgraph=True)(x)
    assert not torch._dynamo.config.allow_rnn
    undo()
    for untuned in (model, nn.Sequential(nn.GRU(6, 8))):
        with pytest.raises(torch._dynamo.exc.Unsupported, match="RNN, GRU, or LSTM"):
            torch.compile(untuned, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("kind", KINDS)
def test_make_fx_has_one_node_and_the_graph_can_be_run(kind: Any) -> None:
    layer, x = kind(6, 8), torch.randn(5, 2, 6)
    door, _ = tuned(layer)
    for mode in ("real", "fake", "symbolic"):
        with torch.no_grad():
            graph = make_fx(lambda x: layer(x)[0], tracing_mode=mode, _allow_non_fake_inputs=True)(
                x
            )
            targets = [node.target for node in graph.graph.nodes if "grain" in str(node.target)]
            assert targets == [torch.ops.grainshift.recurrent.default]
            assert error_ratio(graph(x), layer(x)[0]) <= 1e-5
    assert door.seen


def _drops(kind: Any) -> tuple[nn.Module, Any]:
    layer = kind(6, 8, num_layers=2, dropout=0.5).train()
    return layer, lambda: layer(torch.ones(5, 2, 6))


def _packs(kind: Any) -> tuple[nn.Module, Any]:
    layer = kind(6, 8)
    return layer, lambda: layer(pack_padded_sequence(torch.ones(5, 2, 6), [5, 3]))[0].data


def _casts(kind: Any) -> tuple[nn.Module, Any]:
    layer = kind(6, 8)

    def run() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(torch.ones(5, 2, 6))

    return layer, run


def _doubles(kind: Any) -> tuple[nn.Module, Any]:
    layer = kind(6, 8)
    return layer, lambda: layer.double()(torch.ones(5, 2, 6).double())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [_drops, _packs, _casts, _doubles])
def test_what_the_operator_does_not_cover_runs_as_pytorch_has_it(kind: Any, way: Any) -> None:
    layer, run = way(kind)
    before = copy.deepcopy(layer.state_dict())
    door, _ = tuned(layer)
    answers = []
    for call in (torch.compile(run, backend="eager"), run):
        layer.load_state_dict(before)
        torch.manual_seed(3)
        answers.append(call())
    assert same_bits(*answers)
    assert door.seen == []
