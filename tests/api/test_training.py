import copy

import pytest
import torch
from torch import Tensor, nn
from tuned_models import slots

import grainshift

BUCKET = "B2.T32.train"


class Forecaster(nn.Module):
    """A recurrent layer inside other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(5, 8)
        self.layer = nn.GRU(8, 12, batch_first=True)
        self.head = nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(self.inside(x))[0][:, -1])
        return out


def fit(model: nn.Module, steps: int) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(steps):
        x = torch.randn(2, 20, 5, generator=draw)
        optimizer.zero_grad()
        loss = (model(x) - x.sum((1, 2), keepdim=True)[:, 0]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_tuned_model_trains_as_an_untuned_one_and_the_report_has_its_bucket() -> None:
    torch.manual_seed(0)
    model = Forecaster()
    twin = copy.deepcopy(model)
    grainshift.tune(model)
    assert fit(model, 6) == pytest.approx(fit(twin, 6), rel=1e-4)
    assert list(slots(model)) == ["recurrence:layer"]
    slot = slots(model)["recurrence:layer"]
    assert slot.live(BUCKET) >= 0 and not slot.faults
    state = model.state_dict()
    grainshift.untune(model)
    assert all(
        torch.allclose(state[key], value, atol=1e-5) for key, value in twin.state_dict().items()
    )
    assert fit(model, 3) == pytest.approx(fit(twin, 3), rel=1e-4)


def test_evaluation_and_training_have_buckets_of_their_own() -> None:
    model = grainshift.tune(Forecaster())
    fit(model, 2)
    with torch.no_grad():
        model.eval()(torch.randn(2, 20, 5))
    slot = slots(model)["recurrence:layer"]
    assert {BUCKET, BUCKET.removesuffix(".train")} <= {*slot._lanes}
