"""Policies: each proposes a Choice and learns, behind one contract. They know no family.

To add one, write one file and add one line to POLICIES.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grainshift.core.errors import NotTunable
from grainshift.core.policy import Policy
from grainshift.policies.bandit import Bandit
from grainshift.policies.dqn import Dqn
from grainshift.policies.fixed import Fixed
from grainshift.policies.ppo import Ppo
from grainshift.policies.qlearning import QLearning

__all__ = ["POLICIES", "Turns", "make_policy"]


@dataclass(frozen=True, slots=True)
class Turns:
    """What can be turned at any policy; each takes what it has a use for.

    seed: seed of every draw. epsilon: share of proposals drawn at random from the allowed set
    (not for fixed). gamma: weight of what follows (qlearning, dqn, ppo); nought until an
    answer is seen to move what follows. choice: what fixed
    proposes, by its name or in full, such as "unrolled(8)".
    """

    seed: int = 0
    epsilon: float = 0.05
    gamma: float = 0.0
    choice: str | None = None


POLICIES: Mapping[str, Callable[[Turns], Policy]] = MappingProxyType(
    {
        "fixed": lambda turns: Fixed(turns.choice),
        "bandit": lambda turns: Bandit(turns.seed, turns.epsilon),
        "qlearning": lambda turns: QLearning(turns.seed, turns.epsilon, turns.gamma),
        "dqn": lambda turns: Dqn(turns.seed, turns.epsilon, turns.gamma),
        "ppo": lambda turns: Ppo(turns.seed, turns.epsilon, turns.gamma),
    }
)


def make_policy(
    name: str,
    seed: int = 0,
    epsilon: float = 0.05,
    gamma: float = 0.0,
    choice: str | None = None,
) -> Policy:
    """A fresh policy by its name."""
    if name not in POLICIES:
        raise NotTunable(f"there is no policy {name!r}; give one of {', '.join(POLICIES)}")
    for word, value in (("epsilon", epsilon), ("gamma", gamma)):
        if not 0.0 <= value <= 1.0:
            raise NotTunable(
                f"{word}={value!r} will not do for a policy; give a number from 0 to 1"
            )
    return POLICIES[name](Turns(seed, epsilon, gamma, choice))
