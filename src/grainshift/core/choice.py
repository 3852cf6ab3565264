"""A Choice: one way to run a Site, as frozen data. Knows nothing of how it is built or run."""

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter

Argument = int | float | str
_PLAN = "plan"


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
    return Choice(_PLAN, tuple(str(part) for part in parts), loosest)


def is_plan(choice: Choice) -> bool:
    """Does it say what each part of its Site does?"""
    return choice.name == _PLAN


def spell(choice: Choice, names: tuple[str, ...]) -> str:
    """A Choice in words; of a plan, what each of the named parts does, neighbours together."""
    if not is_plan(choice) or len(names) != len(choice.args):
        return str(choice)
    pairs = groupby(zip(choice.args, names, strict=True), key=itemgetter(0))
    said = (f"{' '.join(name for _, name in group)}: {part}" for part, group in pairs)
    return f"{choice.name}({', '.join(said)})"


def parts_of(choice: Choice) -> tuple[Choice, ...]:
    """The parts of a plan, as exact as the plan is."""
    return tuple(_read(str(part), choice.exactness) for part in choice.args)


def _read(text: str, exactness: Exactness) -> Choice:
    """The Choice that was written as `text`; what looks like a number was one."""
    name, _, rest = text.partition("(")
    words = rest.removesuffix(")").split(", ") if rest else []
    return Choice(name, tuple(_argument(word) for word in words), exactness)


def _argument(word: str) -> Argument:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word
