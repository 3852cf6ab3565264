"""Offers, conditions, limits and comparisons for the guards' tests, plain ones and odd ones."""

import math

from hypothesis import strategies as st

from grainshift.core.choice import Choice, Exactness
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.events import Compared, Offer
from grainshift.core.forecast import Forecast, Limits


def offer(
    extra_bytes: int = 0,
    time_ratio: float = 1.0,
    spread: float = 0.0,
    exactness: Exactness = Exactness.EXACT,
) -> Offer:
    return Offer(Choice("rolled", (8,), exactness), Forecast(time_ratio, spread, extra_bytes))


def free(free_bytes: float | None) -> Conditions:
    figures = () if free_bytes is None else (Figure("free_memory_bytes", free_bytes),)
    return Conditions(1.0, figures)


def compared(error: float, choice_s: float = 1.0, baseline_s: float = 1.0) -> Compared:
    return Compared(1.0, "family:path", "b", 1, error, choice_s, baseline_s)


byte_counts = st.integers(0, 1 << 45)
seconds = st.floats(1e-9, 1e6)
ratios = st.floats(1e-3, 1e3)
errors = st.floats(0.0, 1e6) | st.sampled_from([math.inf, math.nan])
exactness = st.sampled_from(list(Exactness))
limits = st.builds(
    Limits,
    memory_bytes=st.none() | st.integers(1, 1 << 45),
    error_ratio=st.none() | st.floats(1e-9, 1.0),
    latency_s=st.none() | seconds,
)
offers = st.builds(offer, byte_counts, ratios, st.floats(0.0, 3.0), exactness)
conditions = st.builds(free, st.none() | st.floats(0.0, 1e14))
