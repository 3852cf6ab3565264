"""Puts the tuner's promises to the test on seeded tables, beside chance and a plain bandit.

Each promise is a Row of its own; `limit` is what was promised. All times are simulated.
"""

import multiprocessing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from grainshift.bench.rivals import Chance, plain_bandit
from grainshift.bench.row import Row, geometric_mean
from grainshift.bench.simulate import Moment, Simulation, Table, Trace
from grainshift.bench.tables import BASELINE_S, SHIFT_AT, TABLES
from grainshift.core.policy import Policy
from grainshift.policies import make_policy

__all__ = ["run"]

POLICIES = ("bandit", "fixed", "qlearning", "dqn", "ppo", "random")
DEFAULT = "bandit"
Seconds = NDArray[np.float64]
_WINDOW = 200
_NEAR = 0.95
_CALLS, _MOST_CALLS = 6_000, 24_000
_FREE_CALLS = 100
_SEEDS, _QUICK_SEEDS = 200, 16
_BUILT_FOR: dict[str, tuple[int, str]] = {
    "stationary": (0, "within 200 decisions"),
    "shifted": (SHIFT_AT, "within 100 decisions after the shift"),
}
_MOST_DECISIONS = {"stationary": 200, "shifted": 100}
_PROMISED = {"stationary": 0.95, "shifted": 0.90}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seeded run. `overrun` is how far the time ever went beyond 1.02 × the baseline after
    the first 100 calls, and `trial` what one trial may cost, both in calls of the baseline.
    """

    near_decisions: float
    near_calls: float
    near_s: float
    overrun: float
    trial: float
    baseline_share: float
    speedup: float
    best_speedup: float
    bandit_speedup: float
    bandit_overrun: float
    bandit_wrong: int
    wrong: int


def run(quick: bool = False, only: str | None = None) -> list[Row]:
    """The Rows of every table and policy whose name contains `only`."""
    seeds = range(_QUICK_SEEDS if quick else _SEEDS)
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool() as pool:
        for make in TABLES:
            for policy in POLICIES if make.__name__ in _BUILT_FOR else (DEFAULT,):
                if only is None or only in f"{make.__name__} {policy}":
                    jobs = [(make.__name__, policy, seed) for seed in seeds]
                    rows += _rows(make.__name__, policy, pool.starmap(simulate, jobs, 4))
    return rows


def simulate(name: str, policy: str, seed: int) -> Outcome:
    """One run of a policy on one table, and of its rivals on the same."""
    make: Callable[[int], Table] = next(make for make in TABLES if make.__name__ == name)
    table = make(seed)
    simulation = Simulation(table, _policy(policy, seed), _MOST_CALLS, seed, keep_log=False)
    begin = _BUILT_FOR.get(name, (0, ""))[0]
    trace = simulation.run(calls=_CALLS)
    while name in _BUILT_FOR and not _is_told(trace, name, begin):
        trace = simulation.run(calls=2_000)
    taken_s, baseline_s = np.array(trace.taken_s), np.array(trace.baseline_s)
    near = _near(trace, begin)
    rival = plain_bandit(table, len(taken_s), seed)
    return Outcome(
        near_decisions=trace.decisions[near] - trace.decisions[begin] if near else np.inf,
        near_calls=near - begin if near else np.inf,
        near_s=trace.at_s[near] - trace.at_s[begin] if near else np.inf,
        overrun=_overrun(taken_s, baseline_s),
        trial=_trial(table),
        baseline_share=fmean(arm == 0 for arm in trace.live),
        speedup=float(baseline_s.sum() / taken_s.sum()),
        best_speedup=float(baseline_s.sum() / (np.array(trace.best_s) * _noise(trace)).sum()),
        bandit_speedup=float(baseline_s.sum() / rival.taken_s.sum()),
        bandit_overrun=_overrun(rival.taken_s, baseline_s),
        bandit_wrong=rival.wrong,
        wrong=trace.wrong,
    )


def _policy(name: str, seed: int) -> Policy:
    return Chance(seed) if name == "random" else make_policy(name, seed)


def _noise(trace: Trace) -> Seconds:
    factors: Seconds = np.asarray(trace.taken_s) / np.asarray(trace.expected_s)
    return factors


def _is_told(trace: Trace, name: str, begin: int) -> bool:
    decisions = trace.decisions[-1] - trace.decisions[begin]
    out_of_calls = len(trace.taken_s) >= _MOST_CALLS
    return bool(_near(trace, begin)) or decisions >= _MOST_DECISIONS[name] or out_of_calls


def _near(trace: Trace, begin: int) -> int:
    """The first call at which a whole window, trials and probes included, took 95 % of the
    optimum's speed; 0 if there is none.
    """
    expected_s, best_s = np.array(trace.expected_s[begin:]), np.array(trace.best_s[begin:])
    if len(expected_s) < _WINDOW:
        return 0
    sums = [np.convolve(s, np.ones(_WINDOW), "valid") for s in (expected_s, best_s)]
    hits = np.flatnonzero(sums[0] <= sums[1] / _NEAR)
    return begin + int(hits[0]) + _WINDOW - 1 if len(hits) else 0


def _overrun(taken_s: Seconds, baseline_s: Seconds) -> float:
    beyond_s = taken_s.cumsum() - 1.02 * baseline_s.cumsum()
    return float(beyond_s[_FREE_CALLS:].max() / BASELINE_S)


def _trial(table: Table) -> float:
    """One comparison and one paired block of the table's worst Choice, beyond the baseline."""
    moments = [Moment(call, call * BASELINE_S, runs) for call in (0, SHIFT_AT) for runs in (0, 999)]
    worst = max(table.cost_s(arm, moment) for arm in range(table.count) for moment in moments)
    return 3.0 * max(worst / BASELINE_S, 1.0) - 2.0


def _rows(name: str, policy: str, outcomes: list[Outcome]) -> list[Row]:
    workload = f"{name} {policy}"
    rows = [_promise_row(workload, outcomes), _speed_row(workload, outcomes)]
    if name in _BUILT_FOR:
        rows.insert(0, _near_row(name, workload, outcomes))
    if name == "equal":
        stays = fmean(outcome.baseline_share > 0.95 for outcome in outcomes)
        rows.append(Row(workload, "seeds that stay with the baseline", "share", stays, {}, limit=1))
    if name == "faulty":
        wrong = sum(outcome.wrong for outcome in outcomes)
        rival = float(sum(outcome.bandit_wrong for outcome in outcomes))
        rows.append(
            Row(workload, "wrong answers", "calls", wrong, {"plain bandit": rival}, limit=0)
        )
    return rows


def _near_row(name: str, workload: str, outcomes: list[Outcome]) -> Row:
    most = _MOST_DECISIONS[name]
    reached = fmean(outcome.near_decisions <= most for outcome in outcomes)
    told = ", ".join(
        f"{word} p50 {_at(values, 50):.0f} p95 {_at(values, 95):.0f}"
        for word, values in (
            ("decisions", [outcome.near_decisions for outcome in outcomes]),
            ("calls", [outcome.near_calls for outcome in outcomes]),
            ("seconds", [outcome.near_s for outcome in outcomes]),
        )
    )
    metric = f"seeds at 95 % of the optimum {_BUILT_FOR[name][1]}"
    return Row(
        workload,
        metric,
        "share",
        reached,
        {},
        limit=_PROMISED[name],
        notes=f"{told}; calls of 5 ms",
    )


def _promise_row(workload: str, outcomes: list[Outcome]) -> Row:
    kept = fmean(outcome.overrun <= outcome.trial for outcome in outcomes)
    rival = fmean(outcome.bandit_overrun <= outcome.trial for outcome in outcomes)
    worst = max(outcome.overrun for outcome in outcomes)
    closest = min(outcome.trial - outcome.overrun for outcome in outcomes)
    notes = f"worst overrun {worst:.1f} calls; nearest to the limit by {closest:.1f} calls"
    metric = "seeds never beyond 1.02 x baseline plus one trial"
    return Row(workload, metric, "share", kept, {"plain bandit": rival}, limit=1.0, notes=notes)


def _speed_row(workload: str, outcomes: list[Outcome]) -> Row:
    ours = [outcome.speedup for outcome in outcomes]
    rival = [outcome.bandit_speedup for outcome in outcomes]
    best = [outcome.best_speedup for outcome in outcomes]
    low, high = _interval(np.log(ours) - np.log(rival))
    return Row(
        workload,
        "speed over the baseline, exploring included",
        "x",
        geometric_mean(ours),
        {"plain bandit": geometric_mean(rival), "optimum": geometric_mean(best)},
        "plain bandit",
        geometric_mean(ours) / geometric_mean(rival),
        low,
        high,
        geometric_mean(best),
        f"worst seed {min(ours):.3f}, plain bandit's worst {min(rival):.3f}; {len(ours)} seeds",
    )


def _interval(differences: Seconds) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    draws = rng.choice(differences, (1000, len(differences))).mean(axis=1)
    low, high = np.exp(np.percentile(draws, [2.5, 97.5]))
    return float(low), float(high)


def _at(values: Iterable[float], percent: float) -> float:
    return float(np.percentile(list(values), percent, method="lower"))
