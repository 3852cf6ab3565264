"""Makes the policy of a family, and starts it from trained weights where there are any.

Weights that `grainshift pretrain` made on this machine come first, then those that ship beside the
family. Broken or missing ones leave the policy untrained, and the report says so.
"""

from pathlib import Path

import grainshift.families
from grainshift.core.errors import NotTunable
from grainshift.core.policy import Policy
from grainshift.core.settings import Settings
from grainshift.environment import environment
from grainshift.policies import make_policy
from grainshift.policies.store import load

TRAINED = frozenset({"ppo"})  # what `grainshift pretrain` trains
_SHIPPED = Path(grainshift.families.__path__[0])


def start_policy(name: str, family: str, settings: Settings) -> tuple[Policy, str]:
    """The policy of a family, ready to propose, and what the report should say of its start."""
    policy = make_policy(name, settings.seed, settings.epsilon)
    if name not in TRAINED:
        return policy, ""
    files = (environment().weights_file(family, name), _SHIPPED / family / f"{name}.npz")
    told = ""
    for file in files:
        if file.exists():
            fault = _begin_from(policy, file)
            if not fault:
                return policy, told
            told = f"Trained weights could not be used: {fault}"
    none = f"There are no trained weights for {name} at {family}; `grainshift pretrain` makes them"
    return policy, f"{told or none}. It starts untrained."


def _begin_from(policy: Policy, file: Path) -> str:
    """Take the weights, but draw from the policy's own seed; what was wrong, or nothing."""
    dice = policy.arrays().get("dice")
    try:
        load(policy, file)
    except NotTunable as fault:
        return str(fault)
    if dice is not None:
        policy.restore({**policy.arrays(), "dice": dice})
    return ""
