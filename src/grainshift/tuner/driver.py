"""The driver: carries events to the pure loop and performs what it says. Decides nothing.

Everything that touches the world is given to it, the clock too, so that a simulated machine
drives the same code as a real one.
"""

import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
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
from grainshift.core.family import Family, Recipe, Runner
from grainshift.core.instructions import (
    Admit,
    AnyInstruction,
    Ask,
    Build,
    Compare,
    Deal,
    Quarantine,
    Recall,
    Remember,
    Swap,
    Teach,
    Trip,
)
from grainshift.core.policy import Policy
from grainshift.core.proposal import Proposal
from grainshift.core.site import Site, Tempo
from grainshift.runtime.slot import Slot
from grainshift.tuner import loop
from grainshift.tuner.picks import Pick
from grainshift.tuner.ports import Ports
from grainshift.tuner.rules import condition_state
from grainshift.tuner.state import State

_CLOSE_AFTER_S = 1.0  # calls that were under way in a Choice when it was let go


@dataclass(slots=True)
class _Place:
    """One Site in the model: its Slot, who builds for it, and what is built."""

    site: Site
    family: Family
    slot: Slot
    model: Any
    choices: dict[str, tuple[Choice, ...]] = field(default_factory=dict)
    runners: dict[tuple[str, int], Runner] = field(default_factory=dict)
    picks: dict[str, Pick] = field(default_factory=dict)


class Driver:
    """Carries events to the loop and its instructions out."""

    def __init__(self, state: State, ports: Ports) -> None:
        self.state = state
        self.decisions = 0
        self._ports = ports
        self._places: dict[str, _Place] = {}
        self._queue: deque[AnyEvent] = deque()
        self._closing: deque[tuple[float, Callable[[], None]]] = deque()
        self._conditions = Conditions(0.0)
        self._next_sense_s = 0.0

    def attach(self, site: Site, family: Family, slot: Slot, model: Any) -> None:
        """Take a Site with its Slot into the loop."""
        self._places[site.key] = _Place(site, family, slot, model)

    def detach(self, site_key: str) -> None:
        """Let a Site go."""
        place = self._places.pop(site_key, None)
        if place is not None:
            place.slot.revert_all()
            self._queue.append(Lost(self._ports.clock(), site_key))
            for runner in place.runners.values():
                self._close_later(runner)

    def freeze(self) -> None:
        """End exploring for good."""
        self._queue.append(Frozen(self._ports.clock()))

    @property
    def settled(self) -> bool:
        """Whether exploring is over."""
        return not self._queue and loop.settled(self.state)

    def pump(self) -> int:
        """Carry all that happened since the last time to the loop; how many events there were."""
        at_s = self._ports.clock()
        self._sense(at_s)
        self._gather(at_s)
        steps = 0
        while self._queue:
            event = self._queue.popleft()
            self.state, instructions = loop.step(self.state, event)
            self._ports.log.append(event, instructions)
            for instruction in instructions:
                self._perform(instruction)
            steps += 1
        while self._closing and self._closing[0][0] <= at_s:
            with contextlib.suppress(Exception):
                self._closing.popleft()[1]()
        return steps

    def close(self) -> None:
        """End building and let every Site run its baseline."""
        self._ports.builders.close()
        for place in self._places.values():
            place.slot.revert_all()
            for runner in place.runners.values():
                self._close_later(runner)
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
        if at_s >= self._next_sense_s:
            self._next_sense_s = at_s + self.state.settings.sense_s
            self._conditions = self._ports.senses.sample(at_s)
            self._queue.append(Sensed(at_s, self._conditions))
            figures = condition_state(self._conditions)
            for place in self._places.values():
                for pick in place.picks.values():
                    pick.state[-len(figures) :] = figures

    def _gather(self, at_s: float) -> None:
        for key, place in self._places.items():
            slot = place.slot
            while slot.opened:
                self._open(place, slot.opened.popleft(), at_s)
            while slot.faults:
                fault = slot.faults.popleft()
                self._queue.append(
                    Failed(at_s, key, fault.bucket, fault.arm, fault.kind, fault.reason)
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
        for outcome in self._ports.builders.poll(at_s):
            self._load(outcome.order, outcome.folder, outcome.seconds, outcome.failure)

    def _open(self, place: _Place, bucket: str, at_s: float) -> None:
        choices = place.family.offer(place.site, bucket, self._ports.limits)
        place.choices[bucket] = choices
        offers = self._offers(place, bucket, choices)
        self._queue.append(Opened(at_s, place.site, bucket, offers))

    def extend(self, site_key: str, bucket: str) -> None:
        """Take in what the family offers by now beyond what it offered before (new plans)."""
        place = self._places[site_key]
        known = place.choices[bucket]
        offered = place.family.offer(place.site, bucket, self._ports.limits)
        fresh = tuple(choice for choice in offered if choice not in known)
        if fresh:
            place.choices[bucket] = known + fresh
            offers = self._offers(place, bucket, fresh)
            self._queue.append(Extended(self._ports.clock(), site_key, bucket, offers))

    def _offers(self, place: _Place, bucket: str, choices: tuple[Choice, ...]) -> tuple[Offer, ...]:
        known = self._ports.memory.recall(place.site, bucket)
        return tuple(
            Offer(
                choice,
                place.family.forecast(
                    place.site, bucket, choice, self._ports.machine, self._conditions
                ),
                known.get(str(choice)),
            )
            for choice in choices
        )

    # Instructions

    def _perform(self, said: AnyInstruction) -> None:
        place = self._places.get(said.site_key)
        if place is None:
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
            case Remember():
                choice = place.choices[bucket][said.arm]
                self._ports.memory.remember(place.site, bucket, choice, said.log_gain, said.blocks)
            case _:
                pass

    def _policy(self, place: _Place) -> Policy:
        policy: Policy = self._ports.policies[place.family.name]
        return policy

    def _ask(self, place: _Place, said: Ask) -> None:
        try:
            proposal = self._policy(place).propose(said.query)
        except Exception as fault:  # noqa: BLE001 - a policy's fault must not reach the model
            _warn(f"the policy failed and answers 'stay': {fault!r}")
            proposal = Proposal(said.query.live)
        self._queue.append(Proposed(self._ports.clock(), said.site_key, said.bucket, proposal))

    def _teach(self, place: _Place, said: Teach) -> None:
        try:
            self._policy(place).learn([said.lesson])
        except Exception as fault:  # noqa: BLE001 - a policy's fault must not reach the model
            _warn(f"the policy could not learn: {fault!r}")

    def _build(self, place: _Place, bucket: str, arm: int) -> None:
        choice = place.choices[bucket][arm]
        order = (place.site.key, bucket, arm)
        recipe: Recipe | None
        try:
            recipe = place.family.recipe(place.site, bucket, choice)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into an event
            self._load(order, "", 0.0, repr(fault))
            return
        if recipe is None:
            self._load(order, "", 0.0, "")
        else:
            self._ports.builders.submit(order, recipe)

    def _load(self, order: Any, folder: str, build_s: float, failure: str) -> None:
        key, bucket, arm = order
        place, at_s = self._places.get(key), self._ports.clock()
        if place is None:
            return
        try:
            if failure:
                raise RuntimeError(failure)
            choice = place.choices[bucket][arm]
            runner = place.family.build(place.model, place.site, bucket, choice, folder)
        except Exception as fault:  # noqa: BLE001 - a fault of a Choice turns into an event
            self._queue.append(Failed(at_s, key, bucket, arm, "build", str(fault)[:500]))
            return
        place.runners[bucket, arm] = runner
        place.slot.put(bucket, arm, runner.run)
        took_s = build_s + self._ports.clock() - at_s
        self._queue.append(Built(at_s, key, bucket, arm, took_s, runner.held_bytes))

    def _admit(self, place: _Place, bucket: str, arms: Sequence[int]) -> None:
        """Where segments are short, the policy's actor picks among equals inside the call."""
        choices = place.choices[bucket]
        actor = None
        if place.site.tempo is Tempo.SEGMENT and len(set(arms) - {0}) > 1:
            actor = self._policy(place).actor(choices)
        if actor is None:
            place.picks.pop(bucket, None)
            place.slot.let_pick(bucket, None)
            return
        mask = np.zeros(len(choices), dtype=np.bool_)
        mask[[arm for arm in arms if arm]] = True  # the baseline is no gain: it stays out
        features = [value for _, value in place.site.features]
        state = np.array([*features, *condition_state(self._conditions)], dtype=np.float32)
        pick = Pick(actor, state, mask)
        place.picks[bucket] = pick
        place.slot.let_pick(bucket, pick)

    def _let_go(self, place: _Place, bucket: str, arm: int) -> None:
        runner = place.runners.pop((bucket, arm), None)
        if runner is not None:
            self._close_later(runner)

    def _close_later(self, runner: Runner) -> None:
        if runner.close is not None:
            self._closing.append((self._ports.clock() + _CLOSE_AFTER_S, runner.close))


def _warn(sentence: str) -> None:
    warnings.warn(f"grainshift: {sentence}", RuntimeWarning, stacklevel=3)
