"""What every family owes, whatever it decides. A new family adds itself and its models here."""

import copy
import json
import math
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from grainshift.core.choice import Choice, Exactness
from grainshift.core.conditions import CONDITION_NAMES, Conditions, Figure
from grainshift.core.family import Family, Recipe
from grainshift.core.forecast import Limits
from grainshift.core.machine import Cache, Machine
from grainshift.core.site import Site
from grainshift.families.recurrence import Recurrence
from grainshift.policies import POLICIES
from grainshift.runtime.builder import Builders
from grainshift.runtime.compare import relative_error
from grainshift.runtime.slot import Slot

ROUNDING = 1e-4
LIMITS = (Limits(), Limits(memory_bytes=1), Limits(error_ratio=0.1), Limits(1 << 30, 0.01, 1e-3))


@dataclass(frozen=True)
class Sample:
    """A model of a family's kind, and an input for it."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    family: Family = field(default_factory=Recurrence)
    sites: int = 1


class Tagger(nn.Module):
    """Two recurrent layers, one of them used twice, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.below = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
        self.above = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x, _ = self.below(self.embed(words))
        x, state = self.above(x)
        x, _ = self.above(x, state)
        return self.head(x)  # type: ignore[no-any-return]


def recurrent(name: str, make: Callable[[], nn.Module], *shape: int) -> Sample:
    return Sample(f"recurrence, {name}", make, lambda: (torch.randn(shape),))


FAMILIES = (
    recurrent("LSTM", lambda: nn.LSTM(5, 12), 40, 1, 5),
    recurrent("GRU", lambda: nn.GRU(5, 12, batch_first=True), 3, 33, 5),
    recurrent("RNN", lambda: nn.RNN(5, 12, nonlinearity="relu"), 17, 2, 5),
    recurrent("deep LSTM", lambda: nn.LSTM(4, 8, 2, bidirectional=True, bias=False), 9, 2, 4),
    recurrent("one step", lambda: nn.GRU(5, 12), 1, 1, 5),
    recurrent("unbatched", lambda: nn.LSTM(5, 12), 12, 5),
    Sample("recurrence, tagger", Tagger, lambda: (torch.randint(20, (2, 24)),), sites=2),
)
every_sample = pytest.mark.parametrize("sample", FAMILIES, ids=lambda sample: sample.name)

BARE = Machine("m", "a processor", (0,), 1.0, 1 << 30)
KNOWN = Machine(
    "m",
    "a processor",
    (0, 1),
    2.0,
    1 << 34,
    (Cache(1, 1 << 15, 1), Cache(2, 1 << 20, 1), Cache(3, 1 << 25, 2)),
    ("avx512f",),
    tuple(
        Figure(name, value)
        for name, value in {
            "fp32_flops": 1.9e11,
            "l1_bytes": 4e11,
            "l2_bytes": 2e11,
            "l3_bytes": 1e11,
            "dram_bytes": 4e10,
        }.items()
    ),
)
BUSY = Conditions(9.0, tuple(Figure(name, 0.7) for name in CONDITION_NAMES))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products on several threads wait for one another when the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Recorder:
    """A door that runs what it is told to, and keeps what it was called with."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run
        self.calls: list[tuple[str, float, tuple[Any, ...]]] = []

    def call(self, bucket: str, work: float, /, *args: Any) -> Any:
        self.calls.append((bucket, work, args))
        return self.run(*args)

    def is_stock(self, bucket: str) -> bool:
        return True


def ready(sample: Sample) -> tuple[nn.Module, tuple[Any, ...], tuple[Site, ...]]:
    torch.manual_seed(0)
    model = sample.make().eval()
    return model, sample.inputs(), tuple(sample.family.find(model)[0])


def baseline(sample: Sample, model: nn.Module, site: Site) -> Callable[..., Any]:
    return sample.family.build(model, site, "", Choice("stock"), "").run


def recorded(sample: Sample) -> list[tuple[nn.Module, Site, str, tuple[Any, ...]]]:
    """Every bucket in which a call of the model met a Site, with the arguments of that call."""
    model, inputs, sites = ready(sample)
    found = []
    for site in sites:
        door = Recorder(baseline(sample, model, site))
        undo = sample.family.install(model, site, door)
        with torch.no_grad():
            model(*inputs)
        undo()
        assert door.calls, "a call of the model must meet its Site"
        for bucket, work, args in door.calls:
            assert work > 0.0 and isinstance(bucket, str) and bucket
            found.append((model, site, bucket, args))
    return found


def done(recipe: Recipe | None, room: Path) -> str:
    """The folder in which a builder did a recipe."""
    if recipe is None:
        return ""
    assert json.loads(json.dumps(recipe.arguments)) == recipe.arguments
    builders = Builders(room)
    builders.submit(1, recipe)
    while not (outcomes := builders.poll(0.0)):
        time.sleep(0.01)
    assert outcomes[0].failure == ""
    return outcomes[0].folder


def innards(model: nn.Module) -> list[dict[str, Any]]:
    return [dict(vars(module)) for module in model.modules()]


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    return [list(d) for d in one] == [list(d) for d in other] and all(
        a[name] is b[name] for a, b in zip(one, other, strict=True) for name in a
    )


@every_sample
def test_find_names_its_sites_apart_and_touches_nothing(sample: Sample) -> None:
    model, _, sites = ready(sample)
    before = innards(model)
    again, refused = sample.family.find(model)
    assert same(innards(model), before)
    assert tuple(again) == sites and len(sites) == sample.sites
    assert len({site.key for site in sites}) == len(sites)
    for site in sites:
        assert site.family == sample.family.name and site.fingerprint
        assert site.key == f"{sample.family.name}:{site.path}"
        assert all(math.isfinite(value) for _, value in site.features)
        model.get_submodule(site.path)
    assert all(isinstance(path, str) and reason for path, reason in refused)


@every_sample
def test_every_bucket_has_as_many_features(sample: Sample) -> None:
    told = [sample.family.features(site, bucket) for _, site, bucket, _ in recorded(sample)]
    assert told and len({tuple(name for name, _ in named) for named in told}) == 1
    assert all(math.isfinite(value) for named in told for _, value in named)


@every_sample
def test_find_leaves_alone_what_it_does_not_know(sample: Sample) -> None:
    for stranger in (nn.Linear(2, 2), nn.Sequential(), nn.ModuleList(), nn.Identity()):
        sites, _ = sample.family.find(stranger)
        assert tuple(sites) == ()


@every_sample
def test_its_policy_exists(sample: Sample) -> None:
    assert sample.family.policy in POLICIES


@every_sample
@pytest.mark.parametrize("limits", LIMITS)
def test_offers_the_baseline_first_and_no_choice_twice(sample: Sample, limits: Limits) -> None:
    for _, site, bucket, _ in recorded(sample):
        choices = sample.family.offer(site, bucket, limits)
        assert choices == sample.family.offer(site, bucket, limits)
        assert choices[0] == Choice("stock") and choices[0].exactness is Exactness.EXACT
        assert len({*choices}) == len({*map(str, choices)}) == len(choices)
        if limits.error_ratio is None:
            assert all(choice.exactness is not Exactness.LOWER for choice in choices)


@every_sample
@pytest.mark.parametrize("machine", [BARE, KNOWN], ids=["bare", "known"])
@pytest.mark.parametrize("now", [Conditions(0.0), BUSY], ids=["silent", "busy"])
def test_forecasts_are_finite_and_positive_and_the_baselines_is_one(
    sample: Sample, machine: Machine, now: Conditions
) -> None:
    for _, site, bucket, _ in recorded(sample):
        for choice in sample.family.offer(site, bucket, Limits()):
            told = sample.family.forecast(site, bucket, choice, machine, now)
            assert told == sample.family.forecast(site, bucket, choice, machine, now)
            assert math.isfinite(told.time_ratio) and told.time_ratio > 0.0
            assert math.isfinite(told.pessimistic_ratio) and told.spread >= 0.0
            assert math.isfinite(told.build_s) and told.build_s >= 0.0
            assert isinstance(told.extra_bytes, int) and told.extra_bytes >= 0
            if choice == Choice("stock"):
                assert (told.time_ratio, told.extra_bytes, told.build_s) == (1.0, 0, 0.0)


@every_sample
def test_every_choice_is_as_exact_as_it_says_and_holds_what_was_forecast(
    sample: Sample, tmp_path: Path
) -> None:
    family = sample.family
    for model, site, bucket, args in recorded(sample):
        with torch.no_grad():
            wanted = baseline(sample, model, site)(*args)
        for choice in family.offer(site, bucket, Limits()):
            folder = done(family.recipe(site, bucket, choice), tmp_path)
            runner = family.build(model, site, bucket, choice, folder)
            for _ in range(2):
                with torch.no_grad():
                    error = relative_error(runner.run(*args), wanted)
                most = {Exactness.EXACT: 0.0, Exactness.ROUNDING: ROUNDING, Exactness.LOWER: 0.1}
                assert error <= most[choice.exactness], str(choice)
            told = family.forecast(site, bucket, choice, KNOWN, BUSY)
            assert 0 <= runner.held_bytes <= told.extra_bytes
            if runner.close is not None:
                runner.close()


@every_sample
def test_installing_and_undoing_leaves_every_module_as_it_was(sample: Sample) -> None:
    model, inputs, sites = ready(sample)
    before, keys = innards(model), list(model.state_dict())
    with torch.no_grad():
        wanted = model(*inputs)
        undos = []
        for site in sites:
            slot = Slot(site, baseline(sample, model, site))
            undos.append(sample.family.install(model, site, slot))
            assert list(model.state_dict()) == keys
        assert relative_error(model(*inputs), wanted) == 0.0
        assert not same(innards(model), before)  # or there is nothing to undo
        for undo in undos:
            undo()
        assert same(innards(model), before)
        assert relative_error(model(*inputs), wanted) == 0.0
        for undo in undos:
            undo()
    assert same(innards(model), before)


@every_sample
@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_and_pickles_are_untuned(sample: Sample, way: Callable[[Any], Any]) -> None:
    model, inputs, sites = ready(sample)
    with torch.no_grad():
        wanted = model(*inputs)
        doors = []
        for site in sites:
            doors.append(Recorder(baseline(sample, model, site)))
            sample.family.install(model, site, doors[-1])
        twin = way(model)
        for weight in model.parameters():
            weight.zero_()
        assert relative_error(twin(*inputs), wanted) == 0.0
    assert all(door.calls == [] for door in doors)
    assert [site.key for site in sample.family.find(twin)[0]] == [site.key for site in sites]


@every_sample
def test_an_exception_inside_a_door_reaches_the_caller_as_it_is(sample: Sample) -> None:
    model, inputs, (site, *_) = ready(sample)
    own = KeyError("the user's")

    def breaks(*args: Any) -> Any:
        raise own

    undo = sample.family.install(model, site, Recorder(breaks))
    with torch.no_grad(), pytest.raises(KeyError) as caught:
        model(*inputs)
    assert caught.value is own
    undo()
    with torch.no_grad():
        model(*inputs)


@every_sample
def test_two_families_objects_share_nothing(sample: Sample) -> None:
    family = type(sample.family)()
    one, inputs, sites = ready(sample)
    other, _, _ = ready(sample)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(0.5)
        wanted = [one(*inputs), other(*inputs)]
        for site in sites:
            bucket = recorded(sample)[0][2]
            for model in (one, other):
                *_, last = family.offer(site, bucket, Limits())
                runner = family.build(model, site, bucket, last, "")
                family.install(model, site, Recorder(runner.run))
        assert relative_error(one(*inputs), wanted[0]) <= ROUNDING
        assert relative_error(other(*inputs), wanted[1]) <= ROUNDING
