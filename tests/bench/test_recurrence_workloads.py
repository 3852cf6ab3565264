"""The workloads cover what was promised, and each is what its name says."""

import pytest
import torch

from grainshift.bench.contender import Workload
from grainshift.bench.mode import Mode, plain, surroundings
from grainshift.bench.recurrence.effort import Effort
from grainshift.bench.workloads.recurrence import (
    BF16,
    CHOOSING,
    QUICK,
    SEQUENCES,
    STREAMS,
    TRAINING,
    WORKLOADS,
)
from grainshift.core.machine import Machine
from grainshift.families.recurrence import FAMILY

MODELS = [one for one in (*SEQUENCES, *STREAMS) if "models" in one.module]
LAYERS = [
    next(one for one in WORKLOADS if one.arguments.get("kind") == kind and one.mode is mode)
    for kind in ("LSTM", "GRU", "RNN")
    for mode in Mode
]


def sizes(workloads: tuple[Workload, ...], name: str) -> set[object]:
    return {workload.arguments.get(name, 1) for workload in workloads}


def test_the_names_are_told_apart_and_the_quick_ones_exist() -> None:
    names = [workload.name for workload in WORKLOADS]
    assert len({*names}) == len(names)
    assert {*names} >= QUICK
    assert {name.split("-")[0] for name in QUICK} == {name.split("-")[0] for name in names}


def test_there_are_as_many_as_were_promised_at_all_promised_sizes() -> None:
    assert len(SEQUENCES) >= 30 and len(STREAMS) >= 8 and len(BF16) >= 6 and len(CHOOSING) >= 12
    assert sizes(SEQUENCES, "hidden") >= {64, 128, 256, 512, 1024}
    assert sizes(SEQUENCES, "batch") == {1, 4, 16, 64}
    assert {16, 1024} <= sizes(SEQUENCES, "steps") <= {*range(1, 1025)}
    assert sizes(SEQUENCES, "layers") == {1, 2, 3}
    assert sizes(SEQUENCES, "directions") == {1, 2}
    assert sizes(STREAMS, "batch") == {1, 4} and sizes(BF16, "batch") == {1}
    assert {w.arguments["kind"] for w in TRAINING} == {"LSTM", "GRU", "RNN"}


@pytest.mark.parametrize("workload", [*LAYERS, *MODELS], ids=lambda workload: workload.name)
def test_a_workload_runs_and_all_its_layers_are_sites(workload: Workload) -> None:
    model, inputs = workload.build()
    sites, refused = FAMILY.find(model)
    assert len(sites) == 1 and refused == ()
    assert model.training is (workload.mode is Mode.TRAIN)
    calls = [plain(model, inputs, workload.mode), plain(*workload.build(), workload.mode)]
    with surroundings(workload.mode):
        first, again = (call() for call in calls)
    firsts, agains = (torch.utils._pytree.tree_leaves(answer) for answer in (first, again))
    assert all(map(torch.equal, firsts, agains)) and all(y.isfinite().all() for y in firsts)


def test_a_run_takes_what_it_is_asked_for() -> None:
    machine = Machine("none", "a CPU", (0,), 1.0, 1 << 30)
    names = {w.name for w in Effort(True, None, machine).chosen(WORKLOADS)}
    assert names == QUICK
    assert len(Effort(False, None, machine).chosen(WORKLOADS)) == len(WORKLOADS)
    only = Effort(True, "lstm-256", machine).chosen(WORKLOADS)
    assert len(only) > 5 and all("lstm-256" in workload.name for workload in only)
    assert (
        Effort(True, None, machine).plan(10.0).budget_s
        < Effort(False, None, machine).plan(10.0).budget_s
    )
