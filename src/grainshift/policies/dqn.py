"""DQN: double Q-learning with a replay buffer and a target network. Knows no clock and no Site."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.core.policy import Actor, Arrays
from grainshift.core.proposal import Lesson, Proposal, Query
from grainshift.policies import network
from grainshift.policies.allowed import allowed, best, fault, following, priors, reward, told
from grainshift.policies.arrays import pour
from grainshift.policies.descent import Descent
from grainshift.policies.describe import describe, squash
from grainshift.policies.dice import Dice
from grainshift.policies.ring import Ring
from grainshift.policies.trust import Trust

__all__ = ["Dqn"]


@final
class Dqn:
    """A network scores (state, Choice) pairs; the mask holds in the bootstrap as well.

    The score told is the network's, mixed with the prior as long as few Lessons speak of a
    Choice's name (`prior_lessons` of them weigh as much as the prior). steps: descents for each
    Lesson; batch: Lessons in one descent; capacity: Lessons held for replay; follow: share by
    which the target network follows the other after each descent.
    """

    def __init__(
        self,
        seed: int = 0,
        epsilon: float = 0.05,
        gamma: float = 0.0,
        sizes: network.Sizes = network.USUAL_SIZES,
        rate: float = 2e-3,
        steps: int = 2,
        batch: int = 32,
        capacity: int = 1024,
        follow: float = 0.02,
        prior_lessons: float = 4.0,
    ) -> None:
        self._dice = Dice(seed)
        self._epsilon = epsilon
        self._gamma = gamma
        self._sizes = sizes
        self._steps = steps
        self._batch = batch
        self._follow = follow
        weights = network.first_weights(sizes.shapes, self._dice.throw())
        self._descent = Descent(weights, rate)
        self._target = weights.copy()
        self._scale = network.Scale(sizes.state)
        self._trust = Trust(prior_lessons)
        self._ring = Ring(capacity, sizes.state)

    @property
    def name(self) -> str:
        """The policy's word in the vocabulary."""
        return "dqn"

    def propose(self, query: Query) -> Proposal:
        """The highest score, or with probability epsilon anything allowed."""
        mask, scores = allowed(query), self._scores(query)
        arm = self._dice.explore(self._epsilon, mask)
        return Proposal(best(scores, mask) if arm is None else arm, told(scores, mask))

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Keep each Lesson for replay, then descend on a batch drawn from the buffer."""
        for lesson in lessons:
            if fault(lesson) is None:
                self._keep(lesson)
                for _ in range(self._steps):
                    self._descend()

    def actor(self, choices: tuple[Choice, ...]) -> Actor | None:
        """A frozen copy of the network, without the priors."""
        layers = network.cut(self._descent.weights, self._sizes.shapes)
        return network.NetworkActor(layers, self._scale, choices)

    def arrays(self) -> Arrays:
        """Weights, moments, the target network, the scale of states, and the replay buffer."""
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
            "target": self._target,
            "trust": self._trust.counts,
            **self._descent.arrays,
            **self._scale.arrays,
        }

    def _scores(self, query: Query) -> NDArray[np.float64]:
        state = self._scale.normal(squash(query.state, self._sizes.state))
        layers = network.cut(self._descent.weights, self._sizes.shapes)
        offered = np.stack([describe(choice) for choice in query.choices])
        learnt = network.scores(layers, state[None], offered[None])[0]
        share = self._trust.in_prior(query.choices)
        scores: NDArray[np.float64] = share * priors(query) + (1.0 - share) * learnt
        return scores

    def _keep(self, lesson: Lesson) -> None:
        query, then = lesson.query, following(lesson)
        state = squash(query.state, self._sizes.state)
        self._scale.see(state)
        self._trust.note(query.choices[lesson.arm])
        row: dict[str, Any] = {
            "state": self._scale.mend(state),
            "chosen": describe(query.choices[lesson.arm]),
            "reward": reward(lesson),
            "ends": then is None,
        }
        if then is not None:
            row["next"] = self._scale.mend(squash(then.state, self._sizes.state))
            row["choices"] = np.stack([describe(choice) for choice in then.choices])
            row["mask"] = np.array(then.mask)
        self._ring.add(row)

    def _descend(self) -> None:
        places = self._dice.throw().integers(len(self._ring), size=self._batch)
        rows: dict[str, Any] = self._ring.take(places)
        pairs = self._scale.normal(rows["state"]), rows["chosen"][:, None, :]
        layers = network.cut(self._descent.weights, self._sizes.shapes)
        wrong = network.scores(layers, *pairs) - self._targets(rows)[:, None]
        slopes = np.clip(wrong, -1.0, 1.0) / self._batch  # of the Huber loss
        if self._descent.step(network.gradient(layers, *pairs, slopes)):
            self._target += self._follow * (self._descent.weights - self._target)

    def _targets(self, rows: dict[str, Any]) -> NDArray[np.float32]:
        """Rewards, plus the target network's score of what the other finds best and allowed."""
        if self._gamma == 0.0 or rows["ends"].all():
            return np.asarray(rows["reward"])
        state, shapes = self._scale.normal(rows["next"]), self._sizes.shapes
        pairs = state, rows["choices"]
        ours = network.scores(network.cut(self._descent.weights, shapes), *pairs)
        arm = np.where(rows["mask"], ours, -np.inf).argmax(axis=1)
        theirs = network.scores(network.cut(self._target, shapes), *pairs)
        ahead = np.where(rows["ends"], 0.0, theirs[np.arange(len(arm)), arm])
        return np.asarray(rows["reward"] + self._gamma * ahead, dtype=np.float32)
