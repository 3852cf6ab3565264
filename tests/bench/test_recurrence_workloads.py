import torch

from grainshift.bench.workloads.recurrence import WORKLOADS
from grainshift.families.recurrence import FAMILY


def test_every_workload_is_one_site_and_runs() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    for workload in WORKLOADS:
        model, (x_TBI,) = workload.build()
        sites, refused = FAMILY.find(model)
        assert (len(sites), refused) == (1, ())
        with torch.no_grad():
            assert model(x_TBI[:1])[0].shape[:2] == (1, x_TBI.shape[1])


def test_a_workload_is_the_same_each_time_it_is_built() -> None:
    (first, (x,)), (second, (y,)) = WORKLOADS[0].build(), WORKLOADS[0].build()
    assert torch.equal(x, y)
    assert torch.equal(first.weight_hh_l0, second.weight_hh_l0)
