"""The driver: carries events to the pure loop and performs what it says. Decides nothing.

Everything that touches the world is given to it, the clock too, so that a simulated machine
drives the same code as a real one.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions, condition_state
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
from grainshift.core.family import Family, Runner
from grainshift.core.instructions import (
    Admit,
    AnyInstruction,
    Ask,
    Build,
    Compare,
    Deal,
    Quarantine,
    Recall,
    Release,
    Remember,
    Swap,
    Teach,
    Trip,
)
from grainshift.core.policy import Actor, Policy
from grainshift.core.proposal import Proposal, state_of
from grainshift.core.site import Named, Site, Tempo
from grainshift.runtime.builder import Outcome
from grainshift.runtime.slot import Slot
from grainshift.tuner import loop
from grainshift.tuner.faults import Faults, words
from grainshift.tuner.offers import Asker
from grainshift.tuner.orders import Order, Orders
from grainshift.tuner.picks import Pick
from grainshift.tuner.ports import Ports
from grainshift.tuner.state import State

_CLOSE_AFTER_S = 1.0  # calls that were under way in a Choice when it was let go


@dataclass(slots=True)
class _Place:
    """One Site in the model: its Slot, who builds for it, and what is built.

    `number` tells it from an earlier Site of the same key, for which builds may still be going on.
    """

    number: int
    site: Site
    family: Family
    slot: Slot
    model: Any
    choices: dict[str, tuple[Choice, ...]] = field(default_factory=dict)
    features: dict[str, Named] = field(default_factory=dict)
    runners: dict[tuple[str, int], Runner] = field(default_factory=dict)
    folders: dict[tuple[str, int], str] = field(default_factory=dict)
    picks: dict[str, Pick] = field(default_factory=dict)


class Driver:
    """Carries events to the loop and its instructions out."""

    def __init__(self, state: State, ports: Ports) -> None:
        self.state = state
        self.decisions = 0
        self._ports = ports
        self._places: dict[str, _Place] = {}
        self._numbers = itertools.count()
        self._faults = Faults()
        self._asker = Asker(ports.machine, ports.limits, ports.memory.recall, self._faults)
        self._orders = Orders(ports.builders)
        self._queue: deque[AnyEvent] = deque()
        self._closing: deque[tuple[float, Callable[[], None]]] = deque()
        self._conditions = Conditions(0.0)
        self._next_sense_s = 0.0

    def attach(self, site: Site, family: Family, slot: Slot, model: Any) -> None:
        """Take a Site with its Slot into the loop."""
        self._places[site.key] = _Place(next(self._numbers), site, family, slot, model)

    def detach(self, site_key: str) -> None:
        """Let a Site go."""
        place = self._places.pop(site_key, None)
        if place is not None:
            place.slot.revert_all()
            self._queue.append(Lost(self._ports.clock(), site_key))
            for at, runner in place.runners.items():
                self._close_later(runner, place.folders.get(at, ""))

    def freeze(self) -> None:
        """End exploring for good."""
        self._queue.append(Frozen(self._ports.clock()))

    @property
    def faults(self) -> tuple[str, ...]:
        """What failed of all that is plugged in, in words."""
        return tuple(self._faults.told.values())

    @property
    def settled(self) -> bool:
        """Whether exploring is over."""
        return not self._queue and loop.settled(self.state)

    @property
    def calm(self) -> bool:
        """Whether nothing is under way, so that what happens may be looked at less often."""
        return not self._queue and loop.calm(self.state)

    def pump(self) -> int:
        """Carry all that happened since the last time to the loop; how many events there were."""
        at_s = self._ports.clock()
        self._sense(at_s)
        self._gather(at_s)
        steps = 0
        while self._queue:
            event = self._queue.popleft()
            self.state, instructions = loop.step(self.state, event)
            self._append(event, instructions)
            for instruction in instructions:
                self._perform(instruction)
            steps += 1
        while self._closing and self._closing[0][0] <= at_s:
            with contextlib.suppress(Exception):
                self._closing.popleft()[1]()
        return steps

    def close(self) -> None:
        """End building and let every Site run its baseline."""
        for place in list(self._places.values()):
            place.slot.revert_all()
            for at, runner in place.runners.items():
                self._close_later(runner, place.folders.get(at, ""))
        self._faults.answer("the builders could not close", self._ports.builders.close, None)
        for _, close in self._closing:
            with contextlib.suppress(Exception):
                close()
        self._closing.clear()

    def choices(self, site_key: str, bucket: str) -> tuple[Choice, ...]:
        """The Choices offered at a Site, in the order of their numbers."""
        place = self._places.get(site_key)
        return place.choices.get(bucket, ()) if place else ()

    # Events

    def _sense(self, at_s: float) -> None:
        if at_s < self._next_sense_s:
            return
        self._next_sense_s = at_s + self.state.settings.sense_s
        sample, before = self._ports.senses.sample, self._conditions
        self._conditions = self._faults.answer("a sensor failed", lambda: sample(at_s), before)
        if self._conditions is before:
            return
        self._queue.append(Sensed(at_s, self._conditions))
        figures = condition_state(self._conditions)
        for place in list(self._places.values()):
            for pick in place.picks.values():
                pick.sense(figures)

    def _gather(self, at_s: float) -> None:
        for key, place in list(self._places.items()):  # others attach and detach meanwhile
            slot = place.slot
            while slot.opened:
                self._open(place, slot.opened.popleft(), at_s)
            while slot.faults:
                fault = slot.faults.popleft()
                if not fault.arm:
                    self._faults.tell(
                        "an actor failed and picks no more", RuntimeError(fault.reason)
                    )
                self._queue.append(
                    Failed(
                        at_s, key, fault.bucket, fault.arm, fault.kind, fault.reason, fault.seconds
                    )
                )
            while slot.trips:
                bucket, arm = slot.trips.popleft()
                self._queue.append(Tripped(at_s, key, bucket, arm))
            while slot.comparisons:
                told = slot.comparisons.popleft()
                self._queue.append(
                    Compared(
                        at_s,
                        key,
                        told.bucket,
                        told.arm,
                        told.error_ratio,
                        told.choice_s,
                        told.baseline_s,
                        told.work,
                    )
                )
            for sample in slot.drain():
                self._queue.append(
                    Read(
                        at_s,
                        key,
                        sample.bucket,
                        sample.readings,
                        sample.calls,
                        sample.live_s,
                        sample.live_work,
                    )
                )
        poll = self._orders.ended
        ended: list[tuple[Outcome, list[Order]]] = []
        ended = self._faults.answer("the builders failed", lambda: poll(at_s), ended)
        for outcome, orders in ended:
            self._end(outcome, orders)

    def _open(self, place: _Place, bucket: str, at_s: float) -> None:
        offers = self._offers(place, bucket)
        place.choices[bucket] = tuple(offer.choice for offer in offers)
        if offers:
            features = self._asker.features(place.family, place.site, bucket)
            place.features[bucket] = features
            self._queue.append(Opened(at_s, place.site, bucket, offers, features))

    def extend(self, site_key: str, bucket: str) -> None:
        """Take in what the family offers by now beyond what it offered before (new plans)."""
        known = self.choices(site_key, bucket)
        if not known:  # not a Site, or never called with these shapes
            return
        place = self._places[site_key]
        offers = self._offers(place, bucket, known)
        if offers:
            place.choices[bucket] = known + tuple(offer.choice for offer in offers)
            self._queue.append(Extended(self._ports.clock(), site_key, bucket, offers))

    def _offers(
        self, place: _Place, bucket: str, known: tuple[Choice, ...] = ()
    ) -> tuple[Offer, ...]:
        return self._asker.offers(place.family, place.site, bucket, self._conditions, known)

    # Instructions

    def _perform(self, said: AnyInstruction) -> None:
        place = self._places.get(said.site_key)
        if place is None or said.bucket not in place.choices:  # it went stale meanwhile
            return
        slot, bucket = place.slot, said.bucket
        match said:
            case Ask():
                self._ask(place, said)
            case Build():
                self._build(place, bucket, said.arm)
            case Compare():
                slot.compare(bucket, said.arm)
            case Deal():
                blocks = range(said.first_block, said.first_block + said.blocks)
                slot.deal(bucket, said.trial, said.order, blocks)
                on_trial = set(said.order) - {0, slot.live(bucket)}
                self.decisions += bool(on_trial) and said.first_block == 0
            case Trip():
                slot.trip_at(bucket, said.unit_s)
            case Recall():
                slot.recall(bucket)
            case Swap():
                slot.swap(bucket, said.arm)
                self.decisions += 1
            case Admit():
                self._admit(place, bucket, said.arms)
            case Teach():
                self._teach(place, said)
            case Quarantine():
                slot.take(bucket, said.arm)
                self._let_go(place, bucket, said.arm)
            case Release():
                slot.take(bucket, said.arm)
                self._let_go(place, bucket, said.arm)
            case Remember():
                self._remember(place, said)
            case _:
                pass

    def _policy(self, place: _Place) -> Policy:
        policy: Policy = self._ports.policies[place.family.name]
        return policy

    def _ask(self, place: _Place, said: Ask) -> None:
        proposal = self._faults.answer(
            f"the policy of {place.family.name} failed and answers 'stay'",
            lambda: _plain(self._policy(place).propose(said.query)),
            Proposal(said.query.live),
        )
        self._queue.append(Proposed(self._ports.clock(), said.site_key, said.bucket, proposal))

    def _teach(self, place: _Place, said: Teach) -> None:
        what = f"the policy of {place.family.name} could not learn"
        self._faults.answer(what, lambda: self._policy(place).learn([said.lesson]), None)

    def _remember(self, place: _Place, said: Remember) -> None:
        choice = place.choices[said.bucket][said.arm]
        keep = self._ports.memory.remember
        self._faults.answer(
            "what was learnt could not be kept",
            lambda: keep(place.site, said.bucket, choice, said.log_gain, said.blocks),
            None,
        )

    def _append(self, event: AnyEvent, instructions: tuple[AnyInstruction, ...]) -> None:
        log = self._ports.log
        self._faults.answer("the log failed", lambda: log.append(event, instructions), None)

    def _build(self, place: _Place, bucket: str, arm: int) -> None:
        order = Order(place.number, place.site.key, bucket, arm)
        try:
            recipe = place.family.recipe(place.site, bucket, place.choices[bucket][arm])
            waits = recipe is not None and not recipe.aside
            if recipe is not None and waits:
                self._orders.place(order, recipe)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into an event
            self._fail(order, words(fault))
        else:
            if not waits:
                self._load(place, order, "", 0.0)

    def _end(self, outcome: Outcome, orders: Sequence[Order]) -> None:
        """Go on with what waited for a build. All but the first ask again for what they need."""
        folder, is_first = outcome.folder, True
        for order in orders:
            place = self._places.get(order.site_key)
            if place is None or place.number != order.place:  # built for a Site that went stale
                continue
            if outcome.failure:
                self._fail_at(order, outcome.failure)
            elif not is_first:
                self._build_again(place, order)
            elif order.aside:
                self._improve(place, order, folder)
            else:
                self._load(place, order, folder, outcome.seconds)
            is_first = False
        if is_first:
            self._discard(folder)

    def _fail_at(self, order: Order, failure: str) -> None:
        what = "a build aside failed" if order.aside else "a Choice could not be built"
        self._faults.tell(what, RuntimeError(failure))
        if not order.aside:
            self._fail(order, failure)

    def _build_again(self, place: _Place, order: Order) -> None:
        if not order.aside:
            self._build(place, order.bucket, order.arm)
        elif not self._build_aside(place, order):
            self._improve(place, order, "")

    def _fail(self, order: Order, reason: str) -> None:
        at_s = self._ports.clock()
        self._queue.append(Failed(at_s, order.site_key, order.bucket, order.arm, "build", reason))

    def _load(self, place: _Place, order: Order, folder: str, build_s: float) -> None:
        at_s, bucket, arm = self._ports.clock(), order.bucket, order.arm
        try:
            runner = self._runner(place, order, folder)
            place.slot.put(bucket, arm, runner.run)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into an event
            self._fail(order, words(fault))
            self._discard(folder)
            return
        place.runners[bucket, arm], place.folders[bucket, arm] = runner, folder
        took_s = build_s + self._ports.clock() - at_s
        self._queue.append(Built(at_s, order.site_key, bucket, arm, took_s, runner.held_bytes))
        self._build_aside(place, order)

    def _runner(self, place: _Place, order: Order, folder: str) -> Runner:
        choice = place.choices[order.bucket][order.arm]
        return place.family.build(place.model, place.site, order.bucket, choice, folder)

    def _build_aside(self, place: _Place, order: Order) -> bool:
        """Have done what makes a Choice better that is built already, if there is such a thing."""
        choice = place.choices[order.bucket][order.arm]

        def submit() -> bool:
            recipe = place.family.recipe(place.site, order.bucket, choice)
            if recipe is None or not recipe.aside:
                return False
            self._orders.place(replace(order, aside=True), recipe)
            return True

        return self._faults.answer("nothing can be built aside", submit, False)

    def _improve(self, place: _Place, order: Order, folder: str) -> None:
        """Build a Choice anew from what was done aside; its trials and its standing remain."""
        at, slot = (order.bucket, order.arm), place.slot
        try:
            runner = self._runner(place, order, folder)
        except Exception as fault:  # noqa: BLE001 - what was built without it stays
            self._faults.tell("a build aside failed", fault)
            self._discard(folder)
            return
        if at not in place.runners:  # let go meanwhile
            self._close_later(runner, folder)
            return
        self._let_go(place, *at)
        place.runners[at], place.folders[at] = runner, folder
        slot.put(*at, runner.run)
        if slot.live(order.bucket) == order.arm:
            slot.swap(*at)

    def _admit(self, place: _Place, bucket: str, arms: Sequence[int]) -> None:
        """Where segments are short, the policy's actor picks among equals inside the call."""
        choices = place.choices[bucket]
        actor: Actor | None = None
        if place.site.tempo is Tempo.SEGMENT and len(set(arms) - {0}) > 1:
            name = place.family.name
            actor = self._faults.answer(
                f"the policy of {name} gave no actor",
                lambda: self._policy(place).actor(choices),
                None,
            )
        if actor is None:
            place.picks.pop(bucket, None)
            place.slot.let_pick(bucket, None)
            return
        mask = np.zeros(len(choices), dtype=np.bool_)
        mask[[arm for arm in arms if arm]] = True  # the baseline is no gain: it stays out
        features = place.site.features + place.features[bucket]
        state = np.array(state_of(features, self._conditions), dtype=np.float32)
        pick = Pick(actor, state, mask)
        place.picks[bucket] = pick
        place.slot.let_pick(bucket, pick)

    def _let_go(self, place: _Place, bucket: str, arm: int) -> None:
        runner = place.runners.pop((bucket, arm), None)
        if runner is not None:
            self._close_later(runner, place.folders.pop((bucket, arm), ""))

    def _close_later(self, runner: Runner, folder: str) -> None:
        def close() -> None:
            try:
                if runner.close is not None:
                    runner.close()
            finally:
                self._discard(folder)

        if runner.close is not None or folder:
            self._closing.append((self._ports.clock() + _CLOSE_AFTER_S, close))

    def _discard(self, folder: str) -> None:
        if folder:
            with contextlib.suppress(Exception):
                self._ports.builders.discard(folder)


def _plain(proposal: Proposal) -> Proposal:
    """The answer in Python's own numbers, as the Journal keeps them."""
    return Proposal(int(proposal.arm), tuple(float(score) for score in proposal.scores))
