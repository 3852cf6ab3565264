"""Small decision processes with known optima, to check learners against. Knows no learner."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from grainshift.core.choice import Choice
from grainshift.core.policy import Policy
from grainshift.core.proposal import Lesson, Query

GAMMA = 0.9
Teach = Callable[[Lesson], Lesson]


@dataclass(frozen=True)
class World:
    """rewards[s][a] and leads[s][a]: the next state, or -1 at an end; allowed[s][a]."""

    rewards: tuple[tuple[float, ...], ...]
    leads: tuple[tuple[int, ...], ...]
    allowed: tuple[tuple[bool, ...], ...]
    starts: tuple[int, ...] = (0,)

    def query(self, state: int) -> Query:
        """The question in a state: the state as one number hot."""
        hot = tuple(float(place == state) for place in range(len(self.rewards)))
        choices = tuple(Choice("act", (number + 1,)) for number in range(len(self.rewards[0])))
        return Query("world:site", "b", hot, choices, self.allowed[state], (0.0,) * len(choices))

    def optimum(self) -> list[set[int]]:
        """The best answers in each state, by value iteration over what is allowed."""
        value = [0.0] * len(self.rewards)
        for _ in range(1000):
            value = [max(self._worth(s, a, value) for a in self._open(s)) for s in self._states()]
        return [
            {a for a in self._open(s) if self._worth(s, a, value) >= value[s] - 1e-9}
            for s in self._states()
        ]

    def greedy(self) -> list[int]:
        """The answer of highest immediate reward in each state."""
        return [max(self._open(s), key=self.rewards[s].__getitem__) for s in self._states()]

    def _states(self) -> range:
        return range(len(self.rewards))

    def _open(self, state: int) -> list[int]:
        return [a for a, is_open in enumerate(self.allowed[state]) if is_open]

    def _worth(self, state: int, action: int, value: list[float]) -> float:
        lead = self.leads[state][action]
        return self.rewards[state][action] + (GAMMA * value[lead] if lead >= 0 else 0.0)


def chain(length: int = 4) -> World:
    """Going on pays nothing until the end, where it pays 1; leaving pays 0.2 at once."""
    last = length - 1
    return World(
        rewards=tuple((0.2, 1.0 if s == last else 0.0) for s in range(length)),
        leads=tuple((-1, -1 if s == last else s + 1) for s in range(length)),
        allowed=((True, True),) * length,
    )


def trap() -> tuple[World, World]:
    """State 1 has a treasure, which is allowed when one begins there and masked on the way.

    From state 0, going to state 1 pays nothing and leaving pays 0.5: to leave is best. Whoever
    bootstraps from the masked treasure goes.
    """
    rewards, leads = ((0.5, 0.0), (0.0, 1.0)), ((-1, 1), (-1, -1))
    masked = World(rewards, leads, ((True, True), (True, False)))
    opened = World(rewards, leads, ((True, True), (True, True)), starts=(1,))
    return masked, opened


def unmasked(lesson: Lesson) -> Lesson:
    """The Lesson as a bootstrap without a mask would read it."""
    if lesson.following is None:
        return lesson
    return replace(
        lesson, following=replace(lesson.following, mask=(True,) * len(lesson.following.mask))
    )


def live(
    policy: Policy, worlds: tuple[World, ...], lessons: int, teach: Teach = lambda lesson: lesson
) -> None:
    """Let a policy act in the worlds by turns and learn from each step."""
    taught, turn = 0, 0
    while taught < lessons:
        world = worlds[turn % len(worlds)]
        state = world.starts[turn // len(worlds) % len(world.starts)]
        turn += 1
        while state >= 0 and taught < lessons:
            query = world.query(state)
            arm = policy.propose(query).arm
            reward, state = world.rewards[state][arm], world.leads[state][arm]
            following = world.query(state) if state >= 0 else None
            policy.learn([teach(Lesson(query, arm, reward, following))])
            taught += 1


def preferred(policy: Policy, world: World) -> list[int]:
    """What a policy scores highest in each state, exploring left aside."""
    return [int(np.argmax(policy.propose(world.query(s)).scores)) for s in world._states()]
