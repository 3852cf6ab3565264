"""How the loop watches what is live: reverts, probes, guards, trips, faults and picks, by hand."""

from dataclasses import replace

import pytest
from tuner_hand import BASELINE_S, BUCKET, SITE, Hand, hand, is_live, offers, surely

from grainshift.core.choice import Choice, Exactness
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.events import Compared, Extended, Failed, Frozen, Lost, Opened, Sensed
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.instructions import (
    Admit,
    Ask,
    Build,
    Compare,
    Deal,
    Note,
    Quarantine,
    Recall,
    Swap,
    Teach,
    Trip,
)
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.tuner import loop
from grainshift.tuner.state import Phase


def eager(**changes: object) -> Settings:
    base = Settings(dwell_s=0.0, opening_calls=20.0, retry_calls=100)
    return replace(base, **changes)  # type: ignore[arg-type]


def live_one(costs: list[float] | None = None, **more: object) -> Hand:
    """A Hand whose first Choice is live; what was said until then is forgotten."""
    more = {"settings": eager(), **more}
    one = hand(costs or [0.5], **more)  # type: ignore[arg-type]
    one.until(is_live(1))
    one.clear()
    return one


def test_probes_turn_and_the_baseline_is_back() -> None:
    one = live_one()
    one.run(200)
    assert one.case.live == 1
    one.costs[0] *= 0.3  # seen by probes alone
    one.until(is_live(0), most=260)
    assert "no longer" in one.told(Swap)[-1].reason or "lost" in one.told(Swap)[-1].reason
    assert one.live == 0


def test_a_live_choice_that_slows_down_is_seen_by_its_own_runs() -> None:
    one = live_one([0.8])
    one.run(100)
    one.costs[1] = 1.3 * BASELINE_S
    assert one.until(is_live(0), most=60) < 60


def test_a_revert_waits_for_no_dwell_and_no_window() -> None:
    one = live_one(settings=eager(dwell_s=0.0, switches_per_window=1, window_s=1e6))
    one.state = replace(one.state, settings=replace(one.state.settings, dwell_s=1e6))
    one.costs[1] = 3.0 * BASELINE_S
    assert one.until(is_live(0), most=40) < 40


def test_after_reverts_the_wait_grows() -> None:
    settings = eager(retry_calls=50)
    one = hand([0.5], settings=settings)
    waits = []
    for _ in range(3):
        one.costs[1] = 0.5 * BASELINE_S
        one.until(is_live(1))
        one.costs[1] = 2.0 * BASELINE_S
        one.until(is_live(0))
        waits.append(one.case.arms[1].wait_until_calls - one.case.calls)
    assert one.case.arms[1].reversals == 3
    assert waits[0] < waits[1] < waits[2]


def test_the_share_of_probes_is_small_and_as_set() -> None:
    shares = {}
    for share in (0.01, 0.02, 0.1):
        one = live_one(settings=eager(probe_share=share, watch_calls=0))
        one.run(3_000)
        shares[share] = sum(2 * said.blocks for said in one.told(Deal)) / 3_000
        assert 0.2 * share < shares[share] <= share
    assert shares[0.01] < shares[0.02] < shares[0.1]


def test_probes_are_denser_while_a_fresh_choice_is_watched() -> None:
    dense = live_one(settings=eager(watch_calls=400))
    calm = live_one(settings=eager(watch_calls=0))
    for one in (dense, calm):
        one.run(200)
    assert len(dense.told(Deal)) > 2 * len(calm.told(Deal))


def sense(one: Hand, free_bytes: float) -> None:
    conditions = Conditions(one.at_s, (Figure("free_memory_bytes", free_bytes),))
    one.send(Sensed(one.at_s, conditions))


def test_a_guard_demands_the_baseline_back() -> None:
    told = offers(Forecast(0.5, 0.02, extra_bytes=1_000))
    one = live_one(offered=told)
    one.run(20)
    assert one.case.live == 1
    sense(one, 1e6)
    one.run(1)
    assert one.case.live == one.live == 0
    assert one.told(Swap)[-1].reason.startswith("revert: memory: only 1,000,000 bytes are free")


def test_the_latency_guard_demands_it_too() -> None:
    limits = Limits(latency_s=1.2 * BASELINE_S)
    one = live_one([0.15], limits=limits)
    one.costs[1] = 1.3 * BASELINE_S
    one.until(is_live(0), most=60)
    swaps = one.told(Swap)
    assert "latency" in swaps[-1].reason or "no longer" in swaps[-1].reason


@pytest.mark.parametrize("kind", ["exception", "memory", "wrong"])
def test_a_live_choice_that_fails_is_out_for_good(kind: str) -> None:
    one = live_one()
    said = one.fail(1, kind)
    kinds = [type(item) for item in said]
    assert kinds[0] is Quarantine
    assert Swap in kinds
    assert said[0].reason == f"{kind}: it broke"  # type: ignore[union-attr]
    assert one.live == one.case.live == 0
    one.clear()
    one.run(2_000)
    assert one.said == []
    assert loop.settled(one.state)


@pytest.mark.parametrize("phase", [Phase.BUILDING, Phase.COMPARING, Phase.TRYING])
def test_a_choice_that_fails_on_the_way_is_dropped_and_another_tried(phase: Phase) -> None:
    one = hand([0.5, 0.6], settings=eager(), builds=phase is not Phase.BUILDING)
    one.until(lambda one: one.case.phase is phase)
    if phase is Phase.TRYING:
        one.run(2)
    assert one.case.candidate == 1
    said = one.fail(1)
    (taught,) = [item for item in said if isinstance(item, Teach)]
    assert taught.lesson.reward == -3.0
    assert one.case.phase is Phase.IDLE
    assert not one.deck
    one.builds = True
    one.building.clear()
    one.until(is_live(2))
    assert not [said for said in one.told(Deal) if 1 in said.order and said.trial > 1]


def test_a_wrong_output_never_gets_a_dealt_call() -> None:
    one = hand([0.5], settings=eager(), error_ratio=0.1)
    one.run(50)
    (out,) = one.told(Quarantine)
    assert "off by 0.1" in out.reason
    assert not one.told(Deal)


def test_a_choice_of_lower_precision_is_checked_again_and_again_while_live() -> None:
    def checks(exactness: Exactness) -> int:
        first, told = surely(0.5)
        choice = Choice("choice", (1,), exactness)
        one = hand([0.5], (first, replace(told, choice=choice)), eager(), Limits(error_ratio=0.01))
        one.until(is_live(1))
        one.clear()
        one.run(3_000)
        return len(one.told(Compare))

    assert checks(Exactness.LOWER) > 3 * checks(Exactness.ROUNDING) > 0


def test_a_live_choice_of_lower_precision_that_grows_wrong_is_out() -> None:
    first, told = surely(0.5)
    told = replace(told, choice=Choice("choice", (1,), Exactness.LOWER))
    one = hand([0.5], (first, told), eager(), Limits(error_ratio=0.01))
    one.until(is_live(1))
    one.error_ratio = 0.02
    one.until(is_live(0), most=400)
    assert one.case.arms[1].quarantined


def test_precision_is_checked_while_another_choice_is_being_built() -> None:
    first, told = surely(0.5)
    told = replace(told, choice=Choice("choice", (1,), Exactness.LOWER))
    another = surely(0.5, 0.6)[2]
    one = hand([0.5, 0.6], (first, told, another), eager(), Limits(error_ratio=0.01))
    one.choose = lambda query: 1
    one.until(is_live(1))
    one.choose, one.builds = lambda query: 2, False
    one.until(lambda one: one.case.phase is Phase.BUILDING)
    one.error_ratio = 0.02
    one.until(is_live(0), most=400)


def test_quarantine_reaches_all_buckets_and_those_opened_later() -> None:
    one = live_one()
    for bucket in ("B2", "B3"):
        one.send(Opened(one.at_s, SITE, bucket, surely(0.5)))
    elsewhere = replace(SITE, path="two")
    one.send(Opened(one.at_s, elsewhere, BUCKET, surely(0.5)))
    said = one.fail(1)
    assert {item.bucket for item in said if isinstance(item, Quarantine)} == {"B1", "B2", "B3"}
    one.send(Opened(one.at_s, SITE, "B4", surely(0.5)))
    one.send(Extended(one.at_s, SITE.key, "B4", surely(0.5)[1:]))
    for bucket in ("B1", "B2", "B3", "B4"):
        arms = one.state.cases[SITE.key, bucket].arms
        assert [arm.quarantined for arm in arms] == [False] + [True] * (len(arms) - 1)
    assert not one.state.cases[elsewhere.key, BUCKET].arms[1].quarantined


def test_quarantine_holds_for_a_site_found_again_as_it_was_and_not_for_a_changed_one() -> None:
    one = live_one()
    one.fail(1)
    one.send(Lost(one.at_s, SITE.key))
    one.send(Opened(one.at_s, SITE, BUCKET, surely(0.5)))
    assert one.case.arms[1].quarantined
    one.send(Lost(one.at_s, SITE.key))
    one.send(Opened(one.at_s, replace(SITE, fingerprint="changed"), BUCKET, surely(0.5)))
    assert not one.case.arms[1].quarantined


def test_the_baseline_cannot_be_put_out() -> None:
    one = live_one(offered=(surely(0.5)[0], surely(0.5)[1], surely(0.5)[0]), costs=[0.5, 1.0])
    assert one.fail(0) == ()
    one.fail(2)  # a family that offers its baseline twice
    assert [arm.quarantined for arm in one.case.arms] == [False, False, True]


@pytest.mark.parametrize("arm", [-1, 2, 99])
def test_faults_of_arms_that_there_are_none_of_change_nothing(arm: int) -> None:
    one = live_one()
    before = one.state
    assert one.send(Failed(one.at_s, *one.key, arm, "exception", "x")) == ()
    assert one.state == before


def test_a_lost_site_is_forgotten_and_its_late_news_ignored() -> None:
    one = live_one()
    other = replace(SITE, path="two")
    one.send(Opened(one.at_s, other, BUCKET, surely(0.5)))
    one.send(Lost(one.at_s, SITE.key))
    assert list(one.state.cases) == [(other.key, BUCKET)]
    assert one.read(Reading(1, 0.001), calls=1, live_s=0.001, live_work=1.0) == ()
    assert one.fail(1) == ()
    assert one.send(Compared(one.at_s, *one.key, 1, 0.0, 0.001, 0.001)) == ()


def test_what_is_offered_later_is_tried_too() -> None:
    one = live_one([0.8])
    one.costs += [0.3 * BASELINE_S]
    one.send(Extended(one.at_s, *one.key, surely(0.8, 0.3)[2:]))
    one.until(is_live(2))


def test_a_slot_without_slack_watches_by_itself() -> None:
    one = hand([0.5], settings=Settings())
    one.until(is_live(1))
    trips = one.told(Trip)
    assert trips[0].unit_s == pytest.approx(1.5 * BASELINE_S, rel=0.05)
    one.run(600)  # by now so much was gained that a slow run may be borne
    assert one.told(Trip)[-1].unit_s == float("inf")


def tight_live() -> Hand:
    one = hand([0.5], settings=Settings())
    one.until(is_live(1))
    one.clear()
    return one


def test_a_trip_is_followed_by_a_probe_and_an_exception_by_going_on() -> None:
    one = tight_live()
    one.trip(1)
    assert (one.live, one.case.live, one.case.suspended) == (0, 1, True)
    one.until(lambda one: bool(one.told(Swap)), most=20)
    assert one.told(Swap)[-1].arm == 1
    assert (one.live, one.case.suspended) == (1, False)


def test_a_second_trip_in_a_row_is_a_revert() -> None:
    one = tight_live()
    one.trip(1)
    one.trip(1)
    assert one.case.live == 0
    assert "twice" in one.told(Swap)[-1].reason


def test_a_trip_in_a_trial_ends_the_trial() -> None:
    one = hand([0.5], settings=eager())
    one.until(lambda one: one.case.phase is Phase.TRYING)
    one.trip(1)
    assert one.case.phase is Phase.IDLE
    assert one.case.arms[1].rejections == 1
    assert one.case.live == 0


def test_a_trip_of_another_choice_keeps_no_probe_waiting_for_ever() -> None:
    one = live_one([0.5, 0.6])
    one.until(lambda one: one.case.probe is not None)
    one.clear()
    one.trip(2)  # by a thread that was late; what was dealt is gone, the probe too
    one.run(10)
    assert one.told(Deal)
    one.run(10)
    assert one.case.probe is None


def freeze(one: Hand) -> None:
    one.send(Frozen(one.at_s))


@pytest.mark.parametrize("phase", [Phase.ASKING, Phase.BUILDING, Phase.COMPARING, Phase.TRYING])
def test_once_frozen_nothing_is_explored(phase: Phase) -> None:
    one = hand([0.5, 0.6], settings=eager(), builds=phase is not Phase.BUILDING)
    if phase is Phase.ASKING:
        one.choose = lambda query: None
    one.until(lambda one: one.case.phase is phase)
    freeze(one)
    assert loop.settled(one.state)
    assert not one.deck
    one.clear()
    if one.building:
        one.finish_build()
    one.run(1_000)
    assert one.said == []
    assert one.case.live == one.live == 0


def test_once_frozen_what_is_live_stays_and_still_reverts_when_it_fails() -> None:
    one = live_one([0.5, 0.6])
    one.run(50)
    freeze(one)
    one.clear()
    one.run(500)
    assert not [said for said in one.said if isinstance(said, Ask | Build | Deal | Compare | Swap)]
    assert one.live == 1
    one.fail(1)
    assert one.live == one.case.live == 0


def test_once_frozen_a_trip_is_a_revert_since_nothing_measures_any_more() -> None:
    one = tight_live()
    freeze(one)
    one.trip(1)
    assert one.case.live == 0
    assert not one.case.suspended
    other = tight_live()
    other.trip(1)
    freeze(other)
    assert (other.case.live, other.case.suspended) == (0, False)


def test_settled_is_when_nothing_is_left_to_try_until_something_changes() -> None:
    one = hand([0.5, 2.0], settings=eager(opening_calls=1e4))
    assert not loop.settled(one.state)
    one.until(lambda one: loop.settled(one.state))
    assert one.case.live == 1
    assert one.case.arms[2].rejections == 1
    one.send(Opened(one.at_s, SITE, "B2", surely(0.5)))
    assert not loop.settled(one.state)
    assert loop.settled(loop.begin(Settings(), Limits(), ()))


def test_when_the_level_moves_everything_is_looked_at_again() -> None:
    one = hand([0.5, 1.2], settings=eager(retry_calls=1 << 40, opening_calls=1e4))
    one.until(lambda one: loop.settled(one.state))
    one.run(100)
    one.costs[1], one.costs[2] = 0.9 * BASELINE_S, 0.4 * BASELINE_S
    one.until(is_live(2), most=200)
    assert any("the level has moved" in note.reason for note in one.told(Note))


def equals(most: float = 0.5) -> Hand:
    """Two Choices as good as one another, both told; the first is live."""
    one = hand([most, most, 1.5], offered=surely(0.5, 0.6, 0.9), settings=eager(opening_calls=1e4))
    one.until(lambda one: one.case.admitted == (0, 1, 2))
    return one


def test_an_actor_may_pick_among_what_proved_as_good() -> None:
    one = equals()
    assert one.told(Admit)[-1].arms == (0, 1, 2)
    one.run(300)
    assert one.case.admitted == (0, 1, 2)  # never what was slower


def test_where_the_baseline_is_back_nobody_picks() -> None:
    one = equals()
    one.clear()
    one.costs[0] *= 0.2
    one.until(is_live(0))
    assert one.told(Admit)[-1].arms == (0,)
    kinds = [type(said) for said in one.said if isinstance(said, Swap | Admit)]
    assert kinds[-2:] == [Swap, Admit]


def test_while_a_slow_run_is_looked_into_nobody_picks() -> None:
    one = equals()
    one.clear()
    one.trip(1)
    assert one.told(Admit)[-1].arms == (0,)
    one.until(lambda one: not one.case.suspended, most=20)
    assert one.told(Admit)[-1].arms == (0, 1, 2)


def test_what_was_picked_and_tripped_is_picked_no_more() -> None:
    one = equals()
    one.clear()
    one.trip(2)
    assert one.told(Admit)[-1].arms == (0, 1)


@pytest.mark.parametrize("arm", [2, 3])
def test_after_a_fault_the_actor_is_told_anew(arm: int) -> None:
    """The Slot ended its say, whichever Choice it was."""
    one = equals()
    one.clear()
    one.fail(arm)
    assert one.told(Admit)[-1].arms == ((0, 1) if arm == 2 else (0, 1, 2))


def test_drift_of_the_baseline_alone_never_stops_the_loop() -> None:
    """Once, the interval of probes was computed from a level that had just been forgotten."""
    first, told = surely(0.5)
    told = replace(told, choice=Choice("choice", (1,), Exactness.LOWER))
    one = hand([0.5], (first, told), eager(), Limits(error_ratio=0.01))
    one.until(is_live(1))
    one.run(200)
    one.costs[0] *= 40.0
    for _ in range(400):
        one.state = replace(
            one.state,
            cases={key: replace(case, compare_at_calls=0) for key, case in one.state.cases.items()},
        )
        one.run()
    assert one.case.live == 1
    assert any("moved" in note.reason for note in one.told(Note))


def test_a_recall_is_said_whenever_dealt_calls_are_given_up() -> None:
    one = live_one([0.5, 0.4])
    one.until(lambda one: one.case.phase is Phase.TRYING and bool(one.deck))
    one.clear()
    one.fail(1)
    assert one.told(Recall)
    assert not one.deck
