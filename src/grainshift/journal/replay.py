"""Rebuilds every decision of a recorded run and compares. Is given the tuner; knows none."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from grainshift.core.codec import decode_instruction, encode_tagged
from grainshift.core.events import AnyEvent
from grainshift.core.instructions import AnyInstruction
from grainshift.journal.header import RunHeader
from grainshift.journal.read import Run, entries
from grainshift.journal.text import Entry, instruction_text

S = TypeVar("S")
Instructions = tuple[AnyInstruction, ...]
Begin = Callable[[RunHeader], S]
Step = Callable[[S, AnyEvent], tuple[S, Instructions]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event whose recorded answer the tuner does not give again."""

    number: int
    event: AnyEvent
    recorded: Instructions
    rebuilt: Instructions


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay.

    `decisions` counts the instructions that were rebuilt from `events`; `missing` is empty when
    nothing is, else it says what could not be replayed and why.
    """

    events: int
    decisions: int
    first_difference: Difference | None
    decision_hash: str
    recorded_hash: str
    missing: str

    @property
    def agrees(self) -> bool:
        """Whether the whole run was replayed and every decision came out the same."""
        return self.first_difference is None and not self.missing


def replay(run: Run, begin: Begin[S], step: Step[S]) -> Replayed:
    """Rebuild a run's decisions from its events, as far as these are there without a break."""
    return rebuild(run.header, entries(run), begin, step, run.cut)


def rebuild(
    header: RunHeader, recorded: Iterable[Entry], begin: Begin[S], step: Step[S], cut: int = 0
) -> Replayed:
    """Rebuild decisions from entries; a state begun from the header meets each event in turn."""
    state = begin(header)
    ours, theirs = _Log(), _Log()
    difference: Difference | None = None
    missing = ""
    events = 0
    for entry in recorded:
        if entry.number != events:
            missing = _missing(events, entry.number, cut)
            break
        state, rebuilt = step(state, entry.event)
        if ours.add(rebuilt) != theirs.add(entry.instructions) and difference is None:
            difference = Difference(entry.number, entry.event, entry.instructions, rebuilt)
        events += 1
    if not events and not missing:
        missing = _missing(0, cut, cut) if cut else "the run holds no events"
    return Replayed(events, ours.count, difference, ours.digest, theirs.digest, missing)


def decision_hash(instructions: Iterable[AnyInstruction]) -> str:
    """A hash that two logs of decisions share only if they are equal, bit for bit."""
    log = _Log()
    log.add(tuple(instructions))
    return log.digest


class _Log:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, instructions: Instructions) -> list[str]:
        texts = [instruction_text(_declared(instruction)) for instruction in instructions]
        for text in texts:
            self._hash.update(text.encode() + b"\n")
        self.count += len(texts)
        return texts

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def _declared(instruction: AnyInstruction) -> AnyInstruction:
    """As it comes back from the Journal: a whole number where a float is declared is a float."""
    return decode_instruction(*encode_tagged(instruction))


def _missing(events: int, number: int, cut: int) -> str:
    if not events and number <= cut:
        return (
            f"the run is cut: its first {cut} events were rotated away to keep the Journal within"
            " its bound, so there is nothing to begin from"
        )
    return (
        f"{abs(number - events)} events are missing from number {events} on (the writer could not"
        " keep up, or the file was replaced); what comes after cannot be replayed"
    )
