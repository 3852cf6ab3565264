"""Refuses what would not fit into memory. Knows Forecasts and Conditions, no allocator."""

from dataclasses import dataclass

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.events import Compared, Offer
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.core.verdict import ADMITTED, Verdict

_FREE = "free_memory_bytes"
_HEADROOM = 0.5  # of what is free: others allocate too, and the Forecast may be off
_FLOOR_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """A hard limit: by the user's bytes, and by what the container has free."""

    settings: Settings
    limits: Limits
    name: str = "memory"

    def admit(
        self, offer: Offer, baseline_s: float, conditions: Conditions, held_bytes: int = 0
    ) -> Verdict:
        """Refuse a Choice whose extra bytes exceed the limit or half of what is free."""
        needs = offer.forecast.extra_bytes
        most = self.limits.memory_bytes
        if most is not None and needs and needs + held_bytes > most:
            others = f", others hold {held_bytes:,}" if held_bytes else ""
            reason = f"{offer.choice} needs {needs:,} bytes more{others}, the limit is {most:,}"
            return self._refuse(reason)
        free = conditions.value(_FREE, missing=float("inf"))
        if needs > free * _HEADROOM:
            return self._refuse(f"{offer.choice} needs {needs:,} bytes more, {free:,.0f} are free")
        return ADMITTED

    def accept(self, choice: Choice, compared: Compared) -> Verdict:
        """Outputs say nothing of memory."""
        return ADMITTED

    def keep(
        self, offer: Offer, live_s: float, baseline_s: float, conditions: Conditions
    ) -> Verdict:
        """Demand the baseline back when memory runs out and this Choice holds some of it."""
        free = conditions.value(_FREE, missing=float("inf"))
        if offer.forecast.extra_bytes and free < _FLOOR_BYTES:
            return self._refuse(f"only {free:,.0f} bytes are free, {offer.choice} holds memory")
        return ADMITTED

    def _refuse(self, reason: str) -> Verdict:
        return Verdict(False, self.name, reason)
