"""What the tuner wants done, as data. A driver performs these; the tuner never does."""

from dataclasses import dataclass

from grainshift.core.proposal import Lesson, Query


@dataclass(frozen=True, slots=True)
class Instruction:
    """Something to do at one Site in one shape bucket."""

    site_key: str
    bucket: str


@dataclass(frozen=True, slots=True)
class Ask(Instruction):
    """Ask the Policy what to put to trial."""

    query: Query


@dataclass(frozen=True, slots=True)
class Build(Instruction):
    """Build a Choice, off the hot path."""

    arm: int


@dataclass(frozen=True, slots=True)
class Compare(Instruction):
    """Run a Choice once beside the baseline on a live input; the caller gets the baseline's."""

    arm: int


@dataclass(frozen=True, slots=True)
class Deal(Instruction):
    """Run the next calls in this order, `blocks` times over, as trial number `trial`."""

    trial: int
    order: tuple[int, ...]
    blocks: int
    first_block: int = 0


@dataclass(frozen=True, slots=True)
class Recall(Instruction):
    """Take back the dealt calls that have not run yet."""


@dataclass(frozen=True, slots=True)
class Swap(Instruction):
    """Make a Choice the live one."""

    arm: int
    reason: str


@dataclass(frozen=True, slots=True)
class Admit(Instruction):
    """Let an actor inside the call pick among these: each is proven no slower than the baseline."""

    arms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Teach(Instruction):
    """Let the Policy learn from what came of its answer."""

    lesson: Lesson


@dataclass(frozen=True, slots=True)
class Quarantine(Instruction):
    """A Choice is out at this Site for good; release what it holds."""

    arm: int
    reason: str


@dataclass(frozen=True, slots=True)
class Release(Instruction):
    """Let go of the memory that an idle Choice holds; it is built anew before it runs again."""

    arm: int


@dataclass(frozen=True, slots=True)
class Remember(Instruction):
    """Keep for later runs what was learnt of a Choice: its log gain over the baseline."""

    arm: int
    log_gain: float
    blocks: int


@dataclass(frozen=True, slots=True)
class Trip(Instruction):
    """Go back to the baseline without asking when a run takes longer than this a unit of work."""

    unit_s: float


@dataclass(frozen=True, slots=True)
class Note(Instruction):
    """Something a reader of the story wants to know."""

    reason: str


AnyInstruction = (
    Ask
    | Build
    | Compare
    | Deal
    | Recall
    | Swap
    | Admit
    | Teach
    | Quarantine
    | Release
    | Remember
    | Trip
    | Note
)
