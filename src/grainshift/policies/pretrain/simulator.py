"""Plays recorded Traces as episodes of decisions. Knows no learner, clock or Gymnasium.

An episode is one Site in one bucket. A decision stands for a stretch of segments, between two
looks at the Conditions; meanwhile the load may change. What a Choice gains in a stretch is one of
the gains that were measured. The Conditions of a moment are any that were seen under its load, so
that what happened to coincide with one layer is not learnt as if it belonged to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from grainshift.core.choice import Exactness
from grainshift.core.conditions import Conditions
from grainshift.core.errors import NotTunable
from grainshift.core.proposal import Query, state_of
from grainshift.core.trace import Cost, Trace

__all__ = ["Outcome", "Rules", "Simulator", "Weights", "ask", "offered", "reward"]

_BASELINE = 0


@dataclass(frozen=True, slots=True)
class Weights:
    """What a decision is worth: the log gain in time, and a little for memory and cache hits."""

    time: float = 1.0
    memory: float = 0.02
    cache: float = 0.05


@dataclass(frozen=True, slots=True)
class Rules:
    """How an episode goes.

    stretches: decisions in it. stretch_s: seconds from one to the next. dwell_s: shortest time
    between two switches. turn_share: how often the load turns before a decision. limited_share
    and lower_share: episodes under a limit of memory, and those that allow lower precision.
    """

    stretches: int = 16
    stretch_s: float = 0.2
    dwell_s: float = 0.25
    turn_share: float = 0.1
    limited_share: float = 0.25
    lower_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a decision, and the question that follows; None at the end."""

    reward: float
    following: Query | None


def reward(
    cost: Cost, baseline: Cost, gain: float, limit_bytes: int | None, weights: Weights
) -> float:
    """Time as a log ratio, the share of a memory limit that is used, and cache hits won."""
    used = cost.extra_bytes / limit_bytes if limit_bytes else 0.0
    hits = cost.hit_ratio - baseline.hit_ratio
    return weights.time * gain - weights.memory * used + weights.cache * hits


def ask(
    trace: Trace,
    conditions: Conditions,
    lower: bool,
    limit_bytes: int | None = None,
    live: int = _BASELINE,
    bound: bool = False,
) -> Query:
    """The question at a Trace: masked by the limit, and to the live Choice while it is bound."""
    costs = offered(trace, lower)
    mask = tuple(
        number == live
        or (not bound and (number == _BASELINE or _fits(cost.extra_bytes, limit_bytes)))
        for number, cost in enumerate(costs)
    )
    return Query(
        trace.architecture,
        trace.bucket,
        state_of(trace.features, conditions),
        tuple(cost.choice for cost in costs),
        mask,
        tuple(cost.expected_gain for cost in costs),
        live,
    )


def offered(trace: Trace, lower: bool) -> tuple[Cost, ...]:
    """What is offered, with or without lower precision."""
    return tuple(c for c in trace.costs if lower or c.choice.exactness is not Exactness.LOWER)


def _fits(extra_bytes: int, limit_bytes: int | None) -> bool:
    return limit_bytes is None or extra_bytes <= limit_bytes


@final
class Simulator:
    """Episodes on recorded Traces; equal seeds and answers give equal episodes."""

    def __init__(
        self, traces: Sequence[Trace], rules: Rules | None = None, weights: Weights | None = None
    ) -> None:
        if not traces:
            raise NotTunable("there is no trace to train on; profile for more minutes")
        self.rules = rules or Rules()
        self.weights = weights or Weights()
        self._cases = _cases(traces)
        self._seen = {
            load: [trace.conditions for trace in traces if trace.load == load]
            for load in dict.fromkeys(trace.load for trace in traces)
        }
        self._draw = np.random.default_rng(0)
        self._left = 0

    def begin(self, seed: int | None = None) -> Query:
        """Begin an episode; without a seed, the next one after those before."""
        if seed is not None:
            self._draw = np.random.default_rng(seed)
        rules, draw = self.rules, self._draw
        self._loads = self._cases[int(draw.integers(len(self._cases)))]
        self._trace = self._loads[int(draw.integers(len(self._loads)))]
        self._lower = bool(draw.random() < rules.lower_share)
        self._limit_bytes = self._draw_limit()
        self._live, self._left = _BASELINE, rules.stretches
        self._since_s = rules.dwell_s
        return self._query()

    def step(self, arm: int) -> Outcome:
        """Let a Choice run for a stretch."""
        if self._left <= 0 or not 0 <= arm < len(self._asked.mask) or not self._asked.mask[arm]:
            raise ValueError(f"choice {arm} may not run now; pick what the mask allows")
        self._since_s = 0.0 if arm != self._live else self._since_s
        self._since_s += self.rules.stretch_s
        self._live = arm
        costs = offered(self._trace, self._lower)
        gain = float(self._draw.choice(costs[arm].gains))
        worth = reward(costs[arm], costs[_BASELINE], gain, self._limit_bytes, self.weights)
        self._left -= 1
        if self._draw.random() < self.rules.turn_share:
            self._trace = self._loads[int(self._draw.integers(len(self._loads)))]
        return Outcome(worth, self._query() if self._left else None)

    def _query(self) -> Query:
        seen = self._seen[self._trace.load]
        conditions = seen[int(self._draw.integers(len(seen)))]
        bound = self._since_s < self.rules.dwell_s
        self._asked = ask(
            self._trace, conditions, self._lower, self._limit_bytes, self._live, bound
        )
        return self._asked

    def _draw_limit(self) -> int | None:
        if self._draw.random() >= self.rules.limited_share:
            return None
        most = max(cost.extra_bytes for cost in self._trace.costs)
        return max(1, int(self._draw.random() * most))


def _cases(traces: Sequence[Trace]) -> list[tuple[Trace, ...]]:
    """Traces that differ in their load alone, together."""
    found: dict[tuple[object, ...], list[Trace]] = {}
    for trace in traces:
        found.setdefault((trace.architecture, trace.bucket, trace.choices), []).append(trace)
    return [tuple(group) for group in found.values()]
