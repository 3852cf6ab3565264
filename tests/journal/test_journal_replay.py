from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from journal_values import SITE, header, note, opened, read, sensed

from grainshift.core.events import AnyEvent, Compared, Read
from grainshift.core.instructions import AnyInstruction, Note, Remember, Swap
from grainshift.journal import (
    Entry,
    Journal,
    RunHeader,
    decision_hash,
    find_run,
    rebuild,
    replay,
)
from grainshift.journal.rotate import LEAST_BYTES


@dataclass(frozen=True)
class State:
    every: int
    calls: int = 0


def begin(began: RunHeader) -> State:
    return State(every=began.seed)


def step(state: State, event: AnyEvent) -> tuple[State, tuple[AnyInstruction, ...]]:
    """A tuner that swaps after so many calls as its seed says."""
    if not isinstance(event, Read):
        return state, (note(f"{event.at_s}"),)
    state = replace(state, calls=state.calls + event.calls)
    if state.calls % state.every:
        return state, ()
    return state, (Swap(SITE.key, "B1", state.calls % 2, f"after {state.calls} calls"),)


def live(journal: Journal, count: int, first: int = 0) -> None:
    state = begin(journal.header)
    for number in range(first, first + count):
        event = opened(float(number)) if number % 50 == 0 else read(number)
        state, done = step(state, event)
        journal.append(event, done)


def recorded(count: int, seed: int = 12) -> tuple[RunHeader, list[Entry]]:
    began = header(seed=seed)
    state, entries = begin(began), []
    for number in range(count):
        event = read(number)
        state, done = step(state, event)
        entries.append(Entry(number, event, done))
    return began, entries


def test_a_run_is_replayed_from_its_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", header(seed=12), 8 << 20) as journal:
        live(journal, 1_000)
        assert journal.flush(20.0)
        logged = [done for entry in journal.entries() for done in entry.instructions]
    replayed = replay(find_run(tmp_path / "j"), begin, step)
    assert replayed.agrees
    assert (replayed.events, replayed.decisions) == (1_000, len(logged))
    assert replayed.decision_hash == replayed.recorded_hash == decision_hash(logged)
    assert len(logged) > 300


def test_the_first_difference_is_told() -> None:
    began, entries = recorded(300)
    other = Swap(SITE.key, "B1", 1, "because")
    spot = [entry.number for entry in entries if entry.instructions][5]
    entries[spot] = replace(entries[spot], instructions=(other,))
    entries[spot + 1] = replace(entries[spot + 1], instructions=(other, other))
    replayed = rebuild(began, entries, begin, step)
    difference = replayed.first_difference
    assert difference is not None
    assert not replayed.agrees
    assert (difference.number, difference.recorded) == (spot, (other,))
    assert difference.rebuilt == step(State(12, 4 * spot), entries[spot].event)[1]
    assert replayed.events == 300
    assert replayed.decision_hash != replayed.recorded_hash


@pytest.mark.parametrize("change", [(), (note("x"), note("y")), (note("y"),)])
def test_a_missing_an_added_and_a_changed_instruction_differ(
    change: tuple[AnyInstruction, ...],
) -> None:
    def always(state: State, event: AnyEvent) -> tuple[State, tuple[AnyInstruction, ...]]:
        return state, (note("x"),)

    entries = [Entry(0, sensed(0.0), (note("x"),)), Entry(1, sensed(1.0), change)]
    difference = rebuild(header(), entries, begin, always).first_difference
    assert difference is not None
    assert difference.number == 1


def test_another_seed_makes_other_decisions() -> None:
    began, entries = recorded(300)
    other = replace(began, seed=16)
    replayed = rebuild(other, entries, begin, step)
    assert replayed.first_difference is not None


def test_not_a_number_agrees_with_itself() -> None:
    nan = Compared(1.0, SITE.key, "B1", 1, float("nan"), 1.0, float("inf"))

    def echo(state: State, event: AnyEvent) -> tuple[State, tuple[AnyInstruction, ...]]:
        return state, (Remember(SITE.key, "B1", 1, float("nan"), 3),)

    entries = [Entry(0, nan, echo(State(1), nan)[1])]
    assert rebuild(header(), entries, begin, echo).agrees


def test_a_gap_ends_the_replay_and_is_told() -> None:
    began, entries = recorded(300)
    replayed = rebuild(began, entries[:120] + entries[150:], begin, step)
    assert not replayed.agrees
    assert replayed.events == 120
    assert replayed.first_difference is None
    assert "30 events are missing from number 120" in replayed.missing


def test_a_cut_run_is_told(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", header(seed=12), LEAST_BYTES) as journal:
        for first in range(0, 40_000, 5_000):
            live(journal, 5_000, first)
            assert journal.flush(20.0)
    run = find_run(tmp_path / "j")
    assert run.cut > 0
    replayed = replay(run, begin, step)
    assert not replayed.agrees
    assert (replayed.events, replayed.decisions) == (0, 0)
    assert f"first {run.cut} events were rotated away" in replayed.missing


def test_a_run_without_events_is_told() -> None:
    assert "no events" in rebuild(header(), [], begin, step).missing


def test_the_hash_depends_on_every_bit_and_on_order() -> None:
    one, two = Note("a:b", "B1", "x"), Remember("a:b", "B1", 1, 0.1, 4)
    logs: list[list[AnyInstruction]] = [
        [],
        [one],
        [one, two],
        [two, one],
        [one, replace(two, log_gain=0.1 + 2**-55)],
        [one, replace(two, blocks=5)],
        [replace(one, bucket="B2"), two],
    ]
    assert len({decision_hash(log) for log in logs}) == len(logs)
    assert len(decision_hash([one, two])) == 64
    assert decision_hash([one, replace(two, log_gain=1)]) == decision_hash(
        [one, replace(two, log_gain=1.0)]
    )
    assert decision_hash([one, two]) == decision_hash(iter([one, two]))
