"""Whatever is plugged in may fail: the caller never sees it, and other Sites are tuned on."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tuner_rig import BUCKET, Broken, Nasty, Rig, broken, raising, table

from grainshift.bench.simulate import (
    SimulatedFamily,
)
from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.events import Built, Failed, Lost, Opened, Proposed, Sensed
from grainshift.core.family import Runner
from grainshift.core.forecast import Forecast
from grainshift.core.instructions import Ask
from grainshift.core.policy import Actor
from grainshift.core.proposal import Lesson, Proposal, Query
from grainshift.core.site import Site, Tempo


def test_all_is_well_when_nothing_is_broken() -> None:
    rig = Rig()
    assert rig.run() == []
    assert (rig.live("good"), rig.live("bad")) == (2, 2)


@pytest.mark.parametrize("fault", [RuntimeError("it broke"), Nasty()])
@pytest.mark.parametrize(
    ("part", "method", "told"),
    [
        ("bad family", "offer", "bad could not offer Choices, its Site stays as it is"),
        ("bad family", "forecast", "bad could not forecast a Choice, which is not tried"),
        ("bad family", "recipe", ""),
        ("bad family", "build", ""),
        ("bad policy", "propose", "the policy of bad failed and answers 'stay'"),
    ],
)
def test_a_broken_family_or_policy_leaves_its_own_site_as_it_was(
    part: str, method: str, told: str, fault: Exception
) -> None:
    rig = Rig({part: broken(method, instead=raising(fault))})
    caught = rig.run()
    assert rig.live("good") == 2
    assert rig.live("bad") == 0
    words = "Nasty" if isinstance(fault, Nasty) else "RuntimeError: it broke"
    assert caught == ([f"grainshift: {told}: {words}"] if told else [])
    if not told:  # a fault of a Choice is an event, and a reason in the report
        assert {(one.kind, one.reason) for one in rig.events(Failed)} == {("build", words)}
        assert len(rig.events(Failed)) == 2


@pytest.mark.parametrize(
    ("part", "method", "told"),
    [
        ("bad policy", "learn", "the policy of bad could not learn"),
        ("senses", "sample", "a sensor failed"),
        ("memory", "recall", "what was learnt before could not be read"),
        ("memory", "remember", "what was learnt could not be kept"),
        ("log", "append", "the log failed"),
        ("builders", "poll", "the builders failed"),
    ],
)
def test_what_only_looks_on_stops_nothing(part: str, method: str, told: str) -> None:
    rig = Rig({part: broken(method)})
    assert rig.run() == [f"grainshift: {told}: RuntimeError: it broke"]
    assert (rig.live("good"), rig.live("bad")) == (2, 2)


def test_builders_that_take_no_order_fail_the_choice() -> None:
    rig = Rig({"builders": broken("submit")}, table(build_s=0.01))
    assert rig.run() == []
    assert (rig.live("good"), rig.live("bad")) == (0, 0)
    assert {one.kind for one in rig.events(Failed)} == {"build"}


def test_builders_that_cannot_close_keep_no_model_from_its_baseline() -> None:
    rig = Rig({"builders": broken("close")})
    rig.run()
    with pytest.warns(RuntimeWarning, match="the builders could not close"):
        rig.driver.close()
    assert (rig.live("good"), rig.live("bad")) == (0, 0)


def test_where_warnings_are_errors_the_loop_goes_on() -> None:
    rig = Rig({"senses": broken("sample")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            rig.slots["good"].call(BUCKET, 1.0)
            rig.driver.pump()
    assert rig.driver.choices("good:layer", BUCKET)


class Junk:
    """A policy that answers whatever it is told to."""

    name = "junk"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def propose(self, query: Query) -> Any:
        return self._answer

    def learn(self, lessons: object) -> None:
        """Nothing."""

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        return None


@pytest.mark.parametrize("answer", [None, Proposal(None), "unrolled", Proposal(1, ("x",))])  # type: ignore[arg-type]
def test_an_answer_that_is_none_is_told_and_means_stay(answer: object) -> None:
    rig = Rig({"bad policy": lambda plain: Junk(answer)})
    (told,) = rig.run()
    assert "the policy of bad failed and answers 'stay'" in told
    assert (rig.live("good"), rig.live("bad")) == (2, 0)


@pytest.mark.parametrize("answer", [Proposal(99), Proposal(-1), Proposal(0)])
def test_an_answer_that_may_not_be_is_not_built(answer: Proposal) -> None:
    rig = Rig({"bad policy": lambda plain: Junk(answer)})
    assert rig.run() == []
    assert (rig.live("good"), rig.live("bad")) == (2, 0)
    assert not [one for one in rig.events(Built) if one.site_key == "bad:layer"]


def test_answers_in_numpys_numbers_are_kept_in_pythons() -> None:
    answer = Proposal(np.int64(2), tuple(np.float32([0.0, 0.5, 1.0])))  # type: ignore[arg-type]
    rig = Rig({"bad policy": lambda plain: Junk(answer)})
    rig.run()
    assert rig.live("bad") == 2
    (first, *_) = [one for one in rig.events(Proposed) if one.site_key == "bad:layer"]
    assert type(first.proposal.arm) is int
    assert {type(score) for score in first.proposal.scores} == {float}


@pytest.mark.parametrize(
    "forecast",
    [
        None,
        0.5,
        Forecast(float("nan")),
        Forecast(0.0),
        Forecast(-1.0),
        Forecast(0.5, 1e6),
        Forecast(0.5, float("nan")),
        Forecast(float("inf")),
        Forecast(0.5, 0.1, 0, float("nan")),
    ],
)
def test_a_forecast_that_is_no_number_is_not_tried(forecast: Any) -> None:
    rig = Rig({"bad family": broken("forecast", instead=lambda *args: forecast)})
    rig.run()
    assert (rig.live("good"), rig.live("bad")) == (2, 0)
    assert not [one for one in rig.events(Built) if one.site_key == "bad:layer"]


def test_one_choice_that_cannot_be_forecast_leaves_the_others() -> None:
    def change(plain: SimulatedFamily) -> Broken:
        def forecast(site: Site, bucket: str, choice: Choice, *rest: Any) -> Forecast:
            if choice.args in ((), (1,)):  # the baseline, and the first Choice
                raise KeyError("no figures")
            return plain.forecast(site, bucket, choice, *rest)

        return Broken(plain, ("forecast",), forecast)

    rig = Rig({"bad family": change})
    assert len(rig.run()) == 1
    choices = rig.driver.choices("bad:layer", BUCKET)
    assert [str(choice) for choice in choices] == ["stock", "choice(2)"]
    assert rig.live("bad") == 1


@pytest.mark.parametrize("offered", [(), [], None, 7])
def test_a_family_that_offers_nothing_leaves_its_site_alone(offered: object) -> None:
    rig = Rig({"bad family": broken("offer", instead=lambda *args: offered)})
    rig.run()
    assert (rig.live("good"), rig.live("bad")) == (2, 0)
    assert {one.site.key for one in rig.events(Opened)} == {"good:layer"}
    rig.driver.extend("bad:layer", BUCKET)
    rig.driver.extend("no:site", BUCKET)


def test_a_choice_offered_twice_is_one() -> None:
    twice = [Choice("stock"), Choice("choice", (2,)), Choice("stock"), Choice("choice", (2,))]
    rig = Rig({"bad family": broken("offer", instead=lambda *args: twice)})
    rig.run()
    assert rig.driver.choices("bad:layer", BUCKET) == (twice[0], twice[1])
    assert rig.live("bad") == 1


@pytest.mark.parametrize("built", [None, "runner", Runner(None)])  # type: ignore[arg-type]
def test_what_is_built_and_cannot_run_is_out(built: Any) -> None:
    rig = Rig({"bad family": broken("build", instead=lambda *args: built)})
    rig.run()
    assert (rig.live("good"), rig.live("bad")) == (2, 0)
    assert {one.arm for one in rig.events(Failed)} == {1, 2}


def test_a_sensor_that_recovers_is_heard_again() -> None:
    samples: list[float] = []

    def sample(at_s: float) -> Conditions:
        samples.append(at_s)
        if len(samples) < 3:
            raise OSError("gone")
        return Conditions(at_s)

    rig = Rig({"senses": broken("sample", instead=sample)})
    assert len(rig.run()) == 1
    assert len(samples) > 3
    assert len(rig.events(Sensed)) == len(samples) - 2


def test_a_build_for_a_site_that_went_stale_is_not_loaded_into_its_successor() -> None:
    loaded: list[str] = []

    def change(plain: SimulatedFamily) -> Broken:
        def build(model: Any, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
            loaded.append(str(choice))
            return plain.build(model, site, bucket, choice, folder)

        return Broken(plain, ("build",), build)

    rig = Rig({"bad family": change}, table(build_s=0.2))
    while not [one for one in rig.driver.state.cases.values() if one.phase == "building"]:
        rig.run(4)
    rig.driver.detach("bad:layer")
    rig.attach("bad")
    rig.run(1)
    while not [one for one in rig.events(Built) if one.site_key == "good:layer"]:
        rig.run(4)
    assert len(rig.events(Lost)) == 1
    assert loaded == []
    rig.run()
    assert rig.live("bad") == 2


def test_sites_come_and_go_between_two_looks() -> None:
    rig = Rig()
    for _ in range(12):
        rig.run(40)
        rig.driver.detach("bad:layer")
        assert rig.slots["bad"].live(BUCKET) == 0
        rig.attach("bad")  # before the driver looked
    rig.run()
    assert (rig.live("good"), rig.live("bad")) == (2, 2)
    rig.driver.detach("no:site")


def test_a_runner_is_closed_once_nobody_is_in_it_any_more() -> None:
    closed: list[float] = []

    def change(plain: SimulatedFamily) -> Broken:
        def build(*args: Any) -> Runner:
            runner = plain.build(*args)
            return replace(runner, close=lambda: closed.append(rig.world.now_s))

        return Broken(plain, ("build",), build)

    rig = Rig({"bad family": change})
    rig.run()
    detached_s = rig.world.now_s
    rig.driver.detach("bad:layer")
    rig.driver.pump()
    assert closed == []
    rig.world.now_s += 1.1
    rig.driver.pump()
    assert closed
    assert min(closed) > detached_s + 1.0


def test_a_runner_that_cannot_close_stops_nothing() -> None:
    def change(plain: SimulatedFamily) -> Broken:
        def build(*args: Any) -> Runner:
            return replace(plain.build(*args), close=raising(RuntimeError("stuck")))

        return Broken(plain, ("build",), build)

    rig = Rig({"bad family": change})
    rig.run()
    rig.driver.detach("bad:layer")
    rig.world.now_s += 2.0
    rig.driver.pump()
    rig.driver.close()
    assert rig.live("good") == 0


def test_close_gives_every_site_its_baseline_and_freeze_keeps_what_is_live() -> None:
    rig = Rig()
    rig.run()
    rig.driver.freeze()
    assert not rig.driver.settled
    rig.run(40)
    assert rig.driver.settled
    assert (rig.live("good"), rig.live("bad")) == (2, 2)
    rig.driver.close()
    assert (rig.live("good"), rig.live("bad")) == (0, 0)


# Picks of an actor


@dataclass
class Picker:
    """An actor that does what it is told to, and keeps what it was shown."""

    does: Callable[[Any, Any], Any]
    seen: list[tuple[Any, Any]] = field(default_factory=list)

    def pick(self, state: Any, mask: Any) -> Any:
        self.seen.append((state.copy(), mask.copy()))
        return self.does(state, mask)


class Acting:
    """Proposes whatever may be tried, and has an actor."""

    name = "acting"

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def propose(self, query: Query) -> Proposal:
        fresh = (n for n, ok in enumerate(query.mask) if ok and n != query.live)
        return Proposal(next(fresh, query.live))

    def learn(self, lessons: list[Lesson]) -> None:
        """Nothing."""

    def actor(self, choices: tuple[Choice, ...]) -> Any:
        return self._make()


def equals(does: Callable[[Any, Any], Any], tempo: Tempo = Tempo.SEGMENT) -> tuple[Rig, Picker]:
    """A rig whose two Choices are as good as one another."""

    def cost_s(arm: int, moment: object) -> float:
        return 0.005 * (0.5 if arm else 1.0)

    picker = Picker(does)
    ratios = (1.0, 0.5, 0.51)
    acting = {"bad policy": lambda plain: Acting(lambda: picker)}
    return Rig(acting, table(cost_s=cost_s, ratios=ratios), tempo), picker


def last(state: Any, mask: Any) -> int:
    return int(np.flatnonzero(mask)[-1])


def test_among_equals_an_actor_picks_where_segments_are_short() -> None:
    rig, picker = equals(last)
    assert rig.run(300) == []
    assert picker.seen
    before = list(rig.world.runs)
    for _ in range(100):
        rig.slots["bad"].call(BUCKET, 1.0)
    ran = [late - early for early, late in zip(before, rig.world.runs, strict=True)]
    assert ran[2] > 90  # the actor's, though the first is live
    state, mask = picker.seen[-1]
    assert mask.tolist() == [False, True, True]  # the baseline is no gain
    assert state.shape == (11,)


def test_the_actor_is_shown_the_conditions_as_they_change() -> None:
    rig, picker = equals(last)
    rig = Rig(rig.parts, replace(rig.costs, load=lambda moment: moment.at_s), Tempo.SEGMENT)
    rig.run(400)
    loads = [float(state[1]) for state, _ in picker.seen]
    assert len(set(loads)) > 2
    assert loads == sorted(loads)


def telling(*features: tuple[str, Any]) -> Callable[[Any], Any]:
    """Makes a family tell these of every bucket."""

    def change(family: Any) -> Any:
        return Broken(family, ("features",), lambda site, bucket: features)

    return change


def test_policy_and_actor_see_what_the_family_tells_of_the_bucket() -> None:
    rig, picker = equals(last)
    parts = {**rig.parts, "bad family": telling(("batch", 4), ("steps", 64))}
    rig = Rig(parts, rig.costs, Tempo.SEGMENT)
    assert rig.run(300) == []
    said = [one for _, instructions in rig.log.steps for one in instructions]
    asked = [one.query.state for one in said if isinstance(one, Ask)]
    told = {state[:2] for state in asked if len(state) == 13}
    assert told == {(4.0, 64.0)} and {len(state) for state in asked} == {11, 13}
    assert {tuple(state[:2].tolist()) for state, _ in picker.seen} == {(4.0, 64.0)}
    assert {len(state) for state, _ in picker.seen} == {13}


def test_a_family_that_cannot_describe_a_bucket_is_tuned_without() -> None:
    rig = Rig({"bad family": broken("features")})
    assert "could not describe the shapes" in rig.run()[0]
    assert rig.live("bad") == rig.live("good") != 0


@pytest.mark.parametrize("tempo", [Tempo.CALL, Tempo.STEP])
def test_elsewhere_nobody_picks(tempo: Tempo) -> None:
    rig, picker = equals(last, tempo)
    rig.run(300)
    assert picker.seen == []
    assert rig.live("bad") == 1


@pytest.mark.parametrize(
    "does",
    [
        raising(RuntimeError("it broke")),
        lambda state, mask: 0,  # not admitted
        lambda state, mask: 99,
        lambda state, mask: None,
        lambda state, mask: "unrolled",
    ],
)
def test_an_actor_that_fails_has_no_more_say_and_is_told_once(
    does: Callable[[Any, Any], Any],
) -> None:
    rig, picker = equals(does)
    told = rig.run(400)
    assert len(told) == 1
    assert "an actor failed and picks no more" in told[0]
    assert len(picker.seen) == 1
    assert (rig.live("good"), rig.live("bad")) == (1, 1)
    assert {one.arm for one in rig.events(Failed)} == {0}


def test_a_policy_that_gives_no_actor_leaves_the_live_choice() -> None:
    rig, picker = equals(last)
    acting = broken("actor")(Acting(lambda: picker))
    rig = Rig({"bad policy": lambda plain: acting}, rig.costs, Tempo.SEGMENT)
    (told,) = rig.run(300)
    assert "the policy of bad gave no actor" in told
    assert (rig.live("good"), rig.live("bad")) == (1, 1)
    assert picker.seen == []
