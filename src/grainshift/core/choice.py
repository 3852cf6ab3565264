"""A Choice: one way to run a Site, as frozen data. Knows nothing of how it is built or run."""

from dataclasses import dataclass
from enum import StrEnum

Argument = int | float | str


class Exactness(StrEnum):
    """How near a Choice's output is to the baseline's."""

    EXACT = "exact"
    ROUNDING = "rounding"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a Site: a name, its arguments, and how exact its output is."""

    name: str
    args: tuple[Argument, ...] = ()
    exactness: Exactness = Exactness.EXACT

    def __str__(self) -> str:
        if not self.args:
            return self.name
        return f"{self.name}({', '.join(str(arg) for arg in self.args)})"


def plan(parts: tuple[Choice, ...]) -> Choice:
    """One joint Choice for a Site with parts: what each part does, in the order of the parts."""
    loosest = max((part.exactness for part in parts), key=list(Exactness).index)
    return Choice("plan", tuple(str(part) for part in parts), loosest)
