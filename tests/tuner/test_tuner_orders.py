"""Who waits for which build: equal recipes are done once, and some things are built aside."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from tuner_rig import BUCKET, Rig, table

from grainshift.core.events import Built, Failed
from grainshift.core.family import Recipe, Runner


@dataclass
class Workbench:
    """A family whose Choices all need one thing first, and gain by another that is done aside."""

    inner: Any
    fails: str = ""
    breaks: str = ""
    kept: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    ran: list[bool] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def recipe(self, site: Any, bucket: str, choice: Any) -> Recipe | None:
        wanted = next((name for name in ("needed", "aside") if name not in self.kept), None)
        if wanted is None:
            return None
        self.asked.append(wanted)
        what = {"name": wanted, "fails": wanted == self.fails}
        return Recipe("simulated", "build", what, aside=wanted == "aside")

    def build(self, model: Any, site: Any, bucket: str, choice: Any, folder: str) -> Runner:
        if folder:
            name = "aside" if "needed" in self.kept else "needed"
            if name == self.breaks:
                raise RuntimeError("it cannot be loaded")
            self.kept.add(name)
        better = "aside" in self.kept
        inner = self.inner.build(model, site, bucket, choice, "").run

        def run() -> float:
            self.ran.append(better)
            return float(inner())

        return Runner(run)


def bench(**faults: str) -> tuple[Rig, Workbench]:
    benches = []

    def make(plain: Any) -> Workbench:
        benches.append(Workbench(plain, **faults))
        return benches[-1]

    rig = Rig({"good family": make}, table(build_s=0.2))
    return rig, benches[0]


def test_a_choice_does_not_wait_for_what_is_done_aside_and_gains_by_it_later() -> None:
    rig, family = bench()
    assert rig.run() == []
    assert rig.live("good") == 2
    assert family.kept == {"needed", "aside"}
    first = family.ran.index(True)
    assert first > 0 and not any(family.ran[:first])  # it ran before that was there
    assert all(family.ran[first:])  # and the live one, too, is the better one from then on
    built = [(told.site_key, told.arm) for told in rig.events(Built)]
    assert len(built) == len(set(built)), "building anew is no event: its trials remain"


def test_equal_recipes_are_done_once() -> None:
    rig, _ = bench()
    rig.families["twin"] = rig.families["good"]
    rig.attach("twin")
    submitted: list[str] = []
    builders = rig.driver._orders.builders

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(builders, name)

        def submit(self, order: Any, recipe: Recipe) -> None:
            submitted.append(recipe.arguments.get("name", ""))
            builders.submit(order, recipe)

    rig.driver._orders.builders = Spy()
    rig.run()
    assert (rig.live("good"), rig.live("twin")) == (2, 2)
    assert sorted(filter(None, submitted)) == ["aside", "needed"]


def test_whoever_comes_first_may_be_gone_by_then() -> None:
    rig, family = bench()
    rig.families["twin"] = rig.families["good"]
    rig.attach("twin")
    while len(family.asked) < 2:
        rig.run(1)
    assert family.asked == ["needed", "needed"] and not family.kept
    rig.driver.detach("good")
    rig.slots.pop("good")
    rig.run()
    assert rig.live("twin") == 2 and family.kept == {"needed", "aside"}


def test_what_failed_aside_is_not_tried_again() -> None:
    rig, family = bench(fails="aside")
    rig.families["twin"] = rig.families["good"]
    rig.run()
    assert len(rig.driver._orders._given_up) == 1
    rig.attach("twin")  # its Choices are built, and would gain by it, too
    rig.run()
    assert rig.live("twin") == 2 and family.asked.count("aside") > 1
    assert not rig.driver._orders._going


@pytest.mark.parametrize("fault", ["fails", "breaks"])
def test_what_fails_aside_costs_no_choice(fault: str) -> None:
    rig, family = bench(**{fault: "aside"})
    (warning,) = rig.run()
    assert "a build aside failed" in warning
    assert rig.live("good") == 2 and family.kept == {"needed"}
    assert not rig.events(Failed)


@pytest.mark.parametrize("fault", ["fails", "breaks"])
def test_what_fails_and_is_needed_fails_the_choices_that_wait_for_it(fault: str) -> None:
    rig, family = bench(**{fault: "needed"})
    rig.run()
    assert rig.live("good") == 0 and rig.live("bad") == 2
    assert not family.kept
    assert {(told.bucket, told.kind) for told in rig.events(Failed)} == {(BUCKET, "build")}
