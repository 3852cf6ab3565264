import math

import pytest
from guard_cases import compared, errors, exactness, free, offer
from hypothesis import assume, given
from hypothesis import strategies as st

from grainshift.core.choice import Choice, Exactness
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.guards.numerics import Numerics

EXACT, ROUNDING, LOWER = Exactness


def guard(budget: float | None = None, rounding: float = 1e-4) -> Numerics:
    return Numerics(Settings(rounding_ratio=rounding), Limits(error_ratio=budget))


def accepts(kind: Exactness, error: float, budget: float | None = None) -> bool:
    return guard(budget).accept(Choice("rolled", (8,), kind), compared(error)).admitted


@pytest.mark.parametrize("budget", [None, 0.01])
@pytest.mark.parametrize("kind", Exactness)
def test_lower_precision_needs_a_budget_and_nothing_else_does(
    kind: Exactness, budget: float | None
) -> None:
    verdict = guard(budget).admit(offer(exactness=kind), 1.0, free(None))
    assert verdict.admitted is (kind is not LOWER or budget is not None)
    if not verdict.admitted:
        assert (verdict.guard, verdict.reason) == ("numerics", "rolled(8) needs an error budget")


@given(exactness, errors, errors, st.none() | st.floats(1e-9, 1.0))
def test_a_larger_error_never_turns_refused_into_accepted(
    kind: Exactness, smaller: float, larger: float, budget: float | None
) -> None:
    assume(smaller <= larger)  # NaN is neither
    assert accepts(kind, smaller, budget) or not accepts(kind, larger, budget)


@given(errors, st.none() | st.floats(1e-9, 1.0))
def test_a_looser_promise_never_turns_accepted_into_refused(
    error: float, budget: float | None
) -> None:
    assert accepts(ROUNDING, error, budget) or not accepts(EXACT, error, budget)
    if budget is not None and budget >= 1e-4:
        assert accepts(LOWER, error, budget) or not accepts(ROUNDING, error, budget)


@given(errors, st.floats(1e-9, 1.0), st.floats(1e-9, 1.0))
def test_a_larger_budget_never_turns_accepted_into_refused(
    error: float, smaller: float, larger: float
) -> None:
    assume(smaller <= larger)
    assert accepts(LOWER, error, larger) or not accepts(LOWER, error, smaller)


@pytest.mark.parametrize("kind", Exactness)
@pytest.mark.parametrize("error", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_good_enough(kind: Exactness, error: float) -> None:
    verdict = guard(1.0).accept(Choice("rolled", (8,), kind), compared(error))
    assert not verdict.admitted and verdict.guard == "numerics"
    assert "rolled(8) is off by" in verdict.reason


@pytest.mark.parametrize(
    ("kind", "error", "accepted"),
    [
        (EXACT, 0.0, True),
        (EXACT, 5e-324, False),
        (ROUNDING, 1e-4, True),
        (ROUNDING, 1.0001e-4, False),
        (LOWER, 1e-2, True),
        (LOWER, 1.0001e-2, False),
    ],
)
def test_the_limits_are_exact(kind: Exactness, error: float, accepted: bool) -> None:
    assert accepts(kind, error, 1e-2) is accepted


def test_without_a_budget_lower_precision_must_be_the_same() -> None:
    assert accepts(LOWER, 0.0) and not accepts(LOWER, 1e-12)


def test_the_setting_says_what_rounding_is() -> None:
    choice = Choice("rolled", (8,), ROUNDING)
    assert guard(rounding=0.1).accept(choice, compared(0.09)).admitted
    assert not guard(rounding=0.0).accept(choice, compared(1e-9)).admitted
