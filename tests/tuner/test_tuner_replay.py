"""The loop is pure: same events, same decisions; recorded runs are played again and compared."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from grainshift.bench.simulate import Recorder, Simulation
from grainshift.bench.tables import TABLES
from grainshift.core.codec import decode_event, encode, encode_tagged
from grainshift.core.events import AnyEvent, Compared, Proposed, Read
from grainshift.core.forecast import Limits
from grainshift.core.instructions import Deal, Swap
from grainshift.core.settings import Settings
from grainshift.guards import make_guards
from grainshift.journal import Entry, RunHeader, decision_hash, new_run, rebuild
from grainshift.policies import make_policy
from grainshift.tuner import loop
from grainshift.tuner.state import Instructions, State

CALLS = 1_200
Steps = Sequence[tuple[AnyEvent, Instructions]]


def recorded(name: str, seed: int, policy: str = "bandit") -> Steps:
    make = next(make for make in TABLES if make.__name__ == name)
    run = Simulation(make(seed), make_policy(policy, seed, 0.1), CALLS, seed)
    run.run()
    recorder: Recorder = run.recorder
    return recorder.steps


def hashed(steps: Steps) -> str:
    return decision_hash(one for _, said in steps for one in said)


def frozen_text(state: State) -> str:
    cases = {f"{key}": encode(case) for key, case in sorted(state.cases.items())}
    rest = (
        encode(state.conditions),
        sorted(state.quarantine),
        state.frozen,
        encode(state.settings),
    )
    return json.dumps([cases, rest])


@pytest.fixture(scope="module")
def faulty() -> Steps:
    return recorded("faulty", 3)


def test_a_step_changes_no_state_but_gives_a_new_one(faulty: Steps) -> None:
    settings, limits = Settings(seed=3), Limits()
    state = loop.begin(settings, limits, make_guards(settings, limits))
    changes = 0
    for event, _ in faulty[::3] if len(faulty) > 900 else faulty:
        before = frozen_text(state)
        after, _ = loop.step(state, event)
        assert frozen_text(state) == before
        changes += frozen_text(after) != before
        state = after
    assert changes > 100


def test_equal_events_give_equal_instructions(faulty: Steps) -> None:
    settings, limits = Settings(seed=3), Limits()
    one, two = (loop.begin(settings, limits, make_guards(settings, limits)) for _ in range(2))
    for event, said in faulty:
        one, first = loop.step(one, event)
        two, second = loop.step(two, event)
        assert first == second == said
    assert one == two


@pytest.mark.parametrize("name", ["stationary", "faulty", "turncoat"])
@pytest.mark.parametrize("policy", ["bandit", "dqn"])
def test_same_seed_same_decisions_and_another_seed_others(name: str, policy: str) -> None:
    first, again, other = (hashed(recorded(name, seed, policy)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def header() -> RunHeader:
    return new_run(0.0, "simulated", {}, Settings(seed=3))


def begin(told: RunHeader) -> State:
    return loop.begin(told.settings, told.limits, make_guards(told.settings, told.limits))


def entries(steps: Steps) -> list[Entry]:
    return [Entry(number, event, said) for number, (event, said) in enumerate(steps)]


def test_a_recorded_run_is_rebuilt_decision_by_decision(faulty: Steps) -> None:
    replayed = rebuild(header(), entries(faulty), begin, loop.step)
    assert replayed.agrees
    assert replayed.events == len(faulty)
    assert replayed.decisions > 30
    assert replayed.decision_hash == replayed.recorded_hash == hashed(faulty)


def test_an_instruction_tampered_with_is_noticed(faulty: Steps) -> None:
    told = entries(faulty)
    spot = next(n for n, (_, said) in enumerate(faulty) if any(isinstance(i, Swap) for i in said))
    wrong = tuple(
        replace(one, arm=one.arm + 1) if isinstance(one, Swap) else one for one in faulty[spot][1]
    )
    told[spot] = replace(told[spot], instructions=wrong)
    difference = rebuild(header(), told, begin, loop.step).first_difference
    assert difference is not None
    assert difference.number == spot
    assert difference.rebuilt == faulty[spot][1]


def slower(event: AnyEvent) -> AnyEvent:
    """A Read as it would be, had everything but the baseline taken ten times as long."""
    if isinstance(event, Read):
        readings = tuple(
            replace(one, seconds=one.seconds * (10.0 if one.arm else 1.0)) for one in event.readings
        )
        return replace(event, readings=readings)
    return event


def test_events_tampered_with_are_noticed(faulty: Steps) -> None:
    judged = next(
        n
        for n, (event, said) in enumerate(faulty)
        if isinstance(event, Read) and any(isinstance(i, Deal) for i in said)
    )
    told = entries(faulty)
    told[judged] = replace(told[judged], event=slower(told[judged].event))
    replayed = rebuild(header(), told, begin, loop.step)
    assert replayed.first_difference is not None
    assert replayed.first_difference.number >= judged


@pytest.mark.parametrize("kind", [Proposed, Compared])
def test_an_event_left_out_is_noticed(faulty: Steps, kind: type) -> None:
    spot = next(n for n, (event, _) in enumerate(faulty) if isinstance(event, kind))
    without = [*faulty[:spot], *faulty[spot + 1 :]]
    assert rebuild(header(), entries(without), begin, loop.step).first_difference is not None


def test_a_record_from_before_buckets_had_features_replays(faulty: Steps) -> None:
    told = [
        Entry(
            entry.number, decode_event(*_shortened(*encode_tagged(entry.event))), entry.instructions
        )
        for entry in entries(faulty)
    ]
    assert rebuild(header(), told, begin, loop.step).agrees


def _shortened(tag: str, fields: list[object]) -> tuple[str, list[object]]:
    return tag, fields[:-1] if tag == "Opened" else fields


def test_other_settings_than_recorded_are_noticed(faulty: Steps) -> None:
    told = replace(header(), settings=Settings(seed=3, warm_calls=30))
    assert rebuild(told, entries(faulty), begin, loop.step).first_difference is not None
