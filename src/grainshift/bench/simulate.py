"""A simulated machine: cost tables, noise, faults and a clock, driving the real Slot and driver.

Only the machine is simulated. Nothing here knows how the tuner decides.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.events import AnyEvent
from grainshift.core.family import Door, Recipe, Runner
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.instructions import AnyInstruction
from grainshift.core.machine import Machine
from grainshift.core.policy import Policy
from grainshift.core.settings import Settings
from grainshift.core.site import Named, Site, Tempo
from grainshift.guards import make_guards
from grainshift.runtime.builder import Outcome
from grainshift.runtime.slot import Slot
from grainshift.tuner import loop
from grainshift.tuner.driver import Driver
from grainshift.tuner.ports import Ports

BUCKET = "B1"
FREE_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Moment:
    """When a Choice runs: the call's number, the time, and how often it ran before."""

    call: int
    at_s: float
    runs: int


@dataclass(frozen=True, slots=True)
class Noise:
    """Multiplies each call's time: lognormal, with a heavy tail, correlated from call to call."""

    sigma: float = 0.05
    tail_share: float = 0.0
    tail_factor: float = 1.0
    correlation: float = 0.0

    def draw(self, rng: np.random.Generator, calls: int) -> np.ndarray:
        """A factor for each call."""
        shocks = rng.standard_normal(calls)
        if self.correlation:
            scale = math.sqrt(1.0 - self.correlation**2)
            for call in range(1, calls):
                shocks[call] = self.correlation * shocks[call - 1] + scale * shocks[call]
        factors = np.exp(self.sigma * shocks - self.sigma**2 / 2.0)
        heavy = rng.random(calls) < self.tail_share
        factors[heavy] *= 1.0 + rng.pareto(2.5, int(heavy.sum())) * self.tail_factor
        return factors


@dataclass(frozen=True, slots=True)
class Table:
    """What each Choice costs in seconds at each moment, and what goes wrong with it.

    `ratios` are what Forecasts claim; `faults` maps the number of a Choice to `exception`,
    `memory`, `nan` or `build`; `load` tells what others use of the cores.
    """

    name: str
    count: int
    cost_s: Callable[[int, Moment], float]
    noise: Noise = Noise()
    ratios: tuple[float, ...] = ()
    spread: float = 0.3
    build_s: float = 0.0
    faults: Mapping[int, str] = field(default_factory=dict)
    load: Callable[[Moment], float] = lambda moment: 0.0
    extra_bytes: int = 0

    def best_s(self, moment: Moment) -> float:
        """What the best Choice costs that does not fail."""
        return min(self.cost_s(n, moment) for n in range(self.count) if n not in self.faults)


class World:
    """The clock and the costs of one simulated run."""

    def __init__(self, table: Table, calls: int, seed: int) -> None:
        self.table = table
        self.now_s = 0.0
        self.call = 0
        self.runs = [0] * table.count
        self.arm = 0
        self._factors = table.noise.draw(np.random.default_rng(seed), calls)

    def moment(self, arm: int) -> Moment:
        """Now, as a Choice sees it."""
        return Moment(self.call, self.now_s, self.runs[arm])

    def run(self, arm: int) -> float:
        """Let a Choice run: the clock advances by its cost, and what is wrong with it happens."""
        fault = self.table.faults.get(arm, "")
        factor = self._factors[min(self.call, len(self._factors) - 1)]
        self.now_s += self.table.cost_s(arm, self.moment(arm)) * factor
        self.runs[arm] += 1
        self.arm = arm
        if fault == "memory":
            raise MemoryError("simulated: out of memory")
        if fault == "exception":
            raise RuntimeError("simulated: it broke")
        return math.nan if fault == "nan" else 1.0

    def noise_factor(self) -> float:
        """This call's factor, the same whichever Choice runs."""
        return float(self._factors[min(self.call, len(self._factors) - 1)])


@dataclass(frozen=True, slots=True)
class SimulatedFamily:
    """Offers the Choices of a table; building takes the time that the table says."""

    world: World
    name: str = "simulated"
    policy: str = "bandit"

    def find(self, model: Any) -> tuple[Sequence[Site], Sequence[tuple[str, str]]]:
        """The one Site there is."""
        return (Site(self.name, "table", self.world.table.name, Tempo.CALL, (("one", 1.0),)),), ()

    def features(self, site: Site, bucket: str) -> Named:
        """All calls are alike."""
        return ()

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        """The table's Choices."""
        rest = tuple(Choice("choice", (number,)) for number in range(1, self.world.table.count))
        return (Choice("stock"), *rest)

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        """What the table claims, true or not."""
        table, number = self.world.table, _number(choice)
        ratio = table.ratios[number] if table.ratios and number else 1.0
        extra = table.extra_bytes if number else 0
        return Forecast(ratio, table.spread, extra, table.build_s if number else 0.0)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        """A build that takes time, or fails."""
        fails = self.world.table.faults.get(_number(choice)) == "build"
        if not self.world.table.build_s and not fails:
            return None
        what = {"site": site.key, "choice": str(choice), "fails": fails}
        return Recipe("simulated", "build", what)

    def build(self, model: Any, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
        """A Choice that runs on the simulated machine."""
        number = _number(choice)
        return Runner(lambda: self.world.run(number), self.world.table.extra_bytes)

    def install(self, model: Any, site: Site, door: Door) -> Callable[[], None]:
        """There is no model."""
        return lambda: None


def _number(choice: Choice) -> int:
    return int(choice.args[0]) if choice.args else 0


@dataclass(slots=True)
class SimulatedBuilders:
    """Builds that end on the simulated clock."""

    world: World
    waiting: list[tuple[Any, Recipe, float]] = field(default_factory=list)

    def submit(self, order: Any, recipe: Recipe) -> None:
        """Begin a build."""
        self.waiting.append((order, recipe, self.world.now_s))

    def poll(self, at_s: float) -> list[Outcome]:
        """The builds whose time has come."""
        build_s = self.world.table.build_s
        ended = [item for item in self.waiting if at_s - item[2] >= build_s]
        self.waiting = [item for item in self.waiting if at_s - item[2] < build_s]
        failed, done = ("", build_s, "simulated: no compiler"), ("built", build_s)
        return [
            Outcome(order, *(failed if recipe.arguments["fails"] else done))
            for order, recipe, _ in ended
        ]

    def discard(self, folder: str) -> None:
        """Nothing was left."""

    def close(self) -> None:
        """Drop what is being built."""
        self.waiting = []


@dataclass(frozen=True, slots=True)
class SimulatedSenses:
    """Conditions of the simulated machine: the table's load, and plenty of memory."""

    world: World

    def sample(self, at_s: float) -> Conditions:
        """Now."""
        load = self.world.table.load(self.world.moment(0))
        figures = (Figure("cpu_others", load), Figure("free_memory_bytes", float(FREE_BYTES)))
        return Conditions(at_s, figures)


@dataclass(slots=True)
class Recorder:
    """A log in memory."""

    steps: list[tuple[AnyEvent, tuple[AnyInstruction, ...]]] = field(default_factory=list)
    keep: bool = True

    def append(self, event: AnyEvent, instructions: tuple[AnyInstruction, ...]) -> None:
        """Keep one step of the loop."""
        if self.keep:
            self.steps.append((event, instructions))


@dataclass(slots=True)
class Forgetful:
    """An experience that starts empty; keeps what it is told, if asked to."""

    gains: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def recall(self, site: Site, bucket: str) -> Mapping[str, float]:
        """What was remembered in this run."""
        return self.gains.get((site.fingerprint, bucket), {})

    def remember(
        self, site: Site, bucket: str, choice: Choice, log_gain: float, blocks: int
    ) -> None:
        """Keep a gain."""
        self.gains.setdefault((site.fingerprint, bucket), {})[str(choice)] = log_gain


@dataclass(slots=True)
class Trace:
    """What a run did, call by call: seconds taken, by the baseline, by the best, and decisions."""

    taken_s: list[float] = field(default_factory=list)
    baseline_s: list[float] = field(default_factory=list)
    best_s: list[float] = field(default_factory=list)
    expected_s: list[float] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    wrong: int = 0


class Simulation:
    """The real Slot and driver on a simulated machine."""

    def __init__(
        self,
        table: Table,
        policy: Policy,
        calls: int,
        seed: int,
        settings: Settings | None = None,
        limits: Limits | None = None,
        keep_log: bool = True,
    ) -> None:
        self.calls = calls
        self.world = World(table, calls, seed)
        self.family = SimulatedFamily(self.world)
        self.recorder = Recorder(keep=keep_log)
        settings, limits = settings or Settings(seed=seed), limits or Limits()
        state = loop.begin(settings, limits, make_guards(settings, limits))
        machine = Machine("simulated", "simulated", (0, 1), 2.0, FREE_BYTES)
        clock = self._clock
        ports = Ports(
            machine,
            limits,
            {self.family.name: policy},
            self.recorder,
            Forgetful(),
            SimulatedSenses(self.world),
            SimulatedBuilders(self.world),
            clock,
        )
        self.driver = Driver(state, ports)
        (site,), _ = self.family.find(None)
        baseline = self.family.build(None, site, BUCKET, Choice("stock"), "")
        self.slot = Slot(site, baseline.run, clock)
        self.driver.attach(site, self.family, self.slot, None)
        self.trace = Trace()

    def _clock(self) -> float:
        return self.world.now_s

    def run(self, every: int = 4, calls: int | None = None) -> Trace:
        """Make all calls, or some more, with the driver looking every so many of them."""
        trace, world, table = self.trace, self.world, self.world.table
        begin = len(trace.taken_s)
        for call in range(begin, min(begin + (calls or self.calls), self.calls)):
            world.call = call
            moment = world.moment(0)
            baseline_s, best_s = table.cost_s(0, moment), table.best_s(moment)
            start_s, factor = world.now_s, world.noise_factor()
            answer = self.slot.call(BUCKET, 1.0)
            taken_s = world.now_s - start_s
            trace.wrong += answer != 1.0
            trace.taken_s.append(taken_s)
            trace.baseline_s.append(baseline_s * factor)
            trace.best_s.append(best_s)
            trace.expected_s.append(taken_s / factor)
            if call % every == 0:
                self.driver.pump()
            trace.live.append(self.slot.live(BUCKET))
            trace.decisions.append(self.driver.decisions)
            trace.at_s.append(world.now_s)
        self.driver.pump()
        return trace
