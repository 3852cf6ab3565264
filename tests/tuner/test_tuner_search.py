"""How the loop searches: what it asks, builds, compares, tries and lets go live, by hand."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from tuner_hand import BASELINE_S, BUCKET, SITE, Hand, hand, is_live, offers, surely

from grainshift.core.conditions import Conditions, Figure
from grainshift.core.events import Built, Compared, Proposed, Sensed
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.instructions import (
    Ask,
    Build,
    Compare,
    Deal,
    Note,
    Remember,
    Swap,
    Teach,
)
from grainshift.core.proposal import Proposal
from grainshift.core.settings import Settings
from grainshift.tuner import loop, rules
from grainshift.tuner.state import Phase


def nobody_answers(query: object) -> None:
    return None


def eager(**changes: object) -> Settings:
    """Settings under which little has to be waited for."""
    base = Settings(dwell_s=0.0, opening_calls=20.0, retry_calls=100)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("warm", [1, 8, 30, 100])
def test_nothing_happens_before_the_warm_calls(warm: int) -> None:
    one = hand([0.5, 0.6], settings=Settings(warm_calls=warm))
    one.run(warm - 1)
    assert one.said == []
    one.run(1)
    assert len(one.told(Ask)) == 1


def test_after_the_warm_calls_the_order_is_ask_build_compare_deal_swap() -> None:
    one = hand([0.5], settings=eager())
    one.until(is_live(1))
    kinds = [type(said) for said in one.said]
    order = [kinds.index(kind) for kind in (Ask, Build, Compare, Deal, Swap)]
    assert order == sorted(order)
    assert one.live == 1


def test_a_choice_goes_live_by_eight_runs_beside_the_baseline_and_no_fewer() -> None:
    one = hand([0.2], settings=eager())
    runs: Counter[int] = Counter()
    compared = 0
    while one.case.live == 0:
        if one.deck:
            arm, trial, _ = one.deck[0]
            runs[arm] += trial > 0
            compared += trial == -1
            assert compared or trial == -1  # compared before any dealt call
        one.run()
    assert compared == 1
    assert runs == {0: 8, 1: 8}


def test_canary_calls_say_how_many_runs_it_takes() -> None:
    one = hand([0.2], settings=eager(canary_calls=(1, 20, 64)))
    one.until(lambda one: bool(one.told(Swap)))
    (told,) = one.told(Remember)
    assert 10 <= told.blocks <= 12  # two runs a block


def try_unsteady(ratio: float, most: int) -> Hand:
    """Try a Choice that is faster in one block and slower in the next, until that is told."""
    settings = eager(canary_calls=(1, 8, most), opening_calls=1e6, margin=0.02)
    one = hand([ratio], settings=settings)
    while not one.told(Note):
        block = one.deck[0][2] if one.deck else 0
        one.costs[1] = BASELINE_S * (ratio + 0.05 * (1 if block % 2 else -1))
        one.run()
    assert one.case.live == 0
    assert one.case.arms[1].rejections == 1
    assert one.told(Note)[0].reason.startswith("choice(1): no clear gain")
    return one


@pytest.mark.parametrize("most", [64, 24])
def test_what_shows_no_clear_gain_is_given_up_by_then(most: int) -> None:
    one = try_unsteady(0.97, most)  # above the margin, by less than any bound can tell
    dealt = sum(said.blocks * said.order.count(1) for said in one.told(Deal))
    assert dealt == pytest.approx(most, abs=6)


def test_a_gain_that_has_become_unlikely_is_given_up_before_then() -> None:
    one = try_unsteady(1.0, 64)
    assert sum(said.blocks * said.order.count(1) for said in one.told(Deal)) <= 32


def test_a_slower_choice_is_given_up_early_and_named_so() -> None:
    one = hand([1.5], settings=eager())
    one.until(lambda one: bool(one.told(Note)))
    assert "slower" in one.told(Note)[0].reason
    assert sum(said.blocks for said in one.told(Deal)) <= 2
    assert not one.told(Swap)


def test_a_hopelessly_slow_first_run_is_not_repeated() -> None:
    one = hand([6.0], offered=surely(0.5), settings=eager())
    one.until(lambda one: bool(one.told(Note)))
    assert "6.0 times as long" in one.told(Note)[0].reason
    assert not one.told(Deal)
    (taught,) = one.told(Teach)
    assert taught.lesson.reward == pytest.approx(-math.log(6.0), abs=0.01)
    assert (one.case.phase, one.case.candidate) == (Phase.IDLE, 0)


def test_no_choice_is_asked_for_whose_worst_case_the_opening_budget_does_not_hold() -> None:
    told = offers(Forecast(0.8, 0.05), Forecast(0.8, 0.9), Forecast(3.0, 0.1))
    one = hand([0.8, 0.8, 3.0], offered=told, settings=Settings(), choose=nobody_answers)
    one.run(8)
    (ask,) = one.told(Ask)
    # one call's worth: choice 1 costs a comparison of 0.88 at worst, the others several calls
    assert ask.query.mask == (True, True, False, False)


def test_a_larger_opening_holds_more() -> None:
    told = offers(Forecast(0.8, 0.05), Forecast(0.8, 0.9), Forecast(3.0, 0.1))
    settings = Settings(opening_calls=20.0)
    one = hand([0.8, 0.8, 3.0], offered=told, settings=settings, choose=nobody_answers)
    one.run(8)
    assert one.told(Ask)[0].query.mask == (True, True, True, True)


def test_the_share_lets_it_be_tried_in_time() -> None:
    one = hand([3.0], offered=surely(3.0), settings=Settings())
    calls = one.until(lambda one: bool(one.told(Ask)))
    # 3.1 for the comparison and twice 2.1 for a block: 7.4 calls, at a 50th of the time
    assert 250 <= calls <= 450


def test_the_query_says_what_is_known() -> None:
    told = (*surely(0.5), replace(surely(0.7)[1], choice=surely(0.5, 0.5)[2].choice))
    told = (told[0], replace(told[1], remembered=0.4), told[2])
    one = hand([0.5, 0.7], offered=told, choose=nobody_answers, settings=eager())
    figures = (Figure("cpu_others", 0.5), Figure("free_memory_bytes", 8e9))
    one.send(Sensed(0.0, Conditions(0.0, figures)))
    one.run(8)
    query = one.told(Ask)[0].query
    assert query.state[0] == 4.0  # the Site's feature, then the Conditions
    assert len(query.state) == 12
    assert query.state[2] == pytest.approx(math.log1p(0.5))
    assert query.prior == (0.0, 0.4, pytest.approx(-math.log(0.7)))
    assert query.live == 0


def test_the_mask_holds_only_what_guards_admit_and_live() -> None:
    big = Forecast(0.5, 0.02, extra_bytes=2_000)
    limits = Limits(memory_bytes=1_000)
    told = offers(big, Forecast(0.5, 0.02, extra_bytes=500))
    one = hand([0.5, 0.5], offered=told, limits=limits, choose=nobody_answers, settings=eager())
    one.run(8)
    assert one.told(Ask)[0].query.mask == (True, False, True)


def test_no_call_that_checks_a_choice_breaks_the_latency_limit() -> None:
    limits = Limits(latency_s=1.5 * BASELINE_S)
    one = hand([0.6, 0.3], settings=eager(), limits=limits)
    one.run(200)
    checked = [said.arm for said in one.told(Compare)]
    assert checked[:1] == [2] and 1 not in checked  # 1.6 calls' time is too long, 1.3 is not
    assert one.case.live == 2
    assert rules.guarded(one.state, one.case, 1).startswith("latency: its check may take")
    slow = hand([0.6, 0.3], settings=eager(), limits=Limits(latency_s=0.9 * BASELINE_S))
    slow.until(is_live(1))  # stock alone breaks the limit: no reason to refuse what is faster


def test_nothing_is_asked_when_nothing_may_be_tried() -> None:
    one = hand([0.5], offered=offers(Forecast(0.5, 0.02, 2_000)), limits=Limits(memory_bytes=1))
    one.run(300)
    assert one.said == []
    assert loop.settled(one.state)


def test_a_refused_answer_builds_nothing_and_is_asked_again_later() -> None:
    one = hand([0.5, 0.5], settings=eager(), choose=nobody_answers)
    one.run(8)
    one.fail(2)
    for asked, arm in enumerate((2, 0, 7, -1), 1):
        one.until(lambda one, asked=asked: len(one.told(Ask)) == asked)
        one.send(Proposed(one.at_s, *one.key, Proposal(arm)))
        assert one.case.phase is Phase.IDLE
    assert not one.told(Build)


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    one = hand([0.5, 0.5], settings=eager())
    for event in (
        Proposed(0.0, SITE.key, BUCKET, Proposal(1)),
        Built(0.0, SITE.key, BUCKET, 1, 1.0),
        Compared(0.0, SITE.key, BUCKET, 1, 0.0, 0.001, 0.005),
        Built(0.0, SITE.key, BUCKET, 9, 1.0),
        Compared(0.0, SITE.key, BUCKET, -9, 0.0, 0.001, 0.005),
        Built(0.0, SITE.key, "another", 1, 1.0),
        Proposed(0.0, "no:site", BUCKET, Proposal(1)),
    ):
        assert one.send(event) == ()
    assert one.case.phase is Phase.IDLE


def test_a_build_that_ends_after_its_choice_failed_elsewhere_is_let_go() -> None:
    one = hand([0.5], settings=eager(), builds=False)
    one.until(lambda one: bool(one.building))
    one.fail(1)
    one.clear()
    one.finish_build()
    assert [type(said).__name__ for said in one.said] == ["Quarantine"]
    one.run(50)
    assert not one.told(Compare)


@pytest.mark.parametrize(("dwell_s", "held"), [(0.0, False), (5.0, True)])
def test_the_dwell_time_holds_a_voluntary_switch(dwell_s: float, held: bool) -> None:
    one = hand([0.8, 0.3], offered=surely(0.8, 0.9), settings=eager(dwell_s=dwell_s))
    one.until(is_live(1))
    first_s = one.at_s
    one.until(is_live(2))
    assert (one.at_s - first_s >= 5.0) is held


def test_while_a_proven_choice_waits_for_its_turn_the_live_one_is_probed() -> None:
    one = hand([0.8, 0.3], offered=surely(0.8, 0.9), settings=eager(dwell_s=1e6))
    one.until(is_live(1))
    one.until(lambda one: one.case.phase is Phase.TRYING)
    one.run(100)
    assert one.case.trial is not None
    assert not one.case.trial.is_under_way
    one.clear()
    one.run(400)
    assert len(one.told(Deal)) >= 2  # probes
    assert {said.order for said in one.told(Deal)} == {(0, 1, 1, 0)}
    one.costs[0] *= 0.3  # the baseline alone grows faster, which no live reading shows
    one.until(is_live(0), most=400)
    assert "revert" in one.told(Swap)[-1].reason


@pytest.mark.parametrize(("most", "within"), [(8, 8), (3, 3)])
def test_only_so_many_switches_in_a_window_but_reverts_pass(most: int, within: int) -> None:
    settings = eager(switches_per_window=most, window_s=1e6, retry_calls=1, backoff=1.0)
    one = hand([0.5], settings=settings)
    voluntary = reverts = 0
    for _ in range(20):
        one.costs[1] = 0.5 * BASELINE_S
        for _ in range(150):
            one.run()
            if one.case.live:
                break
        if not one.case.live:
            break
        one.costs[1] = 2.0 * BASELINE_S
        one.until(is_live(0))
    swaps = one.told(Swap)
    voluntary = sum(said.arm == 1 for said in swaps)
    reverts = sum(said.arm == 0 for said in swaps)
    assert reverts == voluntary
    assert within / 2 <= voluntary <= within / 2 + 1  # a revert counts, but is never held


def test_the_window_moves_on() -> None:
    settings = eager(switches_per_window=1, window_s=4.0)
    one = hand([0.8, 0.3], offered=surely(0.8, 0.9), settings=settings)
    one.until(is_live(1))
    first_s = one.at_s
    one.until(is_live(2))
    assert one.at_s - first_s >= 4.0


def waits(backoff: float, retry_calls: int, times: int) -> list[int]:
    """Calls between the trials of a Choice that is never good enough."""
    settings = eager(backoff=backoff, retry_calls=retry_calls, opening_calls=1e6, margin=0.1)
    one = hand([1.0], settings=settings)
    asked: list[int] = []
    while len(asked) <= times:
        before = len(one.told(Ask))
        one.run()
        if len(one.told(Ask)) > before:
            asked.append(one.calls)
    return [late - early for early, late in pairwise(asked)]


def test_the_wait_grows_with_each_rejection() -> None:
    doubling = waits(2.0, 100, 4)
    assert all(1.5 < late / early < 2.3 for early, late in pairwise(doubling))
    assert 100 <= doubling[0] <= 160
    steady = waits(1.0, 100, 3)
    assert max(steady) <= min(steady) + 10
    assert waits(1.0, 300, 1)[0] >= 300


def test_what_fell_far_behind_waits_longer() -> None:
    def wait(cost: float) -> int:
        one = hand([cost], offered=surely(0.9), settings=eager(opening_calls=1e6))
        one.until(lambda one: one.case.arms[1].rejections > 0)
        return one.case.arms[1].wait_until_calls - one.case.calls

    assert wait(1.05) < 0.7 * wait(1.5) < 0.7 * wait(3.0)


def test_waits_stay_numbers_whatever_the_settings() -> None:
    settings = eager(backoff=1e9, retry_calls=1 << 53, opening_calls=1e9)
    one = hand([1.0], settings=settings)
    one.until(lambda one: one.case.arms[1].rejections > 0)
    assert one.case.arms[1].wait_until_calls > 1 << 50


@pytest.mark.parametrize(("share", "least_s"), [(0.5, 20.0), (1.0, 10.0), (0.05, 200.0)])
def test_what_takes_long_to_build_is_asked_for_once_that_is_worth_it(
    share: float, least_s: float
) -> None:
    told = offers(Forecast(0.5, 0.02, build_s=10.0))
    settings = eager(build_share=share, opening_calls=1e4)
    one = hand([0.5], offered=told, settings=settings)
    one.costs = [10.0 * cost for cost in one.costs]
    one.until(lambda one: bool(one.told(Build)), most=6_000)
    assert one.at_s == pytest.approx(least_s, rel=0.05)


def test_what_was_measured_is_taught_and_remembered() -> None:
    one = hand([0.5, 2.0], settings=eager(opening_calls=1e4), offered=surely(0.5, 0.6))
    one.run(400)
    taught = {said.lesson.arm: said.lesson for said in one.told(Teach)}
    assert taught[1].reward == pytest.approx(math.log(2.0), abs=0.02)
    assert taught[2].reward == pytest.approx(-math.log(2.0), abs=0.02)  # over the baseline
    asked = [said.query for said in one.told(Ask)]
    assert all(lesson.query in asked for lesson in taught.values())
    assert all(lesson.query.mask[lesson.arm] for lesson in taught.values())
    (kept,) = one.told(Remember)  # the slower one was told in fewer than four blocks
    assert kept.arm == 1
    assert kept.log_gain == pytest.approx(math.log(2.0), abs=0.02)
    assert kept.blocks >= 4


def test_once_measured_the_gain_is_the_prior() -> None:
    one = hand([0.8, 0.6], offered=surely(0.5, 0.9), settings=eager(retry_calls=1))
    one.until(is_live(2))
    later = [said.query.prior[1] for said in one.told(Ask) if said.query.live]
    assert later[-1] == pytest.approx(-math.log(0.8), abs=0.02)


def test_the_policy_saying_stay_is_left_in_peace_for_a_while() -> None:
    one = hand([0.5], settings=eager(), choose=lambda query: query.live)
    one.run(300)
    assert 3 <= len(one.told(Ask)) <= 5
    assert not one.told(Build)


def test_the_budget_is_kept_when_every_forecast_lies() -> None:
    one = hand([3.5] * 6, offered=surely(*[0.5] * 6), settings=Settings())
    one.run(3_000)
    lost_s = one.at_s - one.calls * BASELINE_S
    trial_s = (3.5 + 2 * 2.5) * BASELINE_S
    assert lost_s <= 0.02 * one.calls * BASELINE_S + BASELINE_S + trial_s
    assert len(one.told(Compare)) >= 3


def test_two_cases_do_not_mix() -> None:
    """What happens to one, step by step between the steps of another, is what happens alone."""
    alone = hand([0.5, 2.0], settings=eager())
    alone.run(300)
    first = hand([0.5, 2.0], settings=eager())
    other = Hand(
        surely(3.0, 0.4), [BASELINE_S, 3.0 * BASELINE_S, 0.4 * BASELINE_S], first.state, bucket="B2"
    )
    first.state = other.state
    for _ in range(300):
        first.run()
        other.state = first.state
        other.run(2)
        first.state = other.state
    assert [said for said in first.said if said.bucket != BUCKET] == []
    assert first.said == alone.said
    assert first.case == alone.case
    assert other.case.live == 2
