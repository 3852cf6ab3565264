"""A Site: a stable address in a Program where one family may decide. Knows no module or tensor."""

from dataclasses import dataclass
from enum import StrEnum

Named = tuple[tuple[str, float], ...]


class Tempo(StrEnum):
    """How often a Slot may change what it runs."""

    SEGMENT = "segment"
    CALL = "call"
    STEP = "step"


class Place(StrEnum):
    """Where a built Choice does its work."""

    CALLER = "caller"
    WORKERS = "workers"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class Site:
    """An address where `family` may decide; `parts` are decided together, as one plan."""

    family: str
    path: str
    fingerprint: str
    tempo: Tempo
    features: Named = ()
    parts: tuple["Site", ...] = ()

    @property
    def key(self) -> str:
        """The name of this Site in journals, reports and stories."""
        return f"{self.family}:{self.path}"

    @property
    def part_names(self) -> tuple[str, ...]:
        """The last word of each part's path, in the order of a plan."""
        return tuple(part.path.rpartition(".")[2] for part in self.parts)
