import copy
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from recurrence_doors import KINDS, choices, error_ratio, flat, same_bits, tuned
from torch import Tensor, nn

from grainshift.families.recurrence import FAMILY, Recurrence
from grainshift.families.recurrence.choice import OPERATORS, unrolled


def _outcome(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return [tensor.tolist() for tensor in flat(call(*args, **kwargs))]
    except Exception as error:  # noqa: BLE001 the error is what is compared
        return type(error), str(error)


HOSTILE: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((None,), {}),
    (("text",), {}),
    ((torch.randn(4),), {}),
    ((torch.randn(1, 2, 3, 4),), {}),
    ((torch.randn(5, 2, 7),), {}),
    ((torch.randn(0, 2, 6),), {}),
    ((torch.randn(5, 0, 6),), {}),
    ((torch.randn(5, 2, 6, dtype=torch.float64),), {}),
    ((torch.ones(5, 2, 6, dtype=torch.int64),), {}),
    ((torch.randn(5, 2, 6).to_sparse(),), {}),
    ((torch.randn(5, 2, 6, device="meta"),), {}),
    ((torch.nested.nested_tensor([torch.randn(4, 6), torch.randn(5, 6)]),), {}),
    ((torch.randn(5, 2, 6), torch.randn(1, 3, 8)), {}),
    ((torch.randn(5, 2, 6), torch.randn(2, 8)), {}),
    ((torch.randn(5, 6), torch.randn(1, 1, 8)), {}),
    ((torch.randn(5, 2, 6), (torch.randn(1, 2, 8),) * 2), {}),
    ((torch.randn(5, 2, 6), (torch.randn(1, 2, 8), torch.randn(1, 2, 9))), {}),
    ((torch.randn(5, 2, 6), (torch.randn(1, 2, 8),) * 3), {}),
    ((torch.randn(5, 2, 6), [torch.randn(1, 2, 8)] * 2), {}),
    ((torch.randn(5, 2, 6), torch.randn(1, 2, 8).double()), {}),
    ((torch.randn(5, 2, 6), "state"), {}),
    ((torch.randn(5, 2, 6), None, None), {}),
    ((torch.randn(5, 2, 6),), {"hidden": None}),
    ((torch.randn(5, 2, 6),), {"input": None}),
    ((), {"hx": None}),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_wrong_call_ends_as_it_does_in_pytorch(
    family: Recurrence, kind: Any, number: int
) -> None:
    layer = kind(6, 8)
    args, kwargs = HOSTILE[number]
    wanted = _outcome(layer, args, kwargs)
    for choice in choices(family, layer)[-2:]:
        _, undo = tuned(layer, choice, family=family)
        got = _outcome(layer, args, kwargs)
        undo()
        assert type(got) is type(wanted)
        if isinstance(wanted, tuple):
            assert got == wanted


def test_keywords_reach_the_runner() -> None:
    layer = nn.GRU(6, 8)
    x, h = torch.randn(5, 2, 6), torch.randn(1, 2, 8)
    door, _ = tuned(layer, unrolled(4, OPERATORS))
    with torch.no_grad():
        wanted = layer(x, h)
        assert same_bits(layer(x, hx=h), wanted)
        assert same_bits(layer(input=x, hx=h), wanted)
        layer(input=x)
    assert len(door.seen) == 4


def _autocast(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return layer(x)


def _trains(layer: nn.RNNBase, x: Tensor) -> Any:
    answer = layer(x)
    layer.zero_grad()
    answer[0].sum().backward()
    return answer[0].detach(), layer.weight_hh_l0.grad.clone()


def _input_wants_gradient(layer: nn.RNNBase, x: Tensor) -> Any:
    x = x.clone().requires_grad_()
    for weight in layer.parameters():
        weight.requires_grad_(False)
    layer(x)[0].sum().backward()
    return x.grad


def _negative_view(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch.no_grad():
        return layer(torch._neg_view(x))


def _vmap(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch.no_grad():
        return torch.vmap(lambda part: layer(part)[0], randomness="same")(x[None])


def _jvp(layer: nn.RNNBase, x: Tensor) -> Any:
    return torch.func.jvp(lambda value: layer(value)[0], (x,), (torch.ones_like(x),))


def _trace(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch.no_grad():
        return torch.jit.trace(layer, (x,), check_trace=False)(x)


def _script(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch.no_grad():
        return torch.jit.script(layer)(x)


def _fake(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        return torch.zeros(layer(mode.from_tensor(x))[0].shape)


def _deterministic(layer: nn.RNNBase, x: Tensor) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        with torch.no_grad():
            return layer(x)
    finally:
        torch.use_deterministic_algorithms(False)


def _double(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch.no_grad():
        return layer.double()(x.double())


def _subclass(layer: nn.RNNBase, x: Tensor) -> Any:
    class Own(Tensor):
        pass

    with torch.no_grad():
        return layer(x.as_subclass(Own))[0].as_subclass(Tensor)


class _Watched(nn.Parameter):
    """A weight that wants to see every function it goes through."""

    calls = 0

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        cls.calls += 1
        return super().__torch_function__(*args, **kwargs)


def _watched_weight(layer: nn.RNNBase, x: Tensor) -> Any:
    layer.weight_hh_l0 = _Watched(layer.weight_hh_l0.data)
    _Watched.calls = 0
    with torch.no_grad():
        answer = layer(x)
    assert _Watched.calls
    return torch.tensor(answer[0].tolist())


class _Silent(nn.RNNBase):
    def forward(self, x: Tensor) -> Any:
        return x * 0, None


def _other_class(layer: nn.RNNBase, x: Tensor) -> Any:
    layer.__class__ = _Silent
    with torch.no_grad():
        return layer(x)[0]


def _lazy_sign(layer: nn.RNNBase, x: Tensor) -> Any:
    with torch.no_grad():
        return layer(torch._neg_view(x))


def _lazy_sign_of_state(layer: nn.RNNBase, x: Tensor) -> Any:
    h = torch._neg_view(torch.ones(1, 2, 8))
    with torch.no_grad():
        return layer(x, (h, h) if layer.mode == "LSTM" else h)


def _changed_layer(layer: nn.RNNBase, x: Tensor) -> Any:
    layer.bias = False  # now it disagrees with its weights
    with torch.no_grad():
        return layer(x)


UNUSUAL = [
    _autocast,
    _negative_view,
    _vmap,
    _jvp,
    _trace,
    _script,
    _fake,
    _deterministic,
    _double,
    _subclass,
    _watched_weight,
    _other_class,
    _lazy_sign,
    _lazy_sign_of_state,
    _changed_layer,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [_trains, _input_wants_gradient])
def test_without_kernels_training_goes_to_stock_past_the_door(kind: Any, way: Any) -> None:
    layer, x = kind(6, 8), torch.randn(5, 2, 6)
    twin = copy.deepcopy(layer)
    door, _ = tuned(layer, family=Recurrence())
    assert _outcome(way, (layer, x), {}) == _outcome(way, (twin, x), {})
    assert door.seen == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", UNUSUAL, ids=lambda way: way.__name__)
@pytest.mark.filterwarnings("ignore")
def test_an_unusual_call_goes_to_stock_past_the_door(
    family: Recurrence, kind: Any, way: Any
) -> None:
    layer, x = kind(6, 8), torch.randn(5, 2, 6)
    twin = copy.deepcopy(layer)
    door, _ = tuned(layer, family=family)
    got, wanted = _outcome(way, (layer, x), {}), _outcome(way, (twin, x), {})
    assert got == wanted
    assert door.seen == []


def test_dropout_in_training_goes_to_stock_and_in_evaluation_does_not() -> None:
    layer = nn.LSTM(6, 8, num_layers=2, dropout=0.5)
    x = torch.randn(5, 2, 6)
    door, _ = tuned(layer, unrolled(4, OPERATORS))
    with torch.no_grad():
        torch.manual_seed(3)
        wanted = nn.LSTM.forward(layer, x)
        torch.manual_seed(3)
        assert same_bits(layer(x), wanted)
        assert door.seen == []
        layer.eval()
        assert error_ratio(layer(x), nn.LSTM.forward(layer, x)) <= 1e-5
    assert len(door.seen) == 1


def test_gradients_wanted_of_nothing_go_through_the_door() -> None:
    layer = nn.GRU(6, 8).requires_grad_(False)
    door, _ = tuned(layer, unrolled(4, OPERATORS))
    layer(torch.randn(5, 2, 6))
    assert len(door.seen) == 1


def test_lower_precision_asked_for_goes_to_stock() -> None:
    layer = nn.GRU(6, 8)
    door, _ = tuned(layer)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.no_grad():
            layer(torch.randn(5, 2, 6))
    finally:
        torch.set_float32_matmul_precision(before)
    assert door.seen == []


def test_batch_first_may_change_while_tuned() -> None:
    layer = nn.GRU(6, 8)
    x = torch.randn(3, 5, 6)
    for choice in choices(FAMILY, layer):
        _, undo = tuned(layer, choice)
        for batch_first in (True, False):
            layer.batch_first = batch_first
            with torch.no_grad():
                assert error_ratio(layer(x), nn.GRU.forward(layer, x)) <= 1e-5
        undo()


def test_hooks_and_class_stay() -> None:
    layer = nn.GRU(6, 8)
    keys = list(layer.state_dict())
    seen: list[str] = []
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    layer.register_forward_hook(lambda *_: seen.append("after"))
    tuned(layer, unrolled(4, OPERATORS))
    with torch.no_grad():
        layer(torch.randn(5, 2, 6))
    assert seen == ["before", "after"]
    assert type(layer) is nn.GRU
    assert list(layer.state_dict()) == keys


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_a_layer_while_its_weights_stay(kind: Any) -> None:
    layer = kind(12, 16)
    tuned(layer, draw=random.Random(0))
    xs = [torch.randn(20, 1 + n % 3, 12) for n in range(8)]
    with torch.no_grad():
        wanted = [type(layer).forward(layer, x) for x in xs]
    worst: list[float] = []

    def work(number: int) -> None:
        with torch.no_grad():
            x, answer = xs[number], wanted[number]
            worst.extend(error_ratio(layer(x), answer) for _ in range(40))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 8 * 40
    assert max(worst) <= 1e-5
