"""Traces of made-up layers whose best Choice is known: it turns with the size and with the load."""

import random

from grainshift.core.choice import Choice, Exactness
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.trace import Cost, Trace

SIZES = (32, 64, 128, 256, 512, 1024)
LOADS = {"calm": 0.02, "busy": 0.6}
CHOICES = (
    Choice("stock"),
    Choice("rolled", (), Exactness.ROUNDING),
    Choice("unrolled", (8,), Exactness.ROUNDING),
    Choice("unrolled", (8, "solo"), Exactness.ROUNDING),
    Choice("unrolled", (8, "bf16"), Exactness.LOWER),
)


def gains(size: int, load: str) -> tuple[float, ...]:
    """The team gains where layers are large and the machine is calm, solo where one is not."""
    large, calm = size > 200, load == "calm"
    team = 0.6 if large and calm else -0.4
    solo = 0.5 if large and not calm else 0.1
    return (0.0, 0.3 if not large else -0.2, team, solo, team + 0.2)


def conditions(load: str, draw: random.Random) -> Conditions:
    others = LOADS[load] * draw.uniform(0.8, 1.2)
    return Conditions(0.0, (Figure("cpu_others", others), Figure("free_memory_bytes", 1e9)))


def trace(size: int, load: str, left_out: str = "", seed: int = 0) -> Trace:
    draw = random.Random(size + seed)
    costs = tuple(
        Cost(
            choice,
            tuple(round(gain + draw.gauss(0.0, 0.03), 4) for _ in range(6)) if place else (0.0,),
            extra_bytes=place * 1000,
            hit_ratio=0.5,
        )
        for place, (choice, gain) in enumerate(zip(CHOICES, gains(size, load), strict=True))
    )
    features = (("hidden", float(size)), ("batch", 1.0), ("steps", 64.0))
    where = conditions(load, draw)
    return Trace(f"layer {size}", "B1.T64", load, features, where, 1e-3, costs, left_out)


def traces() -> tuple[Trace, ...]:
    """All sizes under both loads; two sizes are left out of training."""
    return tuple(
        trace(size, load, "architecture" if size in (64, 512) else "")
        for size in SIZES
        for load in LOADS
    )
