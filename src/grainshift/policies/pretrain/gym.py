"""The simulator as a Gymnasium environment, for learners of others. Decides nothing.

Gymnasium is a package of the extra `pretrain`, imported when an environment is made.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.core.errors import MissingExtra
from grainshift.core.proposal import Query
from grainshift.core.trace import Trace
from grainshift.policies.describe import squash
from grainshift.policies.pretrain.simulator import Simulator

__all__ = ["STATE_WIDTH", "extra", "make_environment", "mask_of", "observed", "vocabulary"]

STATE_WIDTH = 48
_MOST = 100.0  # more than any number is once squashed


def extra(package: str) -> Any:
    """A package of the extra `pretrain`, or MissingExtra."""
    try:
        return import_module(package)
    except ImportError as fault:
        raise MissingExtra(
            f"{package} is not installed; pip install 'grainshift[pretrain]' adds it"
        ) from fault


def vocabulary(traces: Sequence[Trace]) -> tuple[Choice, ...]:
    """Every Choice of the Traces: an action is a place in it."""
    found = {choice for trace in traces for choice in trace.choices}
    return tuple(sorted(found, key=lambda choice: (choice.name, str(choice))))


def mask_of(query: Query, actions: Sequence[Choice]) -> NDArray[np.bool_]:
    """Which of the actions a Query allows."""
    open_ = {choice for choice, allowed in zip(query.choices, query.mask, strict=True) if allowed}
    return np.array([choice in open_ for choice in actions])


def observed(query: Query) -> NDArray[np.float32]:
    """What a learner sees of a Query: its state, squashed."""
    return np.nan_to_num(squash(query.state, STATE_WIDTH))


def make_environment(simulator: Simulator, actions: Sequence[Choice]) -> Any:
    """A gymnasium.Env; what is masked and picked all the same counts as: stay."""
    gymnasium = extra("gymnasium")

    class Environment(gymnasium.Env):  # type: ignore[misc, name-defined]
        """Episodes of decisions on recorded Traces."""

        metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

        def __init__(self) -> None:
            self.observation_space = gymnasium.spaces.Box(-_MOST, _MOST, (STATE_WIDTH,))
            self.action_space = gymnasium.spaces.Discrete(len(actions))

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[NDArray[np.float32], dict[str, Any]]:
            super().reset(seed=seed)
            self._query = simulator.begin(seed)
            return observed(self._query), {}

        def step(
            self, action: int
        ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
            query = self._query
            allowed = self.action_masks()[action]
            arm = query.choices.index(actions[action]) if allowed else query.live
            outcome = simulator.step(arm)
            self._query = outcome.following or query
            return observed(self._query), outcome.reward, outcome.following is None, False, {}

        def action_masks(self) -> NDArray[np.bool_]:
            return mask_of(self._query, actions)

    return Environment()
