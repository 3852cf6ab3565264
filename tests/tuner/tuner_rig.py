"""Two simulated Sites on one driver, of which any part may be replaced by a broken one."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from grainshift.bench.simulate import (
    Forgetful,
    Noise,
    Recorder,
    SimulatedBuilders,
    SimulatedFamily,
    SimulatedSenses,
    Table,
    World,
)
from grainshift.core.forecast import Limits
from grainshift.core.machine import Machine
from grainshift.core.settings import Settings
from grainshift.core.site import Site, Tempo
from grainshift.guards import make_guards
from grainshift.policies import make_policy
from grainshift.runtime.slot import Slot
from grainshift.tuner import loop
from grainshift.tuner.driver import Driver
from grainshift.tuner.ports import Ports

CALLS = 500
BUCKET = "B1"
COSTS = (1.0, 0.9, 0.5)


class Nasty(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@dataclass(frozen=True)
class Broken:
    """What it stands for, but for some methods: they do what `instead` does."""

    inner: Any
    methods: tuple[str, ...]
    instead: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        return self.instead if name in self.methods else getattr(self.inner, name)


def raising(fault: Exception) -> Callable[..., Any]:
    def instead(*args: Any) -> Any:
        raise fault

    return instead


def table(**changes: Any) -> Table:
    def cost_s(arm: int, moment: object) -> float:
        return 0.005 * COSTS[arm]

    plain = Table("table", len(COSTS), cost_s, Noise(0.02), COSTS, spread=0.02)
    return replace(plain, **changes)


@dataclass
class Rig:
    """Two Sites of two families on one driver; any part of it may be replaced by a broken one."""

    parts: dict[str, Any] = field(default_factory=dict)
    costs: Table = field(default_factory=table)
    tempo: Tempo = Tempo.CALL

    def __post_init__(self) -> None:
        self.world = World(self.costs, CALLS * 4, 0)
        settings, limits = Settings(dwell_s=0.0, opening_calls=20.0), Limits()
        self.log = Recorder()
        self.families = {
            name: self.part(f"{name} family", SimulatedFamily(self.world, name))
            for name in ("good", "bad")
        }
        policies = {
            name: self.part(f"{name} policy", make_policy("fixed")) for name in self.families
        }
        ports = Ports(
            Machine("simulated", "simulated", (0, 1), 2.0, 1 << 33),
            limits,
            policies,
            self.part("log", self.log),
            self.part("memory", Forgetful()),
            self.part("senses", SimulatedSenses(self.world)),
            self.part("builders", SimulatedBuilders(self.world)),
            lambda: self.world.now_s,
        )
        self.driver = Driver(loop.begin(settings, limits, make_guards(settings, limits)), ports)
        self.slots: dict[str, Slot] = {}
        for name in self.families:
            self.attach(name)

    def part(self, name: str, plain: Any) -> Any:
        change = self.parts.get(name)
        return plain if change is None else change(plain)

    def attach(self, name: str) -> None:
        site = Site(name, "layer", "f00d", self.tempo)
        self.slots[name] = Slot(site, lambda: self.world.run(0), lambda: self.world.now_s)
        self.driver.attach(site, self.families[name], self.slots[name], None)

    def run(self, calls: int = CALLS) -> list[str]:
        """So many calls of both; the warnings there were."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for call in range(calls):
                for slot in self.slots.values():
                    self.world.call += 1
                    assert slot.call(BUCKET, 1.0) == 1.0
                if call % 4 == 0:
                    self.driver.pump()
        assert all(one.category is RuntimeWarning for one in caught)
        return [str(one.message) for one in caught]

    def live(self, name: str) -> int:
        return self.slots[name].live(BUCKET)

    def events(self, kind: type) -> list[Any]:
        return [event for event, _ in self.log.steps if isinstance(event, kind)]


def broken(*methods: str, instead: Callable[..., Any] | None = None) -> Callable[[Any], Broken]:
    return lambda plain: Broken(plain, methods, instead or raising(RuntimeError("it broke")))
