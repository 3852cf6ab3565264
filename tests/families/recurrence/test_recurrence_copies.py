import copy
import io
import pickle
from typing import Any

import pytest
import torch
from recurrence_doors import KINDS, same_bits, tuned
from torch import nn

from grainshift.families.recurrence import FAMILY
from grainshift.families.recurrence.choice import STOCK


def _saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


def _pickled(model: nn.Module) -> nn.Module:
    loaded: nn.Module = pickle.loads(pickle.dumps(model))
    return loaded


def _twice(model: nn.Module) -> nn.Module:
    return copy.deepcopy(_saved(copy.deepcopy(model)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("way", [copy.deepcopy, _pickled, _saved, _twice])
def test_a_copy_is_untuned_right_and_independent(kind: Any, wrapped: bool, way: Any) -> None:
    layer = kind(6, 8)
    model = nn.Sequential(layer) if wrapped else layer
    x = torch.randn(5, 2, 6)
    with torch.no_grad():
        wanted = model(x)
        door, _ = tuned(model)
        twin = way(model)
        inner = twin[0] if wrapped else twin
        for weight in layer.parameters():
            weight.zero_()
        assert same_bits(twin(x), wanted)
    assert door.seen == []
    assert "forward" not in vars(inner)
    assert "__getstate__" not in vars(inner)
    assert len(FAMILY.find(twin)[0]) == 1
    tuned(twin)


def test_a_shallow_copy_is_untuned_and_answers_for_itself() -> None:
    layer = nn.GRU(6, 8)
    door, _ = tuned(layer)
    twin = copy.copy(layer)
    twin.batch_first = True
    x = torch.randn(5, 2, 6)
    with torch.no_grad():
        assert twin(x)[1].shape == (1, 5, 8)
    assert door.seen == []


def test_the_entry_itself_copies_to_an_untuned_forward() -> None:
    layer = nn.GRU(6, 8)
    tuned(layer)
    forward = copy.deepcopy(layer.forward)
    assert forward.__func__ is nn.GRU.forward
    assert forward.__self__ is not layer


def test_undoing_restores_the_layer() -> None:
    layer = nn.GRU(6, 8)
    x = torch.randn(5, 2, 6)
    with torch.no_grad():
        wanted = layer(x)
        before = dict(vars(layer))
        door, undo = tuned(layer, STOCK)
        layer(x)
        undo()
        undo()
        assert same_bits(layer(x), wanted)
    assert vars(layer).keys() == before.keys()
    assert len(door.seen) == 1


def test_undoing_an_older_entry_leaves_the_newer_one() -> None:
    layer = nn.GRU(6, 8)
    _, undo = tuned(layer, STOCK)
    first = vars(layer).pop("forward")
    door, _ = tuned(layer, STOCK)
    undo()
    assert vars(layer)["forward"] is not first
    with torch.no_grad():
        layer(torch.randn(5, 2, 6))
    assert len(door.seen) == 1
