"""A model of sketched layers on a simulated clock, tuned by the real Slot, driver and loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.events import AnyEvent
from grainshift.core.family import Family, Recipe
from grainshift.core.forecast import Limits
from grainshift.core.instructions import AnyInstruction
from grainshift.core.machine import Machine
from grainshift.core.settings import Settings
from grainshift.core.site import Site
from grainshift.guards import make_guards
from grainshift.policies import make_policy
from grainshift.runtime.builder import Outcome
from grainshift.runtime.slot import Slot
from grainshift.tuner import loop
from grainshift.tuner.driver import Driver
from grainshift.tuner.ports import Ports

FREE_BYTES = 8 << 30


@dataclass
class Clock:
    """Time, which only work moves on, with noise of 2 %."""

    now_s: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def work(self, seconds: float) -> None:
        self.now_s += seconds * float(np.exp(0.02 * self.rng.standard_normal()))

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Model:
    """What a family is given: places by path, each a way to call it."""

    clock: Clock = field(default_factory=Clock)
    places: dict[str, Callable[..., Any]] = field(default_factory=dict)
    folders: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass
class Workshop:
    """Does one recipe at a time, in the time that the recipe says, and fills its folder."""

    model: Model
    waiting: list[tuple[Any, Recipe]] = field(default_factory=list)
    began_s: float = 0.0
    gone: list[str] = field(default_factory=list)

    def submit(self, order: Any, recipe: Recipe) -> None:
        if not self.waiting:
            self.began_s = self.model.clock.now_s
        self.waiting.append((order, recipe))

    def poll(self, at_s: float) -> list[Outcome]:
        if not self.waiting:
            return []
        order, recipe = self.waiting[0]
        if at_s - self.began_s < recipe.arguments["build_s"]:
            return []
        self.waiting.pop(0)
        folder = f"folder-{len(self.model.folders) + len(self.gone)}"
        self.model.folders[folder] = recipe.arguments
        took_s, self.began_s = at_s - self.began_s, at_s
        return [Outcome(order, folder, took_s)]

    def discard(self, folder: str) -> None:
        del self.model.folders[folder]
        self.gone.append(folder)

    def close(self) -> None:
        self.waiting.clear()


@dataclass
class Memories:
    """What was learnt, by Choice."""

    gains: dict[str, float] = field(default_factory=dict)

    def recall(self, site: Site, bucket: str) -> Mapping[str, float]:
        return {}

    def remember(self, site: Site, bucket: str, choice: Choice, gain: float, blocks: int) -> None:
        self.gains[str(choice)] = gain


@dataclass
class Log:
    steps: list[tuple[AnyEvent, tuple[AnyInstruction, ...]]] = field(default_factory=list)

    def append(self, event: AnyEvent, instructions: tuple[AnyInstruction, ...]) -> None:
        self.steps.append((event, instructions))


@dataclass
class FreeMemory:
    """The machine's Conditions: what is free."""

    free_bytes: float = FREE_BYTES

    def sample(self, at_s: float) -> Conditions:
        return Conditions(at_s, (Figure("free_memory_bytes", self.free_bytes),))


class Tuned:
    """A Model whose places go through Slots, as a session would have it."""

    def __init__(
        self,
        family: Family,
        model: Model,
        settings: Settings | None = None,
        limits: Limits | None = None,
        policy: str = "bandit",
    ) -> None:
        self.family, self.model = family, model
        self.log, self.memory, self.workshop = Log(), Memories(), Workshop(model)
        self.senses = FreeMemory()
        settings, limits = settings or Settings(), limits or Limits()
        machine = Machine("sketched", "sketched", (0, 1), 2.0, FREE_BYTES)
        ports = Ports(
            machine,
            limits,
            {family.name: make_policy(policy, settings.seed, settings.epsilon)},
            self.log,
            self.memory,
            self.senses,
            self.workshop,
            model.clock,
        )
        self.driver = Driver(loop.begin(settings, limits, make_guards(settings, limits)), ports)
        self.slots: dict[str, Slot] = {}
        self.undo: dict[str, Callable[[], None]] = {}
        self.find()

    def find(self) -> None:
        """Take in the Sites that are there and let those go that went stale."""
        sites, _ = self.family.find(self.model)
        for gone in {*self.slots} - {site.key for site in sites}:
            self.undo.pop(gone)()
            self.driver.detach(gone)
            del self.slots[gone]
        for site in sites:
            if site.key not in self.slots:
                stock = self.family.build(self.model, site, "", Choice("stock"), "")
                slot = self.slots[site.key] = Slot(site, stock.run, self.model.clock)
                self.undo[site.key] = self.family.install(self.model, site, slot)
                self.driver.attach(site, self.family, slot, self.model)

    def run(self, calls: int, call: Callable[[int], None]) -> None:
        """So many calls of the model, the driver looking at every fourth."""
        for number in range(calls):
            call(number)
            if number % 4 == 0:
                self.driver.pump()

    def live(self, site_key: str, bucket: str = "B1") -> Choice:
        choices = self.driver.choices(site_key, bucket)
        return choices[self.slots[site_key].live(bucket)]

    def events(self, kind: type) -> list[Any]:
        return [event for event, _ in self.log.steps if isinstance(event, kind)]

    def said(self, kind: type) -> list[Any]:
        return [one for _, said in self.log.steps for one in said if isinstance(one, kind)]
