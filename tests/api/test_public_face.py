import copy
import inspect
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from tuned_models import force, rest, slots, speaker, wait_until, words

import grainshift
from grainshift.api.session import session_of
from grainshift.runtime.compare import relative_error

ROUNDING = 1e-5
BUCKET = "B2.T32"


def answers(model: nn.Module) -> Any:
    with torch.no_grad():
        return model(words())


def innards(model: nn.Module) -> list[dict[str, Any]]:
    return [dict(vars(module)) for module in model.modules()]


def lively(number: int = 2) -> tuple[nn.Module, nn.Module]:
    """A tuned model in which another Choice than stock is live, and its untuned twin."""
    twin = speaker()
    model = grainshift.tune(speaker())
    rest(session_of(model))
    answers(model)
    forced = force(model, BUCKET, number)
    for slot in slots(model).values():
        slot.drain()
    assert len(forced) == 2 and all(slot.live(BUCKET) == number for slot in slots(model).values())
    return model, twin


def test_tune_gives_the_same_model_with_the_same_face() -> None:
    model, twin = speaker(), speaker()
    tuned = grainshift.tune(model)
    assert tuned is model and type(tuned) is type(twin)
    assert list(tuned.state_dict()) == list(twin.state_dict())
    assert [n for n, _ in tuned.named_parameters()] == [n for n, _ in twin.named_parameters()]
    assert [n for n, _ in tuned.named_modules()] == [n for n, _ in twin.named_modules()]
    assert inspect.signature(tuned.forward) == inspect.signature(twin.forward)
    assert inspect.signature(tuned.gru.forward) == inspect.signature(twin.gru.forward)
    assert str(tuned) == str(twin)
    assert relative_error(answers(tuned), answers(twin)) == 0.0
    scaled = tuned(words=words(), scale=3.0)
    assert relative_error(scaled["logits"], 3.0 * answers(twin)["logits"]) < ROUNDING


@pytest.mark.parametrize("number", range(1, 15))
def test_whatever_is_live_the_numbers_are_right(number: int) -> None:
    model, twin = lively(number)
    assert relative_error(answers(model), answers(twin)) < ROUNDING
    runs = [sample.readings for slot in slots(model).values() for sample in slot.drain()]
    assert {reading.arm for readings in runs for reading in readings} == {number}


def test_a_compiled_model_is_one_graph_and_goes_on_being_tuned() -> None:
    model, twin = lively()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert relative_error(compiled(words()), answers(twin)) < ROUNDING
    runs = [sample.readings for slot in slots(model).values() for sample in slot.drain()]
    assert [reading.arm for readings in runs for reading in readings] == [2, 2, 2]


def test_untune_gives_everything_back() -> None:
    model = speaker()
    before = innards(model)
    grainshift.tune(model)
    answers(model)
    assert grainshift.untune(model) is model
    after = innards(model)
    assert [list(one) for one in before] == [list(one) for one in after]
    assert all(
        one[name] is other[name]
        for one, other in zip(before, after, strict=True)
        for name in one
        if name not in ("_flat_weights", "_flat_weight_refs")
    )
    assert grainshift.untune(model) is model
    assert relative_error(answers(model), answers(speaker())) == 0.0


def test_tuning_twice_is_tuning_once() -> None:
    model = speaker()
    before = innards(model)
    for _ in range(3):
        grainshift.tune(model)
    first = session_of(model)
    assert len(slots(model)) == 2
    assert relative_error(answers(model), answers(speaker())) == 0.0
    assert grainshift.tune(model, policy="bandit") is model and session_of(model) is not first
    answers(model)
    grainshift.untune(model)
    assert [list(one) for one in innards(model)] == [list(one) for one in before]


def test_a_part_of_a_tuned_model_is_left_to_the_one_that_has_it() -> None:
    model = grainshift.tune(speaker())
    part = grainshift.tune(model.gru)
    assert dict(grainshift.report(part).untouched)[""].startswith("GRU runs a forward of its own")
    assert relative_error(answers(model), answers(speaker())) == 0.0
    grainshift.untune(part)
    grainshift.untune(model)
    assert "forward" not in vars(model.gru)


@pytest.mark.parametrize("training", [False, True])
def test_train_and_eval(training: bool) -> None:
    model, twin = lively()
    outs = []
    for one in (model, twin):
        one.train(training)
        torch.manual_seed(3)
        outs.append((answers(one), copy.deepcopy(dict(one.named_buffers()))))
    assert relative_error(outs[0][0], outs[1][0]) < ROUNDING
    assert relative_error(outs[0][1], outs[1][1]) < ROUNDING
    assert model.gru.training is training


def gradients(model: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(3)
    model(batch)["logits"].square().sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_gradients_are_those_of_stock() -> None:
    model, twin = (one.train() for one in lively())
    mine, stock = gradients(model, words()), gradients(twin, words())
    assert list(mine) == list(stock) and len(mine) == len(list(twin.parameters()))
    # The GRU is used twice: the gradients of each call are added up before they meet.
    assert relative_error(mine, stock) < ROUNDING


def test_training_steps_are_those_of_stock_and_the_answers_follow() -> None:
    model, twin = lively()
    for one in (model, twin):
        optimizer = torch.optim.SGD(one.parameters(), 1e-3)
        for step in range(3):
            one.train()
            gradients(one, words(step))
            optimizer.step()
            one.eval()
            answers(one)  # between steps, so that a Choice meets changed weights
    assert relative_error(model.state_dict(), twin.state_dict()) < ROUNDING
    assert relative_error(answers(model), answers(twin)) < ROUNDING


@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.inference_mode,
        torch.enable_grad,
        lambda: torch.autocast("cpu", torch.bfloat16),
    ],
)
def test_modes(mode: Callable[[], Any]) -> None:
    model, twin = lively()
    outs = []
    for one in (model, twin):
        with mode():
            outs.append(one(words()))
    assert relative_error(outs[0], outs[1]) < ROUNDING
    for mine, stock in zip(outs[0].values(), outs[1].values(), strict=True):
        assert mine.dtype is stock.dtype and mine.requires_grad == stock.requires_grad
        assert mine.is_inference() == stock.is_inference()


def test_a_loaded_state_dict_counts_at_once() -> None:
    model, _ = lively(10)
    assert str(force(model, BUCKET, 10)["recurrence:gru"]).endswith("packed)")
    other = speaker(seed=9)
    assert relative_error(answers(model), answers(other)) > 1e-2
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    assert model.load_state_dict(torch.load(file)) == nn.Module.load_state_dict(
        other, other.state_dict()
    )
    assert relative_error(answers(model), answers(other)) < ROUNDING


def test_a_saved_state_dict_is_that_of_stock() -> None:
    model, twin = lively()
    files = [io.BytesIO(), io.BytesIO()]
    for one, file in zip((model, twin), files, strict=True):
        torch.save(one.state_dict(), file)
        file.seek(0)
    assert relative_error(*(torch.load(file) for file in files)) == 0.0


def reloaded(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), reloaded]
)
def test_copies_are_untuned_and_can_be_tuned(way: Callable[[nn.Module], Any]) -> None:
    model, twin = lively()
    double = way(model)
    assert all("forward" not in vars(module) for module in double.modules())
    with pytest.raises(grainshift.NotTunable, match="is not tuned"):
        grainshift.report(double)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert relative_error(answers(double), answers(twin)) == 0.0
    assert session_of(grainshift.tune(double)) is not session_of(model)
    assert relative_error(answers(double), answers(twin)) == 0.0
    assert "forward" in vars(model.gru)


def test_a_pickle_of_a_tuned_model_is_read_where_there_is_no_grainshift() -> None:
    model = grainshift.tune(nn.Sequential(nn.GRU(4, 4), nn.LSTM(4, 4)))
    assert b"grainshift." not in pickle.dumps(model)
    assert b"grainshift." not in pickle.dumps(grainshift.tune(nn.GRU(4, 4)))


def test_a_shallow_copy_has_no_say_over_the_model_it_was_made_of() -> None:
    model = grainshift.tune(speaker())
    twin = copy.copy(model)
    with pytest.raises(grainshift.NotTunable, match="not tuned"):
        grainshift.report(twin)
    grainshift.untune(twin)
    answers(model)
    wait_until(lambda: grainshift.report(model).lines)


def test_ddp_around_a_tuned_model_and_inside_one(tmp_path: Any) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        model, twin = lively()
        wrapped = nn.parallel.DistributedDataParallel(model.train())
        assert (
            relative_error(gradients(wrapped.module, words()), gradients(twin.train(), words()))
            < ROUNDING
        )
        for one in (wrapped, twin):
            one.zero_grad()
            torch.manual_seed(3)
            one(words())["logits"].square().sum().backward()
        mine = {name: p.grad for name, p in model.named_parameters()}
        assert relative_error(mine, {n: p.grad for n, p in twin.named_parameters()}) < 1e-6
        assert relative_error(answers(wrapped.eval()), answers(twin.eval())) < ROUNDING
        outer = grainshift.tune(nn.parallel.DistributedDataParallel(speaker()))
        assert len(slots(outer)) == 2
        assert relative_error(answers(outer), answers(speaker())) == 0.0
        assert all(n.startswith("module.") for n in grainshift.untune(outer).state_dict())
    finally:
        torch.distributed.destroy_process_group()


def test_changing_the_model_by_to_and_half_goes_on_right() -> None:
    model, twin = lively(10)
    for change in (nn.Module.double, nn.Module.bfloat16, nn.Module.float):
        change(model), change(twin)
        assert relative_error(answers(model), answers(twin)) < 1e-4


def test_shapes_that_change_from_call_to_call() -> None:
    model, twin = lively()
    for batch, steps in ((1, 1), (3, 50), (2, 20), (7, 2), (1, 129), (2, 20)):
        with torch.no_grad():
            outs = [one(words(5, batch, steps)) for one in (model, twin)]
        assert relative_error(*outs) < ROUNDING


def test_a_wrong_input_raises_what_stock_raises() -> None:
    model, twin = lively()
    for bad in (torch.zeros(2, 3, 4, dtype=torch.long), torch.full((2, 20), 99), None, "text"):
        said = []
        for one in (model, twin):
            with torch.no_grad(), pytest.raises(Exception) as caught:
                one(bad)
            said.append((type(caught.value), str(caught.value)))
        assert said[0] == said[1]
    with torch.no_grad():
        layers = []
        for one in (model, twin):
            with pytest.raises(RuntimeError) as layer_fault:
                one.gru(torch.zeros(2, 20, 7))
            layers.append(str(layer_fault.value))
        assert layers[0] == layers[1]
    assert relative_error(answers(model), answers(twin)) < ROUNDING


def test_a_model_without_a_site_runs_as_it_was_and_says_why() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    wanted = model(torch.ones(3))
    tuned = grainshift.tune(model)
    assert tuned is model and torch.equal(tuned(torch.ones(3)), wanted)
    told = grainshift.report(model)
    assert told.settled and not told.lines
    said = "There is nothing to tune: recurrence found no Site in this Sequential."
    assert said in told.notes and said in str(told)
    assert grainshift.settle(model, torch.ones(3), timeout=1e6)  # at once
    assert grainshift.settle(model, timeout=1e6)
    grainshift.freeze(model)
    assert list(grainshift.untune(model).state_dict()) == ["0.weight", "0.bias"]


def test_places_that_cannot_be_tuned_are_named_with_their_reason() -> None:
    model = nn.ModuleDict(
        {
            "cell": nn.GRUCell(2, 3),
            "twofold": nn.GRU(2, 3).double(),
        }
    )
    told = grainshift.report(grainshift.tune(model))
    reasons = dict(told.untouched)
    assert "a cell is stepped by the model's own loop" in reasons["cell"]
    assert "torch.float64" in reasons["twofold"]
    for path, reason in reasons.items():
        assert f"{path}: left as it is: {reason}" in " ".join(str(told).split())
    assert "There is nothing to tune" in str(told)


def test_a_report_before_the_first_call_says_so_and_is_not_settled() -> None:
    model = grainshift.tune(speaker())
    told = grainshift.report(model)
    assert not told.settled and not told.lines
    assert "No Site was called yet" in str(told) and "Still exploring." in str(told)
    assert not grainshift.settle(model, timeout=0)
    grainshift.freeze(model)
    assert grainshift.settle(model, timeout=30)  # nothing will be explored any more


def test_scripting_a_tuned_model_gives_an_untuned_right_one() -> None:
    torch.manual_seed(0)
    layer = nn.Sequential(nn.LSTM(3, 4))
    x = torch.randn(5, 2, 3)
    with torch.no_grad():
        wanted = layer(x)
        scripted = torch.jit.script(grainshift.tune(layer))
        assert relative_error(scripted(x), wanted) < ROUNDING
