"""Asks a family what it offers at a Site, and makes Offers of it. Decides nothing, runs nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.events import Offer
from grainshift.core.family import Family
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.machine import Machine
from grainshift.core.site import Named, Site
from grainshift.tuner.faults import Faults

Recall = Callable[[Site, str], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks families; what one cannot tell is told once, and not offered."""

    machine: Machine
    limits: Limits
    recall: Recall
    faults: Faults

    def offers(
        self,
        family: Family,
        site: Site,
        bucket: str,
        conditions: Conditions,
        known: tuple[Choice, ...] = (),
    ) -> tuple[Offer, ...]:
        """What a family offers beyond what is known, the baseline first when nothing is."""
        offered = self._choices(family, site, bucket)
        memory = self._memory(site, bucket)
        offers = []
        for choice in offered:
            if choice not in known:
                forecast = self._forecast(family, site, bucket, choice, conditions)
                if forecast is None and choice == offered[0]:  # the baseline needs none
                    forecast = Forecast()
                if forecast is not None:
                    offers.append(Offer(choice, forecast, memory.get(str(choice))))
        return tuple(offers)

    def features(self, family: Family, site: Site, bucket: str) -> Named:
        """What a policy sees of a bucket; nothing when the family cannot tell."""
        none: Named = ()
        what = f"{family.name} could not describe the shapes of calls, its policy sees none"

        def ask() -> Named:
            return tuple((str(name), float(value)) for name, value in family.features(site, bucket))

        return self.faults.answer(what, ask, none)

    def _choices(self, family: Family, site: Site, bucket: str) -> tuple[Choice, ...]:
        what = f"{family.name} could not offer Choices, its Site stays as it is"
        none: tuple[Choice, ...] = ()

        def ask() -> tuple[Choice, ...]:
            return tuple(dict.fromkeys(family.offer(site, bucket, self.limits)))

        return self.faults.answer(what, ask, none)

    def _memory(self, site: Site, bucket: str) -> Mapping[str, float]:
        none: Mapping[str, float] = {}
        what = "what was learnt before could not be read"
        return self.faults.answer(what, lambda: dict(self.recall(site, bucket)), none)

    def _forecast(
        self, family: Family, site: Site, bucket: str, choice: Choice, conditions: Conditions
    ) -> Forecast | None:
        what = f"{family.name} could not forecast a Choice, which is not tried"
        none: Forecast | None = None

        def ask() -> Forecast | None:
            told = family.forecast(site, bucket, choice, self.machine, conditions)
            if not isinstance(told, Forecast):
                raise TypeError(f"{told!r} is no Forecast")
            return told

        return self.faults.answer(what, ask, none)
