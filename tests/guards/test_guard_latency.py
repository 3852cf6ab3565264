import math

import pytest
from guard_cases import compared, free, offer, ratios, seconds
from hypothesis import assume, given
from hypothesis import strategies as st

from grainshift.core.choice import Choice
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.guards.latency import Latency

CHOICE = Choice("rolled", (8,))
NOW = free(None)


def guard(most: float | None) -> Latency:
    return Latency(Settings(), Limits(latency_s=most))


@given(st.none() | seconds, seconds, ratios, ratios, st.floats(0.0, 3.0))
def test_a_slower_forecast_never_turns_refused_into_admitted(
    most: float | None, baseline_s: float, fast: float, slow: float, spread: float
) -> None:
    assume(fast <= slow)
    quick, late = (
        guard(most).admit(offer(0, ratio, spread), baseline_s, NOW).admitted
        for ratio in (fast, slow)
    )
    assert quick or not late


@given(st.none() | seconds, seconds, ratios, st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_a_vaguer_forecast_never_turns_refused_into_admitted(
    most: float | None, baseline_s: float, ratio: float, sure: float, vague: float
) -> None:
    assume(sure <= vague)
    one, other = (
        guard(most).admit(offer(0, ratio, spread), baseline_s, NOW).admitted
        for spread in (sure, vague)
    )
    assert one or not other


@given(st.none() | seconds, seconds, seconds, seconds)
def test_a_slower_run_never_turns_refused_into_accepted_or_kept(
    most: float | None, baseline_s: float, fast: float, slow: float
) -> None:
    assume(fast <= slow)
    accepted = [
        guard(most).accept(CHOICE, compared(0.0, s, baseline_s)).admitted for s in (fast, slow)
    ]
    kept = [guard(most).keep(offer(), s, baseline_s, NOW).admitted for s in (fast, slow)]
    assert accepted[0] or not accepted[1]
    assert kept[0] or not kept[1]


@given(seconds, seconds, seconds)
def test_a_baseline_that_breaks_the_limit_itself_is_no_reason_to_refuse(
    most: float, baseline_s: float, live_s: float
) -> None:
    assume(baseline_s > most)
    assert guard(most).accept(CHOICE, compared(0.0, live_s, baseline_s)).admitted
    assert guard(most).keep(offer(), live_s, baseline_s, NOW).admitted


@pytest.mark.parametrize(
    ("baseline_s", "ratio", "spread", "admitted"),
    [
        (0.010, 2.0, 0.0, True),
        (0.010, 2.001, 0.0, False),
        (0.010, 1.0, 0.5 * math.log(2.0), True),
        (0.010, 1.0, 0.5 * math.log(2.01), False),
        (0.019, 1.0, 0.1, False),
    ],
)
def test_the_pessimistic_forecast_counts(
    baseline_s: float, ratio: float, spread: float, admitted: bool
) -> None:
    verdict = guard(0.020).admit(offer(0, ratio, spread), baseline_s, NOW)
    assert verdict.admitted is admitted
    if not admitted:
        assert verdict.guard == "latency" and "the limit is 0.02 s" in verdict.reason


def test_the_limit_itself_is_no_break_of_it() -> None:
    assert guard(0.02).accept(CHOICE, compared(0.0, 0.02, 0.01)).admitted
    assert guard(0.02).keep(offer(), 0.02, 0.01, NOW).admitted
    assert not guard(0.02).accept(CHOICE, compared(0.0, 0.0201, 0.02)).admitted
    assert not guard(0.02).keep(offer(), 0.0201, 0.02, NOW).admitted
