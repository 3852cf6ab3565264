"""What picks cost beside the best Choice there was, on Traces that were left out. Trains nothing.

The best is read off the same Readings by which picks are judged, so that noise makes every regret
look larger than it is; the line `best of half` shows by how much: it picks the best by one half of
the Readings.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from grainshift.core.choice import Choice
from grainshift.core.policy import Policy
from grainshift.core.proposal import Lesson, Query
from grainshift.core.trace import Cost, Trace
from grainshift.policies.bandit import Bandit
from grainshift.policies.pretrain.simulator import ask, offered

__all__ = ["Picker", "Question", "Regret", "plain_pickers", "policy_picker", "questions", "regrets"]

WITHIN = 1.05
_BANDIT_DECISIONS = 32


@dataclass(frozen=True, slots=True)
class Question:
    """A Query at a Trace, what each Choice costs there, and the group that it is counted in."""

    group: str
    query: Query
    costs: tuple[Cost, ...]

    def ratios(self) -> tuple[float, ...]:
        """The time of each Choice over the best one's."""
        best = max(cost.gain for cost in self.costs)
        return tuple(math.exp(best - cost.gain) for cost in self.costs)


Picker = Callable[[Question], Sequence[int]]  # the answers given: one, or one after the other


@dataclass(frozen=True, slots=True)
class Regret:
    """How one way to pick did in one group: the time of its picks over the best Choice's.

    `within` is the share of questions answered within 5 % of the best.
    """

    group: str
    picker: str
    mean_ratio: float
    worst_ratio: float
    within: float
    questions: int


def questions(traces: Sequence[Trace]) -> tuple[Question, ...]:
    """The questions that Traces ask: without lower precision, and where there is one, with it."""
    found = []
    for trace in traces:
        group = trace.left_out or "trained"
        query = ask(trace, trace.conditions, lower=False)
        found.append(Question(group, query, offered(trace, lower=False)))
        if len(query.choices) < len(trace.costs):
            query = ask(trace, trace.conditions, lower=True)
            found.append(Question(f"{group}, lower allowed", query, trace.costs))
    return tuple(found)


def regrets(asked: Sequence[Question], pickers: Mapping[str, Picker]) -> Iterator[Regret]:
    """A Regret for each group and picker."""
    for group in sorted({question.group for question in asked}):
        ours = [question for question in asked if question.group == group]
        for name, pick in pickers.items():
            ratios = [_ratio(question, pick(question)) for question in ours]
            within = fmean(ratio <= WITHIN for ratio in ratios)
            yield Regret(group, name, fmean(ratios), max(ratios), within, len(ours))


def _ratio(question: Question, picks: Sequence[int]) -> float:
    ratios = question.ratios()
    return fmean(ratios[arm] for arm in picks)


def policy_picker(policy: Policy) -> Picker:
    """What a policy's actor picks: it neither explores nor knows the priors."""

    def pick(question: Question) -> Sequence[int]:
        query = question.query
        actor = policy.actor(query.choices)
        assert actor is not None, f"{policy.name} has no actor"
        state = np.array(query.state, dtype=np.float32)
        return [actor.pick(state, np.array(query.mask))]

    return pick


def plain_pickers(trained: Sequence[Trace], seed: int = 0) -> dict[str, Picker]:
    """What a trained policy is held beside; `trained` is what it was trained on."""
    single = best_single(trained)
    return {
        "bandit": lambda question: _bandit_picks(question, seed),
        "forecast": lambda question: [int(np.argmax(question.query.prior))],
        f"always {single}": lambda question: [_arm_of(single, question)],
        "stock": lambda question: [0],
        "random": lambda question: range(len(question.costs)),
        "best of half": lambda question: [_best_of_half(question)],
    }


def best_single(traces: Sequence[Trace]) -> Choice:
    """The one Choice that does best over Traces; where it is not offered, the baseline stands in.

    Lower precision is left aside, since it may not always be used.
    """
    rows = [{cost.choice: cost.gain for cost in offered(trace, False)} for trace in traces]
    choices = dict.fromkeys(choice for row in rows for choice in row)
    return max(choices, key=lambda choice: fmean(row.get(choice, 0.0) for row in rows))


def _arm_of(choice: Choice, question: Question) -> int:
    choices = question.query.choices
    return choices.index(choice) if choice in choices else 0


def _best_of_half(question: Question) -> int:
    return int(np.argmax([median(cost.gains[::2]) for cost in question.costs]))


def _bandit_picks(question: Question, seed: int) -> list[int]:
    """The answers of a bandit that meets the Site for the first time, exploring included."""
    bandit, draw = Bandit(seed), np.random.default_rng(seed)
    picks = []
    for _ in range(_BANDIT_DECISIONS):
        arm = bandit.propose(question.query).arm
        gain = float(draw.choice(question.costs[arm].gains))
        bandit.learn([Lesson(question.query, arm, gain)])
        picks.append(arm)
    return picks
