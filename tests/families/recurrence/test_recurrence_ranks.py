import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from recurrence_doors import error_ratio
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import STOCK, unrolled
from grainshift.runtime.slot import Slot

RANKS, BUCKET = 2, "B2.T8.train"


class Tagger(nn.Module):
    """A recurrent layer and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(6, 8, num_layers=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(x)[0])
        return out


def steps(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def one_rank(rank: int, kernels: Path, folder: Path, x: Tensor) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=60),
    )
    torch.manual_seed(0)
    model = Tagger()
    family = Recurrence(kernels=kernels)
    (site,), _ = family.find(model)
    slot = Slot(site, family.build(model, site, "", STOCK, "").run)
    family.install(model, site, slot)
    model(x[:, rank::RANKS])
    slot.put(BUCKET, 1, family.build(model, site, BUCKET, unrolled(4), "").run)
    slot.swap(BUCKET, 1)
    whole: Any = DistributedDataParallel(model)
    steps(whole, x[:, rank::RANKS])
    assert slot.live(BUCKET) == 1 and not slot.faults
    assert {reading.arm for reading in slot.drain()[0].readings} == {1}
    torch.save([weight.detach() for weight in model.parameters()], folder / f"{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not distributed.is_gloo_available(), reason="this PyTorch has no gloo")
def test_two_ranks_train_as_one_does(kernels: Recurrence, tmp_path: Path) -> None:
    assert kernels.kernels is not None
    torch.manual_seed(1)
    x = torch.randn(5, 4, 6)
    spawn(one_rank, (kernels.kernels, tmp_path, x), nprocs=RANKS)
    torch.manual_seed(0)
    model = Tagger()
    steps(model, x)
    wanted = [weight.detach() for weight in model.parameters()]
    for rank in range(RANKS):
        assert error_ratio(torch.load(tmp_path / f"{rank}.pt"), wanted) <= 1e-4
