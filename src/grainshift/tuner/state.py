"""What the tuner knows, as frozen values: one Case for each Site and shape bucket."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from grainshift.core.conditions import Conditions
from grainshift.core.events import Offer
from grainshift.core.forecast import Limits
from grainshift.core.guard import Guard
from grainshift.core.instructions import AnyInstruction
from grainshift.core.proposal import Query
from grainshift.core.settings import Settings
from grainshift.core.site import Named, Site
from grainshift.tuner.evidence import Cusum, Level

BASELINE = 0
Instructions = tuple[AnyInstruction, ...]


class Phase(StrEnum):
    """How far the search for a better Choice has come in a Case."""

    IDLE = "idle"
    ASKING = "asking"
    BUILDING = "building"
    COMPARING = "comparing"
    TRYING = "trying"


@dataclass(frozen=True, slots=True)
class Arm:
    """One Choice in a Case, and what became of it so far.

    `reversals` count how often it went live and had to go back; `gain_low` is what it gains over
    the baseline at least, None until a trial has told.
    """

    offer: Offer
    built: bool = False
    compared: bool = False
    quarantined: bool = False
    held_bytes: int = 0
    rejections: int = 0
    reversals: int = 0
    wait_until_calls: int = 0
    gain: float | None = None
    gain_low: float | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Runs of one paired block that have come in so far, as (arm, log seconds a unit)."""

    number: int
    runs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """Paired blocks of a Choice beside the live one and the baseline.

    `order` is how the runs of one block follow each other; `gains` are the log gains over the
    live Choice, `baseline_gains` those over the baseline, one a block; `baseline_log` is the
    baseline's log seconds a unit in the last one.
    """

    number: int
    arm: int
    order: tuple[int, ...]
    query: Query | None = None
    first_ratio: float = 1.0
    dealt: int = 0
    done: int = 0
    blocks: tuple[Block, ...] = ()
    gains: tuple[float, ...] = ()
    baseline_gains: tuple[float, ...] = ()
    baseline_log: float = 0.0

    @property
    def is_under_way(self) -> bool:
        """Whether dealt runs are still to come; else it waits for the budget or for a switch."""
        return self.done < self.dealt


@dataclass(frozen=True, slots=True)
class Ledger:
    """Seconds: what the baseline would have taken so far, and what was lost against it.

    `spent_s` is the cost of exploring. `debt_s` is what the live Choice lost since it last was
    even with the baseline; `pending_*` are live runs not yet settled by a probe, and not yet in
    `baseline_s`.
    """

    baseline_s: float = 0.0
    ran_s: float = 0.0
    spent_s: float = 0.0
    debt_s: float = 0.0
    pending_s: float = 0.0
    pending_work: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One Site in one shape bucket: its Choices, the live one, and the search so far.

    `features` are what a Policy sees of the bucket.
    """

    site: Site
    bucket: str
    arms: tuple[Arm, ...]
    phase: Phase = Phase.IDLE
    live: int = BASELINE
    calls: int = 0
    work: float = 1.0
    baseline: Level = field(default_factory=Level)
    level: Level = field(default_factory=Level)
    drift: Cusum = field(default_factory=Cusum)
    baseline_drift: Cusum = field(default_factory=Cusum)
    ledger: Ledger = field(default_factory=Ledger)
    query: Query | None = None
    candidate: int = BASELINE
    trial: Trial | None = None
    probe: Trial | None = None
    gains: tuple[float, ...] = ()
    trials: int = 0
    next_ask_calls: int = 0
    next_probe_calls: int = 0
    watch_until_calls: int = 0
    compare_at_calls: int = 0
    trip_unit_s: float = math.inf
    switched_s: tuple[float, ...] = ()
    suspended: bool = False
    admitted: tuple[int, ...] = (BASELINE,)
    features: Named = ()

    @property
    def key(self) -> tuple[str, str]:
        """The Site's key and the bucket."""
        return self.site.key, self.bucket

    @property
    def call_s(self) -> float:
        """Expected seconds of one call of the baseline."""
        return self.baseline.unit_s * self.work

    @property
    def live_s(self) -> float:
        """Expected seconds of one call of the live Choice."""
        level = self.level if self.live != BASELINE and self.level.count else self.baseline
        return level.unit_s * self.work


@dataclass(frozen=True, slots=True)
class State:
    """All that the tuner knows; `quarantine` holds (site key, fingerprint, choice)."""

    settings: Settings
    limits: Limits = field(default_factory=Limits)
    guards: tuple[Guard, ...] = ()
    conditions: Conditions = field(default_factory=lambda: Conditions(0.0))
    frozen: bool = False
    quarantine: frozenset[tuple[str, str, str]] = frozenset()
    cases: Mapping[tuple[str, str], Case] = field(default_factory=lambda: MappingProxyType({}))
