"""PPO: a policy and a value network, clipped, on rounds of Lessons. Knows no clock and no Site."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.core.policy import Actor, Arrays
from grainshift.core.proposal import Lesson, Proposal, Query
from grainshift.policies import network
from grainshift.policies.allowed import allowed, fault, following, priors, reward
from grainshift.policies.arrays import pour
from grainshift.policies.descent import Descent
from grainshift.policies.describe import CHOICE_WIDTH, describe, key, squash
from grainshift.policies.dice import Dice
from grainshift.policies.ring import Ring
from grainshift.policies.trust import Trust

__all__ = ["Ppo", "advantages", "chances", "logit_slopes"]

_LEAST_CHANCE = 1e-6  # a Lesson may teach what this policy would never have drawn
_PRIOR_SCALE = 0.1  # a prior ahead by this much is e times as likely


def chances(
    logits: NDArray[np.floating], mask: NDArray[np.bool_], epsilon: float
) -> NDArray[np.float64]:
    """The probability of each Choice: softmax among the allowed, mixed with epsilon of any."""
    masked = np.where(mask, logits, -np.inf)
    weights = np.exp(masked - masked.max(axis=-1, keepdims=True))
    soft = weights / weights.sum(axis=-1, keepdims=True)
    mixed: NDArray[np.float64] = (1.0 - epsilon) * soft + epsilon * mask / mask.sum(
        axis=-1, keepdims=True
    )
    return mixed


def advantages(
    errors: NDArray[np.floating], follows: NDArray[np.int64], decay: float
) -> NDArray[np.float64]:
    """Generalised advantages of temporal-difference errors; `follows` is the next row or -1."""
    found = np.zeros(len(errors))
    for row in range(len(errors) - 1, -1, -1):
        later = found[follows[row]] if follows[row] >= 0 else 0.0
        found[row] = errors[row] + decay * later
    return found


def logit_slopes(
    logits: NDArray[np.floating],
    rows: Mapping[str, NDArray[Any]],
    epsilon: float,
    clip: float,
    entropy: float,
    pull: float,
) -> NDArray[np.float64]:
    """The slopes of PPO's loss by the logits: the clipped gain, what entropy is worth, a pull.

    The pull draws the allowed logits towards their mean. Where the softmax is saturated the other
    slopes vanish, and without it a change of the world goes unlearnt.
    """
    each, arm = np.arange(len(logits)), rows["arm"]
    soft = chances(logits, rows["mask"], 0.0)
    moved = chances(logits, rows["mask"], epsilon)[each, arm] / rows["before"]
    held = np.clip(moved, 1.0 - clip, 1.0 + clip)
    counts = moved * rows["gain"] <= held * rows["gain"]  # else the clipped side is the smaller
    by_chance = np.where(counts, rows["gain"], 0.0) * (1.0 - epsilon) / rows["before"]
    hot = np.zeros_like(soft)
    hot[each, arm] = 1.0
    by_logit = (by_chance * soft[each, arm])[:, None] * (hot - soft)
    logs = np.log(np.maximum(soft, 1e-12))
    undecided = -(soft * logs).sum(axis=1, keepdims=True)
    mean = np.mean(logits, axis=1, where=rows["mask"], keepdims=True)
    apart = np.where(rows["mask"], logits - mean, 0.0)
    slopes: NDArray[np.float64] = entropy * soft * (logs + undecided) + pull * apart - by_logit
    return slopes / len(logits)


@final
class Ppo:
    """Draws from masked probabilities, and improves on them after each round of Lessons.

    The probabilities learnt from are those drawn from, epsilon included, so that exploring does
    not bias it. gae: decay of the generalised advantage; clip: furthest that a probability moves
    in a round; entropy: weight of staying undecided; pull: weight of logits staying near each
    other; round_size: Lessons in a round; passes: times that each is used. The prior leans the
    draw until Lessons speak of a Choice's name.
    """

    def __init__(
        self,
        seed: int = 0,
        epsilon: float = 0.05,
        gamma: float = 0.0,
        sizes: network.Sizes = network.USUAL_SIZES,
        rate: float = 1e-2,
        gae: float = 0.95,
        clip: float = 0.2,
        entropy: float = 0.01,
        pull: float = 0.005,
        round_size: int = 32,
        passes: int = 8,
        batch: int = 32,
        prior_lessons: float = 4.0,
    ) -> None:
        self._dice = Dice(seed)
        self._epsilon = epsilon
        self._gamma = gamma
        self._sizes = sizes
        self._gae = gae
        self._clip = clip
        self._entropy = entropy
        self._pull = pull
        self._passes = passes
        self._batch = batch
        self._shapes = [*sizes.shapes, *sizes.shapes]
        self._descent = Descent(network.first_weights(self._shapes, self._dice.throw()), rate, 1.0)
        self._scale = network.Scale(sizes.state)
        self._trust = Trust(prior_lessons)
        self._ring = Ring(round_size, sizes.state)

    @property
    def name(self) -> str:
        """The policy's word in the vocabulary."""
        return "ppo"

    def propose(self, query: Query) -> Proposal:
        """One draw; the scores are the probabilities, nought for what is masked."""
        mask = allowed(query)
        state = self._scale.normal(squash(query.state, self._sizes.state))
        offered = np.stack([describe(choice) for choice in query.choices])
        logits = network.scores(self._layers[0], state[None], offered[None])[0]
        likely = chances(logits + self._bias(query), mask, self._epsilon)
        arm = int(self._dice.throw().choice(likely.size, p=likely / likely.sum()))
        return Proposal(arm, tuple(likely.tolist()))

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Keep the Lessons of a round; when it is full, improve and begin another."""
        for lesson in lessons:
            if fault(lesson) is None:
                self._keep(lesson)
                if len(self._ring) == self._ring.capacity:
                    self._improve()

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        """A frozen copy of the policy network that picks the likeliest, without the priors."""
        return network.NetworkActor(self._layers[0], self._scale, choices)

    def arrays(self) -> Arrays:
        """Weights, moments, the scale of states, and the round under way."""
        copied = {name: array.copy() for name, array in self._held.items()}
        return {**copied, **{name: array.copy() for name, array in self._ring.arrays.items()}}

    def restore(self, arrays: Arrays) -> None:
        """Take back what `arrays` gave."""
        ring = self._ring.read(arrays)
        pour(arrays, self._held)
        self._ring = ring

    @property
    def _held(self) -> dict[str, NDArray[np.generic]]:
        return {
            "dice": self._dice.state,
            "trust": self._trust.counts,
            **self._descent.arrays,
            **self._scale.arrays,
        }

    @property
    def _layers(self) -> tuple[list[network.Floats], list[network.Floats]]:
        layers = network.cut(self._descent.weights, self._shapes)
        return layers[: len(layers) // 2], layers[len(layers) // 2 :]

    def _bias(self, query: Query) -> NDArray[np.float64]:
        lean: NDArray[np.float64] = (
            self._trust.in_prior(query.choices) * priors(query) / _PRIOR_SCALE
        )
        return lean

    def _keep(self, lesson: Lesson) -> None:
        query, then = lesson.query, following(lesson)
        state = squash(query.state, self._sizes.state)
        self._scale.see(state)
        row: dict[str, Any] = {
            "state": self._scale.mend(state),
            "choices": np.stack([describe(choice) for choice in query.choices]),
            "mask": np.array(query.mask),
            "bias": self._bias(query),
            "arm": lesson.arm,
            "reward": reward(lesson),
            "ends": then is None,
            "group": key(query.site_key, query.bucket),
        }
        self._trust.note(query.choices[lesson.arm])
        if then is not None:
            row["next"] = self._scale.mend(squash(then.state, self._sizes.state))
        self._ring.add(row)

    def _improve(self) -> None:
        rows: dict[str, Any] = self._ring.take(slice(None))
        state, follow = self._scale.normal(rows["state"]), self._scale.normal(rows["next"])
        value = self._values(state)
        ahead = np.where(rows["ends"], 0.0, self._values(follow))
        errors = rows["reward"] + self._gamma * ahead - value
        gains = advantages(errors, _follows(rows), self._gamma * self._gae)
        logits = network.scores(self._layers[0], state, rows["choices"]) + rows["bias"]
        likely = chances(logits, rows["mask"], self._epsilon)
        before = np.maximum(likely[np.arange(len(gains)), rows["arm"]], _LEAST_CHANCE)
        facts = {**rows, "state": state, "before": before, "gain": gains, "aim": gains + value}
        for _ in range(self._passes):
            order = self._dice.throw().permutation(len(gains))
            for start in range(0, len(order), self._batch):
                self._descend(facts, order[start : start + self._batch])
        self._ring.clear()

    def _descend(self, facts: dict[str, Any], places: NDArray[np.int64]) -> None:
        rows = {name: facts[name][places] for name in _USED}
        rows["gain"] = (rows["gain"] - rows["gain"].mean()) / (rows["gain"].std() + 1e-3)
        scorer, valuer = self._layers
        pairs = rows["state"], rows["choices"]
        logits = network.scores(scorer, *pairs) + rows["bias"]
        slopes = logit_slopes(logits, rows, self._epsilon, self._clip, self._entropy, self._pull)
        wrong = self._values(rows["state"]) - rows["aim"]
        alone = rows["state"], _no_choice(len(wrong))
        parts = (
            network.gradient(scorer, *pairs, slopes.astype(np.float32)),
            network.gradient(valuer, *alone, (wrong[:, None] / len(wrong)).astype(np.float32)),
        )
        self._descent.step(np.concatenate(parts))

    def _values(self, state: network.Floats) -> network.Floats:
        return network.scores(self._layers[1], state, _no_choice(len(state)))[:, 0]


_USED = ("state", "choices", "mask", "bias", "arm", "before", "gain", "aim")


def _no_choice(states: int) -> network.Floats:
    """What the value network, built like the other, sees instead of Choices."""
    return np.zeros((states, 1, CHOICE_WIDTH), dtype=np.float32)


def _follows(rows: dict[str, Any]) -> NDArray[np.int64]:
    """For each row the later row of its case that goes on where it led, or -1."""
    follows = np.full(len(rows["arm"]), -1, dtype=np.int64)
    last: dict[int, int] = {}
    for row, group in enumerate(rows["group"].tolist()):
        before = last.get(group)
        goes_on = before is not None and not rows["ends"][before]
        if goes_on and np.array_equal(rows["next"][before], rows["state"][row]):
            follows[before] = row
        last[group] = row
    return follows
