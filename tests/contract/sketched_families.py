"""The five families of the design as sketches: their Sites, Choices, tempos and places, no model.

Each keeps what its Choices cost in plain sight, so that a test knows the best one.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from sketched_model import Model

from grainshift.core.choice import Choice, Exactness, plan
from grainshift.core.conditions import Conditions
from grainshift.core.family import Door, Recipe, Runner
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.machine import Machine
from grainshift.core.site import Named, Place, Site, Tempo

Found = tuple[Sequence[Site], Sequence[tuple[str, str]]]
STEP_S = 1e-4
STOCK = Choice("stock")


def put_in(model: Model, site: Site, call: Callable[..., Any]) -> Callable[[], None]:
    """Put a call in a Site's place; the answer undoes it."""
    before = model.places.get(site.path)
    model.places[site.path] = call

    def undo() -> None:
        if before is None:
            del model.places[site.path]
        else:
            model.places[site.path] = before

    return undo


@dataclass
class Recurrence:
    """Runs a sequence in segments; the state goes from one to the next, whichever Choice runs."""

    name: str = "recurrence"
    policy: str = "ppo"
    ratios: dict[Choice, float] = field(
        default_factory=lambda: {
            STOCK: 1.0,
            Choice("rolled", (), Exactness.ROUNDING): 1.3,
            Choice("unrolled", (2,), Exactness.ROUNDING): 0.9,
            Choice("unrolled", (4,), Exactness.ROUNDING): 0.7,
            Choice("unrolled", (8,), Exactness.ROUNDING): 0.45,
            Choice("hybrid", (4,), Exactness.ROUNDING): 0.6,
        }
    )

    def find(self, model: Model) -> Found:
        features = (("hidden", 256.0),)
        return (Site(self.name, "lstm", "lstm-256", Tempo.SEGMENT, features),), ()

    def features(self, site: Site, bucket: str) -> Named:
        return ()

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        return tuple(self.ratios)

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        return Forecast(0.8 if choice is not STOCK else 1.0, 0.4)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        return None

    def build(self, model: Model, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
        ratio = self.ratios[choice]

        def run(xs: tuple[float, ...], state: float) -> tuple[tuple[float, ...], float]:
            out = []
            for x in xs:
                state = 0.5 * state + x
                out.append(state)
            model.clock.work(len(xs) * STEP_S * ratio)
            return tuple(out), state

        return Runner(run)

    def install(self, model: Model, site: Site, door: Door) -> Callable[[], None]:
        def call(xs: tuple[float, ...], segment: int) -> tuple[tuple[float, ...], float]:
            state, out = 0.0, []
            for begin in range(0, len(xs), segment):
                part = xs[begin : begin + segment]
                told, state = door.call("B1", float(len(part)), part, state)
                out.extend(told)
            return tuple(out), state

        return put_in(model, site, call)


@dataclass
class Regions:
    """Subgraphs that are cut anew; what runs there is made by a builder in another process."""

    name: str = "regions"
    policy: str = "dqn"
    paths: tuple[str, ...] = ("graph",)
    loaded: list[str] = field(default_factory=list)
    costs: dict[str, dict[str, float]] = field(
        default_factory=lambda: {
            "graph": {"stock": 10.0, "fusion": 9.0, "layout": 8.0, "engine": 7.0},
            "graph.0": {"stock": 5.0, "fusion": 2.0, "layout": 4.0, "engine": 6.0},
            "graph.1": {"stock": 5.0, "fusion": 6.0, "layout": 4.5, "engine": 1.0},
        }
    )

    def find(self, model: Model) -> Found:
        sites = tuple(Site(self.name, path, f"cut {path}", Tempo.CALL) for path in self.paths)
        return sites, (("graph.last", "holds no operation"),)

    def features(self, site: Site, bucket: str) -> Named:
        return ()

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        return tuple(
            Choice(name, (), Exactness.ROUNDING if name != "stock" else Exactness.EXACT)
            for name in self.costs[site.path]
        )

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        return Forecast(1.0, 0.0) if choice == STOCK else Forecast(0.9, 0.3, build_s=0.5)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        path = {"build_s": 0.5, "path": site.path, "name": choice.name}
        return None if choice == STOCK else Recipe("compiler", "compile", path)

    def build(self, model: Model, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
        if choice != STOCK:
            made = model.folders[folder]
            assert (made["path"], made["name"]) == (site.path, choice.name)
            self.loaded.append(f"{site.path} {choice}")
        seconds = 1e-3 * self.costs[site.path][choice.name]

        def run(x: float) -> float:
            model.clock.work(seconds)
            return x + 1.0

        return Runner(run, place=Place.PROCESSES)

    def install(self, model: Model, site: Site, door: Door) -> Callable[[], None]:
        return put_in(model, site, lambda x: door.call("B1", 1.0, x))


@dataclass
class Partition:
    """One heavy operation over lists of rows, split among worker threads that have an end."""

    name: str = "partition"
    policy: str = "dqn"
    open_pools: dict[str, ThreadPoolExecutor] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    lasts: int = 30  # runs of the uneven split before one of its workers gives in
    ratios: dict[Choice, float] = field(
        default_factory=lambda: {
            Choice("none"): 1.0,
            Choice("rows", ("even", 2)): 0.6,
            Choice("rows", ("block", 0.7, 2)): 0.5,
            Choice("columns", ("block", 64, 2)): 1.4,
            Choice("depth", ("halves", 2)): 0.8,
        }
    )

    def find(self, model: Model) -> Found:
        return (Site(self.name, "matmul", "2048x1024", Tempo.CALL),), ()

    def features(self, site: Site, bucket: str) -> Named:
        return ()

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        return tuple(self.ratios)

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        return Forecast(0.7 if choice.args else 1.0, 0.3)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        return None

    def build(self, model: Model, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
        if not choice.args:
            return Runner(lambda rows: self._whole(model, rows))
        workers = int(choice.args[-1])
        pool = self.open_pools[str(choice)] = ThreadPoolExecutor(workers)
        runs = iter(range(self.lasts if choice.args[0] == "block" and workers == 2 else 1 << 60))
        is_weak = choice.name == "rows" and choice.args[0] == "block"

        def run(rows: tuple[float, ...]) -> tuple[float, ...]:
            if is_weak and next(runs, None) is None:
                raise RuntimeError("a worker gave in")
            cut = len(rows) // workers
            parts = [rows[n * cut : (n + 1) * cut] for n in range(workers)]
            done = [row for part in pool.map(_double, parts) for row in part]
            model.clock.work(5e-3 * self.ratios[choice])
            return tuple(done)

        def close() -> None:
            pool.shutdown()
            self.closed.append(str(choice))

        return Runner(run, place=Place.WORKERS, close=close)

    def _whole(self, model: Model, rows: tuple[float, ...]) -> tuple[float, ...]:
        model.clock.work(5e-3)
        return tuple(_double(rows))

    def install(self, model: Model, site: Site, door: Door) -> Callable[[], None]:
        return put_in(model, site, lambda rows: door.call("B1", float(len(rows)), rows))


def _double(rows: tuple[float, ...]) -> list[float]:
    return [2.0 * row for row in rows]


@dataclass
class Recompute:
    """The layers of a training step, decided together: one Site with parts, Choices are plans.

    Each layer stores, or keeps `bytes_` more for a step, which saves it some of its time. It begins
    with plans of one layer, and offers joint ones once it has seen what each of them saves.
    """

    name: str = "recompute"
    policy: str = "qlearning"
    saves_s: tuple[float, ...] = (4e-3, 3e-3, 2e-3, 1e-3)
    bytes_: tuple[int, ...] = (400, 300, 300, 200)
    rest_s: float = 10e-3
    measured: bool = False

    def find(self, model: Model) -> Found:
        parts = tuple(
            Site(self.name, f"layer.{n}", f"layer-{n}", Tempo.STEP) for n in range(len(self.bytes_))
        )
        return (Site(self.name, "step", "step-4", Tempo.STEP, parts=parts),), ()

    def plan_of(self, kept: tuple[int, ...]) -> Choice:
        layers = range(len(self.bytes_))
        return plan(tuple(Choice("keep" if n in kept else "store") for n in layers))

    def features(self, site: Site, bucket: str) -> Named:
        return ()

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        layers = range(len(site.parts))
        alone = [self.plan_of((n,)) for n in layers]
        joint = [self.plan_of(kept) for size in (2, 3, 4) for kept in combinations(layers, size)]
        return (self.plan_of(()), *alone, *(joint if self.measured else ()))

    def needs_bytes(self, choice: Choice) -> int:
        kept = zip(choice.args, self.bytes_, strict=True)
        return sum(held for what, held in kept if what == "keep")

    def step_s(self, choice: Choice) -> float:
        kept = zip(choice.args, self.saves_s, strict=True)
        saved_s = sum(saves_s for what, saves_s in kept if what == "keep")
        return self.rest_s + sum(self.saves_s) - saved_s

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        ratio = self.step_s(choice) / self.step_s(self.plan_of(()))
        guess = 1.0 if ratio == 1.0 else 0.95
        return Forecast(ratio if self.measured else guess, 0.2, self.needs_bytes(choice))

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        return None

    def build(self, model: Model, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
        choice = choice if choice.args else self.plan_of(())

        def run(loss: float) -> float:
            model.clock.work(self.step_s(choice))
            return loss * 0.99

        return Runner(run)  # what a step keeps is gone when it ends: nothing is held between

    def install(self, model: Model, site: Site, door: Door) -> Callable[[], None]:
        return put_in(model, site, lambda loss: door.call("B1", 1.0, loss))


@dataclass
class Schedule:
    """The whole Program's graph as one Site; lower precision only where errors are allowed."""

    name: str = "schedule"
    policy: str = "fixed"
    error_ratio: float = 0.004
    ratios: dict[Choice, float] = field(
        default_factory=lambda: {
            Choice("serial"): 1.0,
            Choice("chunked", (2, 16, "longest first", 2)): 0.75,
            Choice("chunked", (2, 64, "longest first", 2)): 0.65,
            Choice("chunked", (2, 64, "in order", 4)): 0.8,
            Choice("chunked", (1, 256, "in order", 1)): 1.05,
            Choice("precision", ("bf16",), Exactness.LOWER): 0.4,
        }
    )

    def find(self, model: Model) -> Found:
        features = (("regions", 12.0), ("width", 3.0))
        return (Site(self.name, "", "program", Tempo.CALL, features),), ()

    def features(self, site: Site, bucket: str) -> Named:
        return ()

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        may_be_lower = limits.error_ratio is not None
        return tuple(
            choice
            for choice in self.ratios
            if may_be_lower or choice.exactness is not Exactness.LOWER
        )

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        buffers = int(choice.args[3]) if choice.name == "chunked" else 0
        return Forecast(1.0 if choice.name == "serial" else 0.9, 0.2, extra_bytes=buffers << 20)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        return None

    def build(self, model: Model, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
        ratio = self.ratios.get(choice, 1.0)
        error = self.error_ratio if choice.exactness is Exactness.LOWER else 0.0

        def run(x: float) -> float:
            model.clock.work(5e-3 * ratio)
            return 3.0 * x * (1.0 + error)

        return Runner(run, place=Place.WORKERS if choice.name == "chunked" else Place.CALLER)

    def install(self, model: Model, site: Site, door: Door) -> Callable[[], None]:
        return put_in(model, site, lambda x: door.call("B1", 1.0, x))
