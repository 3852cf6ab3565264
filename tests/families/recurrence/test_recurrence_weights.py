import copy
import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recurrence_doors import KINDS, choices, error_ratio, runner, tuned
from torch import nn

from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import STOCK, rolled, unrolled
from grainshift.families.recurrence.offer import can_pack

PICKED = [
    unrolled(4),
    unrolled(4, "operators"),
    *([rolled("packed"), unrolled(4, "packed")] if can_pack() else []),
]


def _in_place(layer: nn.RNNBase) -> None:
    with torch.no_grad():
        layer.weight_hh_l0.mul_(-0.5)


def _optimizer(layer: nn.RNNBase) -> None:
    for weight in layer.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.AdamW(layer.parameters(), lr=0.1).step()


def _load(layer: nn.RNNBase) -> None:
    layer.load_state_dict({k: v.neg() for k, v in layer.state_dict().items()})


def _assign(layer: nn.RNNBase) -> None:
    layer.load_state_dict({k: v.neg() for k, v in layer.state_dict().items()}, assign=True)


def _data_copy(layer: nn.RNNBase) -> None:
    layer.weight_ih_l0.data.copy_(torch.randn_like(layer.weight_ih_l0))


def _data_row(layer: nn.RNNBase) -> None:
    layer.weight_hh_l0.data[17] += 0.5  # one row, no version


def _data_column(layer: nn.RNNBase) -> None:
    layer.weight_hh_l0.data[:, 5] += 0.5


def _numpy(layer: nn.RNNBase) -> None:
    layer.weight_hh_l0.detach().numpy()[:] *= 0.5


def _data_new(layer: nn.RNNBase) -> None:
    layer.weight_hh_l0.data = layer.weight_hh_l0.data.neg()


def _replace(layer: nn.RNNBase) -> None:
    layer.weight_hh_l0 = nn.Parameter(layer.weight_hh_l0.detach().neg())


def _bias(layer: nn.RNNBase) -> None:
    layer.bias_hh_l0.data.fill_(0.3)


def _there_and_back(layer: nn.RNNBase) -> None:
    layer.double()
    _in_place(layer)
    layer.float()


def _transposed(layer: nn.RNNBase) -> None:
    layer.weight_hh_l0 = nn.Parameter(layer.weight_hh_l0.detach().t().contiguous().t().neg())


def _data_strides(layer: nn.RNNBase) -> None:
    layer.bias_hh_l0.data = layer.bias_hh_l0.data[:1].expand(layer.bias_hh_l0.shape)


UPDATES: list[Callable[[Any], None]] = [
    _in_place,
    _optimizer,
    _load,
    _assign,
    _data_copy,
    _data_row,
    _data_column,
    _numpy,
    _data_new,
    _replace,
    _bias,
    _there_and_back,
    _transposed,
    _data_strides,
]


@pytest.mark.parametrize("choice", PICKED, ids=str)
@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_changed_weights_are_used_at_once(
    kernels: Recurrence, kind: Any, update: Any, choice: Any
) -> None:
    layer = kind(24, 32)
    x = torch.randn(6, 2, 24)
    door, _ = tuned(layer, choice, family=kernels)
    with torch.no_grad():
        before = layer(x)
    update(layer)
    with torch.no_grad():
        wanted = type(layer).forward(layer, x)
        assert error_ratio(before, wanted) > 1e-3  # the update is one that can be seen
        assert error_ratio(layer(x), wanted) <= 1e-5
        assert error_ratio(layer(x), wanted) <= 1e-5
    assert len(door.seen) == 3


@pytest.mark.parametrize("choice", PICKED, ids=str)
def test_weights_swapped_for_one_call_by_functional_call(kernels: Recurrence, choice: Any) -> None:
    layer = nn.GRU(8, 8)
    x = torch.randn(6, 2, 8)
    other = {name: value.detach().neg() for name, value in layer.named_parameters()}
    with torch.no_grad():
        before = layer(x)
        wanted = torch.func.functional_call(layer, other, (x,))
        tuned(layer, choice, family=kernels)
        assert error_ratio(torch.func.functional_call(layer, other, (x,)), wanted) <= 1e-5
        assert error_ratio(layer(x), before) <= 1e-5


@pytest.mark.parametrize("choice", PICKED, ids=str)
def test_old_weight_norm(kernels: Recurrence, choice: Any) -> None:
    with pytest.warns(FutureWarning):
        layer = torch.nn.utils.weight_norm(nn.GRU(8, 8), "weight_hh_l0")
    x = torch.randn(6, 2, 8)
    tuned(layer, choice, family=kernels)
    for _ in range(2):
        with torch.no_grad():
            got = layer(x)  # its hook has now set the weight of this call
            assert error_ratio(got, nn.GRU.forward(layer, x)) <= 1e-5
            layer.weight_hh_l0_g.mul_(2.0)


@pytest.mark.parametrize("word", ["packed", ""])
def test_the_choices_of_a_layer_share_one_packed_copy_which_goes_with_them(
    kernels: Recurrence, word: str
) -> None:
    layer = nn.GRU(8, 8)
    (site,), _ = kernels.find(layer)
    words = (word,) if word else ()
    first = kernels.build(layer, site, "B1.T8", unrolled(2, *words), "")
    kernels.build(layer, site, "B1.T8", unrolled(8, *words), "")
    kept = kernels._shared[layer]
    assert len(kept) == 1
    assert first.held_bytes >= 4 * (24 * 8 + 24 * 8)
    del first
    gc.collect()
    assert not kept


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_past_all_counters_is_seen_within_a_few_calls(
    kernels: Recurrence, kind: Any
) -> None:
    layer = kind(64, 512)  # too large for every row to be sampled in one call
    x = torch.randn(1, 1, 64)
    tuned(layer, rolled(), family=kernels)
    with torch.inference_mode():
        layer(x)
        layer.weight_hh_l0.data[300] += 0.5
        state = torch.ones(1, 1, 512)
        state = (state, state) if kind is nn.LSTM else state
        wanted = type(layer).forward(layer, x, state)
        for _ in range(2000):
            if error_ratio(layer(x, state), wanted) <= 1e-5:
                return
    pytest.fail("the write was never seen")


def test_a_choice_runs_on_the_layer_it_was_installed_in_though_another_took_its_place(
    family: Recurrence,
) -> None:
    layer = nn.GRU(6, 8)
    model, twin = nn.Sequential(layer), copy.deepcopy(layer)
    door, undo = tuned(model, STOCK, family=family)
    model[0] = copy.deepcopy(layer)  # as one keeps a target network
    for weight in model[0].parameters():
        nn.init.zeros_(weight)
    x = torch.randn(20, 2, 6)
    with torch.no_grad():
        for choice in choices(family, model)[1:]:
            door.runs = [runner(family, model, choice)]
            assert error_ratio(layer(x), twin(x)) < 1e-4
    undo()
    with torch.no_grad():
        start = torch.zeros(1, 2, 8)
        assert error_ratio(runner(family, model, choice)(x, start), model[0](x)) < 1e-4


def _other_size(layer: nn.RNNBase) -> None:
    layer.weight_ih_l0.data = torch.zeros(1)


def _no_bias(layer: nn.RNNBase) -> None:
    layer.bias_ih_l0.data = torch.zeros(0)


def _as_double(layer: nn.RNNBase) -> None:
    layer.double()


def _nowhere(layer: nn.RNNBase) -> None:
    layer.to("meta")


@pytest.mark.parametrize("change", [_other_size, _no_bias, _as_double, _nowhere])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_the_layers_are_never_read(
    swift: Recurrence, kind: Any, change: Any
) -> None:
    layer, x, h = kind(6, 8), torch.randn(1, 1, 6), torch.zeros(1, 1, 8)
    (site,), _ = swift.find(layer)
    run = runner(swift, layer, rolled())
    state = (h, h) if kind is nn.LSTM else h
    run(x, state)
    change(layer)  # as another thread may do between a call's reading and its run
    with pytest.raises(ValueError, match="weights"):
        run(x, state)
    with pytest.raises(ValueError, match="weights"):  # and before a Choice is built
        swift.build(layer, site, "B1.T1", unrolled(4), "")


@pytest.mark.parametrize("kind", KINDS)
def test_weights_deleted_under_a_call_end_it_without_a_crash(swift: Recurrence, kind: Any) -> None:
    layer, x, h = kind(6, 8), torch.randn(1, 1, 6), torch.zeros(1, 1, 8)
    run = runner(swift, layer, rolled())
    state = (h, h) if kind is nn.LSTM else h
    run(x, state)
    layer._flat_weights[0] = None  # what PyTorch writes where a parameter is gone
    del layer._parameters["weight_ih_l0"]
    with pytest.raises(AttributeError):
        run(x, state)


MEMORY = """
import resource, sys
from pathlib import Path
import torch
from torch import nn
from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import unrolled
torch.set_grad_enabled(False)
family, layer = Recurrence(kernels=Path(sys.argv[1])), nn.RNN(1, 64, num_layers=2)
(site,), _ = family.find(layer)
run = family.build(layer, site, "B256.T2000", unrolled(4, "solo"), "").run
held = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
run(torch.zeros(2, 1, 1), torch.zeros(2, 1, 64))
before_bytes = held()
run(torch.zeros(2000, 256, 1), torch.zeros(2, 256, 64))
print((held() - before_bytes) >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells what is held")
def test_the_scratch_of_a_large_call_is_given_back(kernels: Recurrence) -> None:
    script = [sys.executable, "-c", MEMORY, str(kernels.kernels)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 50  # of the 125 MiB that went from layer to layer


AT_EXIT = """
import atexit, sys
from pathlib import Path
late = []
atexit.register(lambda: print(late[0]()))  # handlers run last in, first out

import torch
from torch import nn
from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import rolled
family, layer, x = Recurrence(kernels=Path(sys.argv[1])), nn.GRU(64, 64), torch.ones(8, 2, 64)
torch.set_grad_enabled(False)
(site,), _ = family.find(layer)
run = family.build(layer, site, "B2.T8", rolled("solo"), "").run
wanted, state = layer(x)
late.append(lambda: torch.allclose(run(x, torch.zeros_like(state))[0], wanted, atol=1e-5))
"""


def test_kernels_run_right_up_to_the_end_of_the_process(kernels: Recurrence) -> None:
    script = [sys.executable, "-c", AT_EXIT, str(kernels.kernels)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
