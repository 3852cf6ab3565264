"""What every guard owes: a verdict on anything, with a reason, and no memory of its own."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grainshift.core.choice import Choice, Exactness
from grainshift.core.conditions import CONDITION_NAMES, Conditions, Figure
from grainshift.core.events import Compared, Offer
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.settings import Settings
from grainshift.core.verdict import Verdict
from grainshift.guards import GUARDS, make_guards

every_guard = pytest.mark.parametrize("kind", GUARDS)

NUMBERS = st.floats(0.0, 1e12) | st.sampled_from([0.0, 1e-300, math.inf, math.nan])
LIMITS = st.builds(
    Limits,
    memory_bytes=st.none() | st.integers(1, 1 << 50),
    error_ratio=st.none() | st.floats(1e-9, 1.0),
    latency_s=st.none() | st.floats(1e-9, 1e6),
)
OFFERS = st.builds(
    Offer,
    st.builds(
        Choice,
        st.sampled_from(["stock", "unrolled", "plan"]),
        st.lists(st.integers(0, 64) | st.sampled_from(["", "rows", "ü"]), max_size=3).map(tuple),
        st.sampled_from(Exactness),
    ),
    st.builds(
        Forecast,
        st.floats(1e-6, 1e6),
        st.floats(0.0, 5.0),
        st.integers(-(1 << 40), 1 << 50),
        st.floats(0.0, 1e4),
    ),
)
CONDITIONS = st.builds(
    Conditions,
    st.floats(0.0, 1e9),
    st.lists(st.builds(Figure, st.sampled_from(CONDITION_NAMES), NUMBERS), max_size=5).map(tuple),
)
COMPARED = st.builds(
    Compared, st.just(1.0), st.just("f:p"), st.just("b"), st.just(1), NUMBERS, NUMBERS, NUMBERS
)
BASELINE = Offer(Choice("stock"), Forecast(1.0, 0.0))


def verdicts(
    guard: Any, offer: Offer, now: Conditions, told: Compared, live_s: float, base_s: float
) -> list[Verdict]:
    return [
        guard.admit(offer, base_s, now),
        guard.accept(offer.choice, told),
        guard.keep(offer, live_s, base_s, now),
    ]


@every_guard
@given(LIMITS, OFFERS, CONDITIONS, COMPARED, NUMBERS, NUMBERS)
def test_a_verdict_on_anything_twice_the_same_and_refusals_with_a_reason(
    kind: Any,
    limits: Limits,
    offer: Offer,
    now: Conditions,
    told: Compared,
    live_s: float,
    base_s: float,
) -> None:
    guard = kind(Settings(), limits)
    first = verdicts(guard, offer, now, told, live_s, base_s)
    assert first == verdicts(guard, offer, now, told, live_s, base_s)
    assert first == verdicts(kind(Settings(), limits), offer, now, told, live_s, base_s)
    for verdict in first:
        if verdict.admitted:
            assert (verdict.guard, verdict.reason) == ("", "")
        else:
            assert verdict.guard == guard.name
            assert verdict.reason and "\n" not in verdict.reason
            assert str(offer.choice) in verdict.reason


@every_guard
@given(LIMITS, CONDITIONS, st.floats(1e-9, 1e6))
def test_the_baseline_is_never_refused(
    kind: Any, limits: Limits, now: Conditions, base_s: float
) -> None:
    told = Compared(1.0, "f:p", "b", 0, 0.0, base_s, base_s)
    for verdict in verdicts(kind(Settings(), limits), BASELINE, now, told, base_s, base_s):
        assert verdict.admitted


@every_guard
@given(OFFERS, st.floats(1e-9, 1e6))
def test_without_limits_and_with_room_only_lower_precision_is_refused(
    kind: Any, offer: Offer, base_s: float
) -> None:
    roomy = Conditions(1.0, (Figure("free_memory_bytes", float(1 << 60)),))
    guard = kind(Settings(), Limits())
    assert guard.keep(offer, base_s, base_s, roomy).admitted
    lower = offer.choice.exactness is Exactness.LOWER
    assert guard.admit(offer, base_s, roomy).admitted or (guard.name == "numerics" and lower)


@every_guard
@given(OFFERS, CONDITIONS, NUMBERS)
def test_a_guard_without_its_limit_takes_no_note_of_the_others(
    kind: Any, offer: Offer, now: Conditions, base_s: float
) -> None:
    everything = {"memory_bytes": 1, "error_ratio": 1e-9, "latency_s": 1e-9}
    own = {"memory": "memory_bytes", "numerics": "error_ratio", "latency": "latency_s"}
    guard = kind(Settings(), Limits())
    del everything[own[guard.name]]
    other = kind(Settings(), Limits(**everything))  # type: ignore[arg-type]
    assert guard.admit(offer, base_s, now) == other.admit(offer, base_s, now)
    assert guard.keep(offer, base_s, base_s, now) == other.keep(offer, base_s, base_s, now)


def test_names_differ_and_guards_are_values() -> None:
    made = make_guards(Settings(), Limits(1, 0.1, 0.1))
    assert [type(guard) for guard in made] == list(GUARDS)
    assert len({guard.name for guard in made}) == len(GUARDS)
    assert made == make_guards(Settings(), Limits(1, 0.1, 0.1))
    assert len({*made}) == len(GUARDS)  # they can be compared and hashed
    with pytest.raises(AttributeError):
        made[0].limits = Limits()  # type: ignore[attr-defined]
