"""What Readings prove: bounds under continuous looking, levels and drift, on seeded draws."""

import math
from collections.abc import Callable
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grainshift.tuner.evidence import Bounds, Cusum, Level, bounds

NOISE = 0.05
ERROR = 0.05
BLOCKS = 200
Draw = Callable[[np.random.Generator, int], np.ndarray]
many = settings(max_examples=200, deadline=None)
differences = st.lists(st.floats(-2.0, 2.0, width=32), min_size=1, max_size=60).map(tuple)


def gaussian(rng: np.random.Generator, count: int) -> np.ndarray:
    return NOISE * rng.standard_normal(count)


def laplace(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.laplace(0.0, NOISE / math.sqrt(2.0), count)


def outliers(rng: np.random.Generator, count: int) -> np.ndarray:
    values = gaussian(rng, count)
    values[rng.random(count) < 0.05] *= 10.0
    return values


def is_out(told: Bounds) -> bool:
    return told.low > 0.0 or told.high < 0.0


def ever_out(values: np.ndarray, first_look: int, error: float) -> bool:
    seen = tuple(values.tolist())
    return any(is_out(bounds(seen[:n], NOISE, error)) for n in range(first_look, len(seen) + 1))


@pytest.mark.parametrize(
    ("draw", "first_look"),
    # Of outliers of ten deviations, a lone first one counts: no bound can tell it from a level,
    # and all that a single block can do is put a Choice off. Going live takes four.
    [(gaussian, 1), (laplace, 1), (outliers, 2)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_bounds_hold_however_often_one_looks(draw: Draw, first_look: int) -> None:
    runs = 200
    wrong = sum(
        ever_out(draw(np.random.default_rng(seed), BLOCKS), first_look, ERROR)
        for seed in range(runs)
    )
    # The sequence is asymptotic, so that its error is met only nearly: a quarter more is allowed,
    # and three standard deviations of the count itself.
    most = 1.25 * ERROR * runs
    assert wrong <= most + 3.0 * math.sqrt(most)


def test_an_interval_for_one_look_would_not_hold() -> None:
    """The test above can fail: the usual interval does."""
    wrong = 0
    for seed in range(100):
        values = gaussian(np.random.default_rng(seed), BLOCKS)
        counts = np.arange(1, BLOCKS + 1)
        wrong += bool((np.abs(values.cumsum() / counts) > 1.96 * NOISE / np.sqrt(counts)).any())
    assert wrong > 30


def test_a_smaller_error_is_met_as_well() -> None:
    runs = 200
    wrong = sum(
        ever_out(gaussian(np.random.default_rng(1_000 + seed), BLOCKS), 1, 0.005)
        for seed in range(runs)
    )
    assert wrong <= 1.25 + 3.0 * math.sqrt(1.25)


@pytest.mark.parametrize(("gain", "most"), [(0.05, 40), (0.10, 14), (0.30, 5)])
def test_a_gain_is_proven_within_a_fair_number_of_blocks(gain: float, most: int) -> None:
    needed = []
    for seed in range(40):
        values = tuple((gain + gaussian(np.random.default_rng(seed), 120)).tolist())
        proofs = (n for n in range(1, 121) if bounds(values[:n], NOISE, ERROR).low > 0.0)
        needed.append(next(proofs, 999))
    assert median(needed) <= most


@many
@given(differences, st.floats(-3.0, 3.0, width=32))
def test_a_shift_shifts_the_bounds(values: tuple[float, ...], shift: float) -> None:
    plain = bounds(values, NOISE, ERROR)
    moved = bounds(tuple(value + shift for value in values), NOISE, ERROR)
    assert moved.mean == pytest.approx(plain.mean + shift, abs=1e-5)
    assert moved.low == pytest.approx(plain.low + shift, abs=1e-5)
    assert moved.high == pytest.approx(plain.high + shift, abs=1e-5)


@many
@given(differences, st.sampled_from([0.5, 2.0, 4.0]))
def test_a_scale_scales_the_bounds(values: tuple[float, ...], scale: float) -> None:
    plain = bounds(values, NOISE, ERROR)
    scaled = bounds(tuple(value * scale for value in values), NOISE * scale, ERROR)
    for name in ("low", "mean", "high", "deviation"):
        assert getattr(scaled, name) == pytest.approx(scale * getattr(plain, name), rel=1e-6)


@many
@given(differences, st.floats(1e-6, 0.4), st.floats(1.01, 100.0))
def test_to_be_surer_is_to_say_less(values: tuple[float, ...], error: float, factor: float) -> None:
    sure, unsure = (bounds(values, NOISE, e) for e in (error / factor, error))
    assert sure.low < unsure.low <= unsure.mean == sure.mean <= unsure.high < sure.high


@many
@given(differences)
def test_the_order_of_blocks_does_not_matter(values: tuple[float, ...]) -> None:
    there, back = bounds(values, NOISE, ERROR), bounds(values[::-1], NOISE, ERROR)
    assert there.low == pytest.approx(back.low)
    assert there.high == pytest.approx(back.high)


@many
@given(st.floats(-3.5 * NOISE, 3.5 * NOISE))
def test_one_block_proves_nothing_at_ordinary_noise(value: float) -> None:
    assert not is_out(bounds((value,), NOISE, ERROR))


def test_nothing_proves_nothing() -> None:
    told = bounds((), NOISE, ERROR)
    assert (told.low, told.high) == (-math.inf, math.inf)


def test_one_wild_block_does_not_decide() -> None:
    calm = (0.1, 0.11, 0.09, 0.1, 0.1, 0.12, 0.09, 0.11)
    wild = bounds((*calm, -40.0), NOISE, ERROR)
    assert wild.mean > 0.05
    assert wild.high > bounds(calm, NOISE, ERROR).mean


def waves(seed: int, count: int, correlation: float) -> np.ndarray:
    """An AR(1) of standard deviation 1."""
    shocks = np.random.default_rng(seed).standard_normal(count)
    for at in range(1, count):
        shocks[at] = correlation * shocks[at - 1] + math.sqrt(1 - correlation**2) * shocks[at]
    return shocks


def level_of(values: np.ndarray) -> Level:
    level = Level()
    for value in values.tolist():
        level = level.add(value)
    return level


def test_a_level_knows_mean_and_noise_of_independent_runs() -> None:
    levels = [level_of(-5.0 + 0.1 * waves(seed, 400, 0.0)) for seed in range(40)]
    assert median(level.mean for level in levels) == pytest.approx(-5.0, abs=0.01)
    assert median(level.noise for level in levels) == pytest.approx(0.1, rel=0.15)
    # Runs that do not resemble one another need no wider deviation to tell drift.
    assert median(level.drift_noise for level in levels) == pytest.approx(0.1, rel=0.3)
    expected_s = math.exp(-5.0 + 0.1**2 / 2.0)
    assert median(level.unit_s for level in levels) == pytest.approx(expected_s, rel=0.02)


@pytest.mark.parametrize("correlation", [0.9, 0.97, 0.99])
def test_in_slow_waves_neighbours_differ_little_and_drift_takes_more(correlation: float) -> None:
    levels = [level_of(-5.0 + 0.1 * waves(seed, 800, correlation)) for seed in range(40)]
    steps = 0.1 * math.sqrt(1.0 - correlation)  # of an AR(1), what neighbours differ by
    assert median(level.noise for level in levels) == pytest.approx(steps, rel=0.35)
    assert all(level.noise < level.drift_noise for level in levels)
    assert median(level.drift_noise for level in levels) > 0.15


def test_until_there_are_a_few_runs_the_noise_is_guessed() -> None:
    level = level_of(np.array([-5.0, -5.0, -5.0]))
    assert level.noise == level.drift_noise == 0.1
    assert level.add(-5.0).noise == pytest.approx(0.002)
    assert Level().unit_s == math.inf


@many
@given(st.lists(st.floats(-60.0, 60.0), max_size=80))
def test_a_level_stays_a_number(values: list[float]) -> None:
    level = level_of(np.array(values))
    told = (level.noise, level.drift_noise, level.standard(0.0), level.variance)
    assert all(map(math.isfinite, told))
    assert level.unit_s > 0.0
    assert level.noise > 0.0


def seen_after(values: np.ndarray, slack: float = 0.5, limit: float = 8.0) -> int:
    """Samples until a CUSUM hits; one more than there are where it does not."""
    drift = Cusum()
    for at, value in enumerate(values.tolist(), 1):
        drift = drift.add(value, slack)
        if drift.hit(limit):
            return at
    return len(values) + 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_change_of_one_deviation_is_seen_in_about_sixteen(sign: float) -> None:
    taken = [seen_after(sign + waves(seed, 400, 0.0)) for seed in range(200)]
    assert 12 <= median(taken) <= 18


def test_false_alarms_are_rare() -> None:
    alarms, samples = 0, 0
    for seed in range(40):
        values = waves(seed, 4_000, 0.0)
        taken = seen_after(values)
        alarms += taken <= len(values)
        samples += min(taken, len(values))
    assert samples / max(alarms, 1) > 4_000  # the average run length


def test_no_alarm_in_slow_waves_where_an_alarm_by_single_runs_would_ring() -> None:
    told, naive = 0, 0
    for seed in range(20):
        values = 0.1 * waves(seed, 400, 0.97)
        level = level_of(values[:100])
        wide, narrow = [], []
        for value in values[100:].tolist():
            wide.append(level.standard(value))
            narrow.append(max(-4.0, min(4.0, (value - level.mean) / level.noise)))
            level = level.add(value)
        told += seen_after(np.array(wide)) <= len(wide)
        naive += seen_after(np.array(narrow)) <= len(narrow)
    assert told <= 3
    assert naive >= 17
