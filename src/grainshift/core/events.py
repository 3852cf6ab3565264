"""What can happen to the tuner, as data. Every effect in the world reaches it as one of these."""

from dataclasses import dataclass

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.forecast import Forecast
from grainshift.core.proposal import Proposal
from grainshift.core.reading import Reading
from grainshift.core.site import Named, Site


@dataclass(frozen=True, slots=True)
class Offer:
    """One Choice offered at a Site: its Forecast, and the log gain that experience remembers."""

    choice: Choice
    forecast: Forecast
    remembered: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, at a time of the tuner's clock."""

    at_s: float


@dataclass(frozen=True, slots=True)
class CaseEvent(Event):
    """Something that happened at one Site in one shape bucket."""

    site_key: str
    bucket: str


@dataclass(frozen=True, slots=True)
class Opened(Event):
    """A Site was first called with shapes of this bucket; its Choices, the baseline first.

    `features` are what a Policy sees of the bucket.
    """

    site: Site
    bucket: str
    offers: tuple[Offer, ...]
    features: Named = ()


@dataclass(frozen=True, slots=True)
class Extended(CaseEvent):
    """The family offers further Choices at a Site (new plans, new chunk sizes)."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Sensed(Event):
    """The machine's Conditions were sampled."""

    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Read(CaseEvent):
    """Runs were measured. A busy Slot samples its live runs, so their totals are told apart:
    `calls` live runs took `live_s` seconds for `live_work` units of work.
    """

    readings: tuple[Reading, ...]
    calls: int = 0
    live_s: float = 0.0
    live_work: float = 0.0


@dataclass(frozen=True, slots=True)
class Proposed(CaseEvent):
    """The Policy answered."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Built(CaseEvent):
    """A Choice is ready to run; what building it took, and the memory it holds."""

    arm: int
    build_s: float
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Compared(CaseEvent):
    """A Choice ran beside the baseline on a live input: its error, and the time of both."""

    arm: int
    error_ratio: float
    choice_s: float
    baseline_s: float
    work: float = 1.0


@dataclass(frozen=True, slots=True)
class Failed(CaseEvent):
    """A Choice could not be built or run: `kind` is build, exception, memory or wrong.

    `seconds` is what the run took until it failed; the caller waited for it.
    """

    arm: int
    kind: str
    reason: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Tripped(CaseEvent):
    """A run took longer than the Slot was told to bear: it runs the baseline until told to swap."""

    arm: int


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """A Site went stale: the Program changed under it."""

    site_key: str


@dataclass(frozen=True, slots=True)
class Frozen(Event):
    """The user ended exploring for good."""


AnyEvent = (
    Opened
    | Extended
    | Sensed
    | Read
    | Proposed
    | Built
    | Compared
    | Failed
    | Tripped
    | Lost
    | Frozen
)
