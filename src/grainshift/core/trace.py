"""A Trace: what every Choice of a Site took in one bucket under one load. Knows no clock."""

from dataclasses import dataclass
from statistics import median

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.site import Named


@dataclass(frozen=True, slots=True)
class Cost:
    """What one Choice cost.

    `gains` are log(t_baseline / t_choice), one for each time that it ran beside the baseline;
    `extra_bytes` is memory beyond the baseline's; `hit_ratio` is the modelled share of touched
    bytes that the caches serve; `expected_gain` is what the Forecast had said.
    """

    choice: Choice
    gains: tuple[float, ...]
    extra_bytes: int = 0
    hit_ratio: float = 0.0
    expected_gain: float = 0.0

    @property
    def gain(self) -> float:
        """The gain in the middle of those measured."""
        return median(self.gains)


@dataclass(frozen=True, slots=True)
class Trace:
    """One layout of a Site (`architecture`) in one bucket under one load; the baseline first.

    `features` are the Site's and the bucket's. `left_out` is empty where it may be trained on;
    else it says for the sake of which test it may not: architecture, shape or load.
    """

    architecture: str
    bucket: str
    load: str
    features: Named
    conditions: Conditions
    baseline_s: float
    costs: tuple[Cost, ...]
    left_out: str = ""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The Choices, in the order of the offer."""
        return tuple(cost.choice for cost in self.costs)


@dataclass(frozen=True, slots=True)
class Traces:
    """What was profiled on one machine for one family."""

    family: str
    machine: str
    traces: tuple[Trace, ...] = ()
