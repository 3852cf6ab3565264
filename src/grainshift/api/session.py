"""One tuned model: its Slots, driver, pulse and Journal, from tune to untune. Decides nothing."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from grainshift.api.reporting import Report, site_line
from grainshift.api.weights import start_trained
from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.errors import NotTunable
from grainshift.core.events import AnyEvent
from grainshift.core.family import Family
from grainshift.core.forecast import Limits
from grainshift.core.instructions import AnyInstruction, Swap
from grainshift.core.machine import Machine
from grainshift.core.settings import Settings
from grainshift.core.site import Site
from grainshift.environment import environment, versions
from grainshift.guards import make_guards
from grainshift.journal import Experience, ExperienceKey, Journal, new_run
from grainshift.machine import Sensors, Work
from grainshift.policies import make_policy
from grainshift.runtime.builder import Builders
from grainshift.runtime.slot import Slot
from grainshift.tuner import loop
from grainshift.tuner.driver import Driver
from grainshift.tuner.ports import Ports
from grainshift.tuner.pulse import Pulse
from grainshift.tuner.state import State

ATTRIBUTE = "_grainshift"


@dataclass(frozen=True, slots=True)
class Plan:
    """What `tune` was asked for, read and checked."""

    machine: Machine
    limits: Limits
    settings: Settings
    families: tuple[Family, ...]
    policy: str | None


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The experience of this machine with these versions, as the driver asks for it."""

    experience: Experience
    machine: str
    versions: tuple[tuple[str, str], ...]

    def recall(self, site: Site, bucket: str) -> Mapping[str, float]:
        """The log gain of each Choice that is remembered."""
        known = self.experience.recall(self._key(site, bucket), time.time())
        return {choice: log_gain for choice, (log_gain, _) in known.items()}

    def remember(
        self, site: Site, bucket: str, choice: Choice, log_gain: float, blocks: int
    ) -> None:
        """Keep what a trial told."""
        self.experience.remember(self._key(site, bucket), choice, log_gain, blocks, time.time())

    def _key(self, site: Site, bucket: str) -> ExperienceKey:
        return ExperienceKey(self.machine, self.versions, site.fingerprint, bucket)


@dataclass(frozen=True, slots=True)
class _Senses:
    """The sensors, told what the busiest Site does to memory, for figures that are modelled."""

    sensors: Sensors
    state: Callable[[], State]

    def sample(self, at_s: float) -> Conditions:
        """The Conditions now."""
        cases = [case for case in self.state().cases.values() if case.level.count]
        busiest = max(cases, key=lambda case: case.ledger.ran_s, default=None)
        if busiest is not None:
            forecast = busiest.arms[busiest.live].offer.forecast
            sets, touched = float(forecast.working_set_bytes), float(forecast.touched_bytes)
            call_s = busiest.level.unit_s * busiest.work
            self.sensors.tell(Work(sets, touched, seconds=call_s) if touched else None)
        return self.sensors.sample(at_s)


class _Ledger:
    """Passes every step on to the Journal, and keeps why each live Choice is live."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.reasons: dict[tuple[str, str], str] = {}

    def append(self, event: AnyEvent, instructions: tuple[AnyInstruction, ...]) -> None:
        self.journal.append(event, instructions)
        for said in instructions:
            if isinstance(said, Swap):
                self.reasons[said.site_key, said.bucket] = said.reason


class Session:
    """Everything that tuning one model needs while it runs."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        settings, limits = plan.settings, plan.limits
        place, named = environment(), versions()
        header = new_run(time.time(), plan.machine.fingerprint, named, settings, limits)
        self.journal = Journal(place.journal_file, header, settings.journal_bytes)
        self._ledger = _Ledger(self.journal)
        self._builders = Builders(
            place.cache_folder / "builds", settings.builders, settings.build_timeout_s
        )
        self._sensors = Sensors(plan.machine)
        wanted = {family.name: plan.policy or family.policy for family in plan.families}
        policies = {
            family: make_policy(name, settings.seed, settings.epsilon)
            for family, name in wanted.items()
        }
        starts = (start_trained(policies[family], name, family) for family, name in wanted.items())
        self._starts = tuple(filter(None, starts))
        experience = Experience(place.journal_file)
        memory = _Remembered(experience, plan.machine.fingerprint, tuple(sorted(named.items())))
        ports = Ports(
            plan.machine,
            limits,
            policies,
            self._ledger,
            memory,
            _Senses(self._sensors, _state_of(self)),
            self._builders,
            time.monotonic,
        )
        state = loop.begin(settings, limits, make_guards(settings, limits))
        self.driver = Driver(state, ports)
        self.untouched: list[tuple[str, str]] = []
        self._model = weakref.ref(model)
        self._slots: list[weakref.ref[Slot]] = []
        self._undo: list[Callable[[], None]] = []
        self._why_empty = ""
        self._why_ended = ""
        self._process = os.getpid()
        self._families = plan.families
        self._life = threading.RLock()
        self._pulse = Pulse(self._look, self._is_calm, self._give_up, settings.drain_s)
        self._end = weakref.finalize(
            self,
            _end,
            self._process,
            self._slots,
            self._pulse,
            self._builders,
            self._sensors,
            self.journal,
        )

    def begin(self, model: nn.Module) -> None:
        """Send the model's Sites through Slots; nothing if the session was closed already."""
        with self._life:
            if not self._end.alive:
                return
            for family in self._families:
                self._install(model, family)
            if self._undo:
                self._start()
                return
            names = " and ".join(family.name for family in self._families)
            kind = type(model).__name__
            self._why_empty = f"There is nothing to tune: {names} found no Site in this {kind}."

    def _install(self, model: nn.Module, family: Family) -> None:
        try:
            found, refused = family.find(model)
            sites = tuple(found)
            self.untouched.extend(refused)
        except Exception as fault:  # noqa: BLE001 - a family's fault leaves the model as it was
            self.untouched.append(("", f"{family.name} could not look at it: {fault!r}"))
            return
        for site in sites:
            try:
                slot = Slot(site, family.build(model, site, "", Choice("stock"), "").run)
                undo = family.install(model, site, slot)
            except Exception as fault:  # noqa: BLE001 - a family's fault leaves the model as it was
                self.untouched.append((site.path, f"{family.name} could not begin: {fault!r}"))
                continue
            self._undo.append(undo)
            self._slots.append(weakref.ref(slot))
            self.driver.attach(site, family, slot, model)

    def _start(self) -> None:
        try:
            self._pulse.start()
        except RuntimeError as fault:  # the system has no thread to give
            self._restore()
            self._why_empty = f"Nothing is tuned: no thread could be started: {fault}"

    def _restore(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _look(self) -> None:
        try:
            self.driver.pump()
        except Exception as fault:
            self._why_ended = f"Tuning ended, the model runs as PyTorch has it: {fault!r}"
            raise

    def _is_calm(self) -> bool:
        return self.driver.calm

    def _give_up(self) -> None:
        self.driver.close()

    def tunes(self, model: nn.Module) -> bool:
        """Whether it is this model that it tunes; a shallow copy carries the session of another."""
        return self._model() is model

    def report(self) -> Report:
        """What every Site does now, and why."""
        state = self.driver.state
        lines = tuple(
            site_line(state, case, self._ledger.reasons.get(key, ""))
            for key, case in state.cases.items()
        )
        return Report(lines, tuple(self.untouched), self._is_over, tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        if self._why_empty:
            yield self._why_empty
        elif not self.driver.state.cases:
            yield "No Site was called yet, or only in ways that PyTorch's own forward must run."
        if self._why_ended:
            yield self._why_ended
        if not self._why_empty:
            yield from self._starts
        yield from self.driver.faults
        if fault := self.journal.status.fault:
            yield f"The Journal is kept in memory only: {fault}"

    def settle(self, timeout_s: float, call: Callable[[], object] | None) -> bool:
        """Wait until exploring is over, making calls meanwhile if told how."""
        until_s = time.monotonic() + timeout_s
        called = False
        while time.monotonic() < until_s and not (called and self._is_over):
            if call is not None:
                call()
            else:
                time.sleep(0.01)
            called = True
        return self._is_over

    @property
    def _is_over(self) -> bool:
        if self._why_empty or self._why_ended:
            return True
        state = self.driver.state
        return self.driver.settled and bool(state.cases or state.frozen)

    def freeze(self) -> None:
        """End exploring for good; what is live stays live."""
        self.driver.freeze()

    def close(self) -> None:
        """Give the model back as it was."""
        with self._life:
            self._restore()
            if os.getpid() == self._process:  # a forked process has no such thread
                self._pulse.stop()
            self.driver.close()
            self._end()

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copy of a tuned model is not tuned."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A pickle of a tuned model is not tuned either, and needs nothing of ours to be read."""
        return type(None), ()


def _state_of(session: Session) -> Callable[[], State]:
    """Reads a session's state without keeping the session alive."""
    known = weakref.ref(session)

    def state() -> State:
        alive = known()
        return State(Settings()) if alive is None else alive.driver.state

    return state


def _end(
    process: int,
    slots: list[weakref.ref[Slot]],
    pulse: Pulse,
    builders: Builders,
    sensors: Sensors,
    journal: Journal,
) -> None:
    if os.getpid() != process:  # forked: all of this is the other process's
        return
    pulse.stop(1.0)
    for known in slots:
        if (slot := known()) is not None:  # a layer outlives its model, with nobody to look after
            slot.revert_all()
    builders.close()
    sensors.close()
    journal.close()


def session_of(model: nn.Module) -> Session:
    """The session of a tuned model."""
    session = model.__dict__.get(ATTRIBUTE)
    if not isinstance(session, Session) or not session.tunes(model):
        kind = type(model).__name__
        raise NotTunable(f"this {kind} is not tuned; call grainshift.tune(model) first")
    return session
