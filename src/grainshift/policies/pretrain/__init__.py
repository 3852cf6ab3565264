"""Pre-training: from recorded Traces to a trained policy and what it is worth. Knows no family."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from grainshift.core.errors import MissingExtra
from grainshift.core.trace import Trace
from grainshift.policies.ppo import Ppo
from grainshift.policies.pretrain.crosscheck import maskable_ppo
from grainshift.policies.pretrain.regret import (
    Picker,
    Regret,
    plain_pickers,
    policy_picker,
    questions,
    regrets,
)
from grainshift.policies.pretrain.traces import read_traces, write_traces
from grainshift.policies.pretrain.train import train_ppo

__all__ = [
    "Pretrained",
    "Regret",
    "policy_picker",
    "pretrain",
    "questions",
    "read_traces",
    "regrets",
    "train_ppo",
    "write_traces",
]

FORESIGHT = 0.9  # the gamma that is tried beside none
_WORTH = 0.01  # by which foresight must be better to be kept


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A trained policy, its regret beside that of others, and what a reader should know."""

    policy: Ppo
    regrets: tuple[Regret, ...]
    notes: tuple[str, ...]


def pretrain(
    traces: Sequence[Trace], lessons: int, seed: int = 0, crosscheck: bool = True
) -> Pretrained:
    """Train on the Traces that are not left out, and report on all of them.

    It is trained with and without foresight (gamma); without, unless foresight is better on what
    was trained on.
    """
    trained = [trace for trace in traces if not trace.left_out]
    blind, seeing = (train_ppo(trained, lessons, seed, gamma) for gamma in (0.0, FORESIGHT))
    pickers = {
        "ppo": policy_picker(blind),
        f"ppo, gamma {FORESIGHT}": policy_picker(seeing),
        **_crosschecks(trained, lessons, seed, crosscheck),
        **plain_pickers(trained, seed),
    }
    found = tuple(regrets(questions(traces), pickers))
    notes = [] if any(name.startswith("MaskablePPO") for name in pickers) else [_UNCHECKED]
    ratios = [_mean_ratio(trained, policy) for policy in (blind, seeing)]
    worth = ratios[1] < (1.0 - _WORTH) * ratios[0]
    notes.append(_SEEING if worth else _BLIND)
    return Pretrained(seeing if worth else blind, found, tuple(notes))


_UNCHECKED = (
    "MaskablePPO was left out: pip install 'grainshift[pretrain]' adds what the check needs."
)
_BLIND = (
    f"Without foresight (gamma 0) it does as well as with gamma {FORESIGHT}: choosing is a bandit"
    " with a context here, and gamma is 0 in what was kept."
)
_SEEING = f"Foresight pays here: what was kept was trained with gamma {FORESIGHT}."


def _crosschecks(
    trained: Sequence[Trace], lessons: int, seed: int, wanted: bool
) -> dict[str, Picker]:
    try:
        return {"MaskablePPO": maskable_ppo(trained, lessons, seed)} if wanted else {}
    except MissingExtra:
        return {}


def _mean_ratio(traces: Sequence[Trace], policy: Ppo) -> float:
    found = regrets(questions(traces), {"it": policy_picker(policy)})
    return fmean(regret.mean_ratio for regret in found)
