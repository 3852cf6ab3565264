"""The contract of a Peer: another way to run a model, to be measured beside ours."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import nn

from grainshift.bench.mode import Mode
from grainshift.core.errors import GrainshiftError

Inputs = tuple[Any, ...]  # tensors; the state of a stream may be a tuple of them
Run = Callable[[], Any]
Prepare = Callable[[nn.Module, Inputs, int], Run]


class PeerUnavailable(GrainshiftError):
    """A peer cannot run here: a package is missing, or it refuses the model."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to run a model: `prepare` takes model, inputs and threads, and answers one call.

    It has a process to itself, with PyTorch's threads already set. What the call returns is
    compared with eager PyTorch once, and then its time is taken. `stream` and `train` do the same
    for the other Modes, where the peer has them; `remark` says what there is to say of a model
    that stands prepared.
    """

    name: str
    prepare: Prepare
    stream: Prepare | None = None
    train: Prepare | None = None
    remark: Callable[[nn.Module], str] | None = None

    def way(self, mode: Mode) -> Prepare:
        """How it prepares a model that is called in that Mode."""
        found = {Mode.CALL: self.prepare, Mode.STREAM: self.stream, Mode.TRAIN: self.train}[mode]
        if found is None:
            raise PeerUnavailable(f"it has no {mode} mode")
        return found


def require(*packages: str) -> None:
    """Refuse with a sentence when a package that the peer needs is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise PeerUnavailable(
                f"{package} is not installed; pip install 'grainshift[backends]' adds it"
            )
