"""Trains our PPO in the simulator. Knows no family and no clock."""

from collections.abc import Sequence
from dataclasses import dataclass

from grainshift.core.proposal import Lesson
from grainshift.core.trace import Trace
from grainshift.policies.ppo import Ppo
from grainshift.policies.pretrain.simulator import Simulator

__all__ = ["PHASES", "Phase", "train_ppo"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the training: its share of the Lessons, the rate of descent, the exploring."""

    share: float
    rate: float
    epsilon: float
    entropy: float


PHASES = (Phase(0.5, 1e-2, 0.1, 0.02), Phase(0.3, 3e-3, 0.05, 0.01), Phase(0.2, 1e-3, 0.02, 0.003))
_ROUNDS = 10  # at least, as far as rounds are not below the least size
_LEAST_ROUND, _MOST_ROUND = 256, 4096  # large rounds learn more from as many Lessons
_PASSES = 8
_BATCH = 256


def train_ppo(
    traces: Sequence[Trace],
    lessons: int,
    seed: int = 0,
    gamma: float = 0.0,
    phases: Sequence[Phase] = PHASES,
) -> Ppo:
    """A PPO that was taught about so many Lessons on these Traces, in whole rounds."""
    simulator = Simulator(traces)
    size = min(max(lessons // _ROUNDS, _LEAST_ROUND), _MOST_ROUND)
    policy: Ppo | None = None
    for number, phase in enumerate(phases):
        before = policy
        policy = Ppo(
            seed,
            phase.epsilon,
            gamma,
            rate=phase.rate,
            entropy=phase.entropy,
            round_size=size,
            passes=_PASSES,
            batch=_BATCH,
        )
        if before is not None:
            policy.restore(before.arrays())
        rounds = max(1, round(phase.share * lessons / size))
        _teach(policy, simulator, rounds * size, seed + number)
    assert policy is not None, "there is at least one phase"
    return policy


def _teach(policy: Ppo, simulator: Simulator, lessons: int, seed: int) -> None:
    query = simulator.begin(seed)
    for _ in range(lessons):
        arm = policy.propose(query).arm
        outcome = simulator.step(arm)
        policy.learn([Lesson(query, arm, outcome.reward, outcome.following)])
        query = outcome.following or simulator.begin()
