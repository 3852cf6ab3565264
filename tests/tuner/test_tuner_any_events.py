"""Events in any order, nonsense included: nothing raises, and what must hold always holds."""

import json
import math
from collections import deque
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tuner_hand import BUCKET, SITE, offers, open_state, surely

from grainshift.core.choice import Choice, Exactness
from grainshift.core.codec import decode, decode_event, encode, encode_tagged
from grainshift.core.conditions import Conditions, Figure
from grainshift.core.events import (
    AnyEvent,
    Built,
    Compared,
    Extended,
    Failed,
    Frozen,
    Lost,
    Offer,
    Opened,
    Proposed,
    Read,
    Sensed,
    Tripped,
)
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.instructions import AnyInstruction, Ask, Build, Compare, Deal, Recall, Swap
from grainshift.core.proposal import Proposal
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.tuner import loop
from grainshift.tuner.state import Case, Phase

PLACES = [(SITE.key, BUCKET), (SITE.key, "B2"), ("no:site", BUCKET)]
MOST_BYTES = 40_000  # of a Case in the Journal's terms, however long it lived

anything = st.floats() | st.sampled_from([0.0, -1.0, 1e308, 5e-324, math.inf, math.nan])
seconds = st.floats(1e-6, 0.1) | anything
count = st.integers(-2, 40) | st.sampled_from([1 << 53, 1 << 60, 10**400])
arms = st.integers(-2, 6)
place = st.sampled_from(PLACES)
reading = st.builds(
    Reading, arms, seconds, st.just(1.0) | anything, st.integers(-1, 12), st.integers(0, 4)
)
forecast = st.builds(
    Forecast,
    st.floats(0.2, 2.0) | anything,
    st.floats(0.0, 1.0) | anything,
    st.sampled_from([0, 1 << 40]),
    st.sampled_from([0.0, 0.01]) | anything,
)
choice = st.builds(
    Choice, st.just("choice"), st.tuples(st.integers(0, 5)), st.sampled_from(list(Exactness))
)
offer = st.builds(Offer, choice, forecast, st.none() | anything)
figures = st.builds(Figure, st.sampled_from(["cpu_others", "free_memory_bytes"]), anything)


class AnyEvents(RuleBasedStateMachine):
    """Two buckets of one Site, a fair driver of theirs, and everything that may go wrong."""

    @initialize(
        limits=st.builds(Limits, st.none() | st.just(1 << 20), st.none() | st.just(1e-2)),
        tuned=st.builds(
            Settings,
            warm_calls=st.integers(1, 9),
            dwell_s=st.sampled_from([0.0, 0.25]),
            opening_calls=st.sampled_from([0.0, 1.0, 1e6]),
            retry_calls=st.sampled_from([0, 5, 1 << 53]),
            backoff=st.sampled_from([1.0, 2.0, 1e9]),
            probe_share=st.sampled_from([0.0, 0.02, 1.0]),
            confidence=st.sampled_from([0.5, 0.95, 0.999999]),
            watch_calls=st.sampled_from([0, 64]),
            drift_limit=st.sampled_from([1.0, 8.0]),
        ),
    )
    def begin(self, limits: Limits, tuned: Settings) -> None:
        self.state = open_state(tuned, limits)
        self.at_s = 0.0
        self.decks: dict[tuple[str, str], deque[tuple[int, int, int]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.ordered: list[tuple[tuple[str, str], int]] = []
        for bucket in (BUCKET, "B2"):
            self.send(Opened(0.0, SITE, bucket, surely(0.5, 0.8, 1.5)))

    def send(self, event: AnyEvent) -> None:
        known = {*self.state.cases}
        before = self.state
        self.state, said = loop.step(self.state, event)
        again, same = loop.step(before, event)
        assert (encode_all(said), encode_all(same)) == (encode_all(said),) * 2
        assert again.cases.keys() == self.state.cases.keys()
        for one in said:
            key = (one.site_key, one.bucket)
            assert key in known & {*self.state.cases}
            self.check(self.state.cases[key], one)
            self.take(key, one)

    def check(self, case: Case, said: AnyInstruction) -> None:
        arms = case.arms
        match said:
            case Deal(order=order):
                assert not self.state.frozen
                for arm in order:
                    assert arms[arm].built or not arm
                    assert arms[arm].compared or not arm
            case Ask(query=query):
                assert not self.state.frozen
                assert query.mask[query.live]
                allowed = [arm for arm, ok in zip(arms, query.mask, strict=True) if ok]
                assert not any(arm.quarantined for arm in allowed)
            case Build(arm=arm):
                assert not self.state.frozen
                assert not arms[arm].built
            case Compare(arm=arm):
                assert arms[arm].built
            case Swap(arm=arm):
                assert arms[arm].built or not arm

    def take(self, key: tuple[str, str], said: AnyInstruction) -> None:
        deck = self.decks.setdefault(key, deque())
        match said:
            case Ask():
                self.asked.append(key)
            case Build(arm=arm):
                self.ordered.append((key, arm))
            case Compare(arm=arm):
                deck.append((arm, -1, 0))
            case Recall():
                deck.clear()
            case Deal():
                blocks = range(said.first_block, said.first_block + said.blocks)
                deck.extend((arm, said.trial, b) for b in blocks for arm in said.order)

    # What a fair driver does

    @rule(
        calls=st.sampled_from([1, 7, 40]),
        cost=st.lists(st.sampled_from([0.3, 0.8, 1.0, 3.0]), min_size=8, max_size=8),
        is_fair=st.booleans(),
    )
    def run(self, calls: int, cost: list[float], is_fair: bool) -> None:
        for key in [*self.state.cases]:
            for number in range(calls):
                self.at_s += 0.005
                self.call(key, cost, 1.0 + 0.02 * (number % 3))
                if is_fair:
                    self.answer_well()
                    self.finish_builds()

    def answer_well(self) -> None:
        while self.asked:
            key = self.asked.pop()
            case = self.state.cases.get(key)
            if case is not None and case.query is not None:
                allowed = [n for n, ok in enumerate(case.query.mask) if ok and n != case.live]
                self.send(Proposed(self.at_s, *key, Proposal(allowed[0])))

    def call(self, key: tuple[str, str], cost: list[float], factor: float) -> None:
        deck = self.decks.setdefault(key, deque())
        if deck:
            arm, trial, block = deck.popleft()
            took_s = 0.005 * cost[arm % 8] * factor
            if trial == -1:
                self.send(Compared(self.at_s, *key, arm, 0.0, took_s, 0.005 * cost[0] * factor))
            else:
                self.send(Read(self.at_s, *key, (Reading(arm, took_s, 1.0, trial, block),)))
            return
        case = self.state.cases.get(key)
        if case is not None:
            took_s = 0.005 * cost[case.live % 8] * factor
            self.send(Read(self.at_s, *key, (Reading(case.live, took_s),), 1, took_s, 1.0))

    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        while self.asked:
            self.send(Proposed(self.at_s, *self.asked.pop(), Proposal(data.draw(arms))))

    @rule()
    def finish_all_builds(self) -> None:
        self.finish_builds()

    def finish_builds(self) -> None:
        while self.ordered:
            key, arm = self.ordered.pop()
            self.send(Built(self.at_s, *key, arm, 0.1))

    # What may go wrong

    @rule(bucket=st.sampled_from([BUCKET, "B2", "B3"]), told=st.lists(offer, max_size=4))
    def lost_and_found(self, bucket: str, told: list[Offer]) -> None:
        self.send(Lost(self.at_s, SITE.key))
        self.decks.clear()
        for one in (BUCKET, "B2", bucket):
            self.send(Opened(self.at_s, SITE, one, (*surely(0.5), *told)))

    @rule(told=st.lists(offer, max_size=4))
    def opened_with_anything(self, told: list[Offer]) -> None:
        self.send(Opened(self.at_s, SITE, "B3", tuple(told)))

    @rule(key=place, told=st.lists(offer, max_size=2))
    def extended(self, key: tuple[str, str], told: list[Offer]) -> None:
        case = self.state.cases.get(key)
        if case is None or len(case.arms) < 12:  # a family offers so many, not ever more
            self.send(Extended(self.at_s, *key, tuple(told)))

    @rule(
        key=place,
        read=st.lists(reading, max_size=20),
        calls=count,
        live_s=seconds,
        work=anything,
        at_s=anything,
    )
    def read_anything(
        self, key: tuple[str, str], read: list[Reading], calls: int, **rest: float
    ) -> None:
        self.send(Read(rest["at_s"], *key, tuple(read), calls, rest["live_s"], rest["work"]))

    @rule(key=place, arm=arms)
    def proposed(self, key: tuple[str, str], arm: int) -> None:
        self.send(Proposed(self.at_s, *key, Proposal(arm)))

    @rule(key=place, arm=arms, build_s=anything)
    def built(self, key: tuple[str, str], arm: int, build_s: float) -> None:
        self.send(Built(self.at_s, *key, arm, build_s))

    @rule(
        key=place,
        arm=st.just(6) | arms,
        error=st.just(0.0) | anything,
        choice_s=seconds,
        baseline_s=seconds,
    )
    def compared(self, key: tuple[str, str], arm: int, **told: float) -> None:
        figures = (told["error"], told["choice_s"], told["baseline_s"])
        self.send(Compared(self.at_s, *key, arm, *figures))

    @rule(
        key=place,
        arm=st.just(6) | arms,
        kind=st.sampled_from(["build", "exception", "memory", "wrong"]),
    )
    def failed(self, key: tuple[str, str], arm: int, kind: str) -> None:
        self.send(Failed(self.at_s, *key, arm, kind, "it broke"))

    @rule(key=place, arm=arms)
    def tripped(self, key: tuple[str, str], arm: int) -> None:
        deck = self.decks.get(key, deque())
        self.decks[key] = deque(card for card in deck if card[1] == -1)
        self.send(Tripped(self.at_s, *key, arm))

    @rule(told=st.lists(figures, max_size=3), at_s=anything)
    def sensed(self, told: list[Figure], at_s: float) -> None:
        self.send(Sensed(at_s, Conditions(at_s, tuple(told))))

    @rule(rarely=st.integers(0, 40))
    def frozen(self, rarely: int) -> None:
        if rarely == 40:
            self.send(Frozen(self.at_s))

    # What always holds

    @invariant()
    def what_must_hold(self) -> None:
        loop.settled(self.state)
        for case in self.state.cases.values():
            live = case.arms[case.live]
            assert not live.quarantined
            assert live.built
            assert not case.arms[0].quarantined
            assert case.phase in Phase
            assert (case.trial is not None) is (case.phase is Phase.TRYING)
            assert case.phase is Phase.IDLE or not self.state.frozen
            assert not case.arms[case.candidate].quarantined
            assert case.admitted[0] == 0
            assert not any(case.arms[arm].quarantined for arm in case.admitted)
            assert case.live or case.admitted == (0,)
            assert len(json.dumps(encode(case))) < MOST_BYTES
            figures = [*encode(case.ledger), case.work, case.baseline.mean, case.baseline.variance]
            assert all(math.isfinite(figure) for figure in figures)
            assert case.call_s > 0.0


def encode_all(said: tuple[AnyInstruction, ...]) -> str:
    return json.dumps([encode_tagged(one) for one in said])


AnyEvents.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_any_events = AnyEvents.TestCase


@pytest.mark.slow
def test_any_events_for_long() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        AnyEvents,
        settings=settings(AnyEvents.TestCase.settings, max_examples=1_500, stateful_step_count=80),
    )


def test_what_a_case_holds_survives_the_journals_text() -> None:
    """So that the size above is that of everything it holds."""
    state, _ = loop.step(open_state(), Opened(0.0, SITE, BUCKET, offers(Forecast(0.5))))
    case = state.cases[SITE.key, BUCKET]
    assert decode(Case, json.loads(json.dumps(encode(case)))) == case
    event = Read(1.0, SITE.key, BUCKET, (Reading(0, 0.005),), 1, 0.005, 1.0)
    assert decode_event(*json.loads(json.dumps(encode_tagged(event)))) == event
