"""Seeded cost tables for the simulated machine, ordinary ones and hostile ones.

Each function draws one table from a seed. The baseline is number 0 and costs 5 ms.
"""

import math
from collections.abc import Callable

import numpy as np

from grainshift.bench.simulate import Moment, Noise, Table

BASELINE_S = 0.005
SHIFT_AT = 2500
_DWELL_S = 0.25
Rng = np.random.Generator


def _ratios(rng: Rng, count: int, gap: float = 1.05) -> tuple[float, ...]:
    """Costs over the baseline's; the best is not the baseline and leads by `gap` at least."""
    ratios = np.exp(rng.normal(0.1, 0.4, count))
    ratios[0] = 1.0
    best = int(rng.integers(1, count))
    ratios[best] = np.delete(ratios, best).min() / gap / rng.uniform(1.0, 1.3)
    return tuple(float(ratio) for ratio in ratios)


def _claims(rng: Rng, ratios: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(float(ratio * math.exp(rng.normal(0.0, 0.3))) for ratio in ratios)


def _steady(name: str, ratios: tuple[float, ...], claims: tuple[float, ...], noise: Noise) -> Table:
    costs_s = tuple(BASELINE_S * ratio for ratio in ratios)
    return Table(name, len(ratios), lambda arm, moment: costs_s[arm], noise, claims)


def stationary(seed: int) -> Table:
    """Nothing changes; noise of 5 %, and the best leads by 5 % at least."""
    rng = np.random.default_rng(seed)
    ratios = _ratios(rng, int(rng.integers(3, 10)))
    return _steady("stationary", ratios, _claims(rng, ratios), Noise(0.05))


def equal(seed: int) -> Table:
    """All Choices cost the same, whatever their Forecasts claim."""
    rng = np.random.default_rng(seed)
    ratios = (1.0,) * int(rng.integers(3, 10))
    return _steady("equal", ratios, _claims(rng, ratios), Noise(0.05))


def heavy_tailed(seed: int) -> Table:
    """One call in thirty takes several times as long, whichever Choice runs."""
    rng = np.random.default_rng(seed)
    ratios = _ratios(rng, int(rng.integers(3, 8)))
    noise = Noise(0.05, tail_share=0.03, tail_factor=float(rng.uniform(1.0, 4.0)))
    return _steady("heavy_tailed", ratios, _claims(rng, ratios), noise)


def correlated(seed: int) -> Table:
    """The machine is slow and fast in long waves, three times the gap between the Choices."""
    rng = np.random.default_rng(seed)
    ratios = _ratios(rng, int(rng.integers(3, 8)))
    noise = Noise(0.15, correlation=float(rng.uniform(0.9, 0.995)))
    return _steady("correlated", ratios, _claims(rng, ratios), noise)


def lying(seed: int) -> Table:
    """Forecasts claim, and are sure, that everything is twice as fast; nothing is."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 8))
    ratios = (1.0, *(float(ratio) for ratio in rng.uniform(1.1, 8.0, count - 1)))
    claims = (1.0, *(float(ratio) for ratio in rng.uniform(0.3, 0.6, count - 1)))
    table = _steady("lying", ratios, claims, Noise(0.05))
    return Table(table.name, count, table.cost_s, table.noise, claims, spread=0.05)


def shifted(seed: int) -> Table:
    """Load arrives in mid-run: all slow down, and another Choice is the best."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 8))
    before = _ratios(rng, count)
    after = _ratios(rng, count)
    while int(np.argmin(after)) == int(np.argmin(before)):
        after = _ratios(rng, count)
    slower = float(rng.uniform(1.3, 3.0))

    def cost_s(arm: int, moment: Moment) -> float:
        if moment.call < SHIFT_AT:
            return BASELINE_S * before[arm]
        return BASELINE_S * slower * after[arm]

    def load(moment: Moment) -> float:
        return 0.0 if moment.call < SHIFT_AT else 0.5

    return Table("shifted", count, cost_s, Noise(0.05), _claims(rng, before), load=load)


def resonant(seed: int) -> Table:
    """Two Choices change places in the very rhythm in which a switch is allowed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 6))
    period_s = _DWELL_S * float(rng.choice([0.5, 1.0, 2.0])) * float(rng.uniform(0.95, 1.05))
    good, bad = float(rng.uniform(0.5, 0.9)), float(rng.uniform(1.2, 3.0))

    def cost_s(arm: int, moment: Moment) -> float:
        turn = int(moment.at_s / period_s)
        return BASELINE_S * (1.0 if arm == 0 else good if (turn + arm) % 2 else bad)

    return Table("resonant", count, cost_s, Noise(0.05), (good,) * count)


def turncoat(seed: int) -> Table:
    """The best Choice turns worst after some runs: in its canary, or soon after it went live."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 7))
    ratios = _ratios(rng, count)
    best, until = int(np.argmin(ratios)), int(rng.integers(1, 120))
    worst = float(rng.uniform(1.3, 5.0))

    def cost_s(arm: int, moment: Moment) -> float:
        if arm == best and moment.runs >= until:
            return BASELINE_S * worst
        return BASELINE_S * ratios[arm]

    return Table("turncoat", count, cost_s, Noise(0.05), _claims(rng, ratios))


def hidden(seed: int) -> Table:
    """The baseline alone grows faster in mid-run, which no live reading shows."""
    rng = np.random.default_rng(seed)
    ratios = _ratios(rng, int(rng.integers(3, 7)))
    at, factor = int(rng.integers(150, 2500)), float(rng.uniform(0.3, 0.7))

    def cost_s(arm: int, moment: Moment) -> float:
        faster = factor if arm == 0 and moment.call >= at else 1.0
        return BASELINE_S * ratios[arm] * faster

    return Table("hidden", len(ratios), cost_s, Noise(0.05), _claims(rng, ratios))


def faulty(seed: int) -> Table:
    """Half of the Choices raise, run out of memory, put out NaN or cannot be built."""
    rng = np.random.default_rng(seed)
    ratios = _ratios(rng, int(rng.integers(4, 9)))
    kinds = ("exception", "memory", "nan", "build")
    broken = rng.permutation(np.arange(1, len(ratios)))[: len(ratios) // 2]
    faults = {int(arm): str(rng.choice(kinds)) for arm in broken}
    table = _steady("faulty", ratios, _claims(rng, ratios), Noise(0.05))
    return Table(
        table.name, table.count, table.cost_s, table.noise, table.ratios, 0.3, 0.05, faults
    )


TABLES: tuple[Callable[[int], Table], ...] = (
    stationary,
    equal,
    heavy_tailed,
    correlated,
    lying,
    shifted,
    resonant,
    turncoat,
    hidden,
    faulty,
)
