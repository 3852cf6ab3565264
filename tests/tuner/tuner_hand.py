"""Plays a model and a driver by hand: exact costs, no noise, every event in the test's hands."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from grainshift.core.choice import Choice
from grainshift.core.events import (
    AnyEvent,
    Built,
    Compared,
    Failed,
    Offer,
    Opened,
    Proposed,
    Read,
    Tripped,
)
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.guard import Guard
from grainshift.core.instructions import (
    AnyInstruction,
    Ask,
    Build,
    Compare,
    Deal,
    Recall,
    Swap,
)
from grainshift.core.proposal import Proposal, Query
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.core.site import Site, Tempo
from grainshift.guards import make_guards
from grainshift.tuner import loop
from grainshift.tuner.state import Case, State

SITE = Site("simulated", "one", "f00d", Tempo.CALL, (("size", 4.0),))
BUCKET = "B1"
BASELINE_S = 0.005
CHOICES = tuple(Choice("choice", (number,)) for number in range(20))
Chooser = Callable[[Query], int | None]


def offers(*forecasts: Forecast) -> tuple[Offer, ...]:
    """The baseline and a Choice for each Forecast."""
    first = Offer(Choice("stock"), Forecast(spread=0.0))
    return first, *(Offer(CHOICES[n], told) for n, told in enumerate(forecasts, 1))


def surely(*ratios: float) -> tuple[Offer, ...]:
    """Choices whose Forecasts are sure of these time ratios."""
    return offers(*(Forecast(ratio, 0.02) for ratio in ratios))


def open_state(settings: Settings | None = None, limits: Limits | None = None) -> State:
    settings, limits = settings or Settings(), limits or Limits()
    return loop.begin(settings, limits, make_guards(settings, limits))


def first_allowed(query: Query) -> int:
    """The first Choice that may be tried, else stay."""
    return next((n for n, ok in enumerate(query.mask) if ok and n != query.live), query.live)


@dataclass
class Hand:
    """One Case, played: each call takes what `costs` says and tells the loop at once.

    `choose` answers an Ask (None: not at all); while `builds` is off a Build waits in `building`.
    """

    offered: tuple[Offer, ...]
    costs: list[float]
    state: State = field(default_factory=open_state)
    site: Site = SITE
    bucket: str = BUCKET
    choose: Chooser = first_allowed
    builds: bool = True
    error_ratio: float = 0.0
    at_s: float = 0.0
    live: int = 0
    calls: int = 0
    trip_unit_s: float = float("inf")
    deck: deque[tuple[int, int, int]] = field(default_factory=deque)
    building: list[int] = field(default_factory=list)
    said: list[AnyInstruction] = field(default_factory=list)
    steps: list[tuple[AnyEvent, tuple[AnyInstruction, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.send(Opened(self.at_s, self.site, self.bucket, self.offered))

    @property
    def key(self) -> tuple[str, str]:
        return self.site.key, self.bucket

    @property
    def case(self) -> Case:
        return self.state.cases[self.key]

    def send(self, event: AnyEvent) -> tuple[AnyInstruction, ...]:
        """Let the loop take one event, and do what it says, as a driver would."""
        self.state, said = loop.step(self.state, event)
        self.steps.append((event, said))
        self.said.extend(said)
        for one in said:
            if (one.site_key, one.bucket) == self.key:
                self._do(one)
        return said

    def _do(self, said: AnyInstruction) -> None:
        match said:
            case Ask(query=query):
                arm = self.choose(query)
                if arm is not None:
                    self.send(Proposed(self.at_s, *self.key, Proposal(arm)))
            case Build(arm=arm):
                self.building.append(arm)
                if self.builds:
                    self.finish_build()
            case Compare(arm=arm):
                self.deck.append((arm, -1, 0))
            case Deal():
                blocks = range(said.first_block, said.first_block + said.blocks)
                self.deck.extend((arm, said.trial, b) for b in blocks for arm in said.order)
            case Recall():
                self.deck.clear()
            case Swap(arm=arm):
                self.live = arm

    def finish_build(self) -> None:
        self.send(Built(self.at_s, *self.key, self.building.pop(0), 0.1))

    def run(self, calls: int = 1) -> None:
        """So many calls of the model."""
        for _ in range(calls):
            self._call()

    def _call(self) -> None:
        self.calls += 1
        factor = 1.01 if self.calls % 2 else 0.99  # or the noise would be nought
        if self.deck:
            arm, trial, block = self.deck.popleft()
            seconds = self.costs[arm] * factor
            self.at_s += seconds
            if trial == -1:
                baseline_s = self.costs[0] * factor
                self.at_s += baseline_s
                event = (arm, self.error_ratio, seconds, baseline_s)
                self.send(Compared(self.at_s, *self.key, *event))
            else:
                self.read(Reading(arm, seconds, 1.0, trial, block))
            return
        seconds = self.costs[self.live] * factor
        self.at_s += seconds
        self.read(Reading(self.live, seconds), calls=1, live_s=seconds, live_work=1.0)

    def read(self, *readings: Reading, **totals: Any) -> tuple[AnyInstruction, ...]:
        return self.send(Read(self.at_s, *self.key, readings, **totals))

    def fail(self, arm: int, kind: str = "exception") -> tuple[AnyInstruction, ...]:
        return self.send(Failed(self.at_s, *self.key, arm, kind, "it broke"))

    def trip(self, arm: int) -> tuple[AnyInstruction, ...]:
        """As a Slot does: what was dealt is gone, and the baseline runs."""
        self.deck = deque(card for card in self.deck if card[1] == -1)
        self.live = 0 if self.live == arm else self.live
        return self.send(Tripped(self.at_s, *self.key, arm))

    def told(self, kind: type) -> list[Any]:
        """What the loop said of this kind so far."""
        return [one for one in self.said if isinstance(one, kind)]

    def clear(self) -> None:
        """Forget what was said."""
        self.said.clear()
        self.steps.clear()

    def until(self, is_so: Callable[["Hand"], bool], most: int = 3_000) -> int:
        """Calls until something is so."""
        for calls in range(most):
            if is_so(self):
                return calls
            self.run()
        raise AssertionError(f"not so within {most} calls: {self.case}")


def hand(
    costs: list[float],
    offered: tuple[Offer, ...] | None = None,
    settings: Settings | None = None,
    limits: Limits | None = None,
    guards: tuple[Guard, ...] | None = None,
    **more: Any,
) -> Hand:
    """A Hand whose Choices cost so many times what the baseline's 5 ms are."""
    state = open_state(settings, limits)
    if guards is not None:
        state = loop.begin(state.settings, state.limits, guards)
    ratios = [ratio * BASELINE_S for ratio in (1.0, *costs)]
    return Hand(offered or surely(*costs), ratios, state, **more)


def is_live(arm: int) -> Callable[[Hand], bool]:
    return lambda one: one.case.live == arm
