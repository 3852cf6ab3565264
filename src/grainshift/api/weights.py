"""Starts the policy of a family from trained weights, where there are any.

Weights that `grainshift pretrain` made on this machine come first, then those that ship beside the
family. Broken or missing ones leave the policy untrained, and the report says so.
"""

from pathlib import Path

import grainshift.families
from grainshift.core.errors import NotTunable
from grainshift.core.policy import Policy
from grainshift.environment import environment
from grainshift.policies.store import load

TRAINED = frozenset({"ppo"})  # what `grainshift pretrain` trains
_SHIPPED = Path(grainshift.families.__path__[0])


def start_trained(policy: Policy, name: str, family: str) -> str:
    """Start a fresh policy of that name; what the report should say of it, or nothing."""
    if name not in TRAINED:
        return ""
    files = (environment().weights_file(family, name), _SHIPPED / family / f"{name}.npz")
    told = ""
    for file in files:
        if file.exists():
            fault = _begin_from(policy, file)
            if not fault:
                return told
            told = f"Trained weights could not be used: {fault}"
    none = f"There are no trained weights for {name} at {family}; `grainshift pretrain` makes them"
    return f"{told or none}. It starts untrained."


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
