"""What a driver needs of the world, as contracts. Knows no implementation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.events import AnyEvent
from grainshift.core.family import Recipe
from grainshift.core.forecast import Limits
from grainshift.core.instructions import AnyInstruction
from grainshift.core.machine import Machine
from grainshift.core.policy import Policy
from grainshift.core.site import Site
from grainshift.runtime.builder import Outcome


class Log(Protocol):
    """Where events and instructions are kept."""

    def append(self, event: AnyEvent, instructions: tuple[AnyInstruction, ...]) -> None:
        """Keep one step of the loop."""


class Memory(Protocol):
    """What earlier runs learnt of a Site's Choices."""

    def recall(self, site: Site, bucket: str) -> Mapping[str, float]:
        """The log gain of each Choice that is remembered."""

    def remember(
        self, site: Site, bucket: str, choice: Choice, log_gain: float, blocks: int
    ) -> None:
        """Keep what a trial told."""


class Senses(Protocol):
    """The machine's sensors."""

    def sample(self, at_s: float) -> Conditions:
        """The Conditions now."""


class Workshop(Protocol):
    """Where recipes are done, away from the caller."""

    def submit(self, order: Any, recipe: Recipe) -> None:
        """Have a recipe done."""

    def poll(self, at_s: float) -> Sequence[Outcome]:
        """What ended since the last poll."""

    def discard(self, folder: str) -> None:
        """Remove what a recipe left, once nothing reads it any more."""

    def close(self) -> None:
        """End whatever is being done."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The effects of a driver."""

    machine: Machine
    limits: Limits
    policies: Mapping[str, Policy]
    log: Log
    memory: Memory
    senses: Senses
    builders: Workshop
    clock: Callable[[], float]
