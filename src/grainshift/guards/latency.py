"""Refuses what would take too long a call. Knows seconds, no clock."""

from dataclasses import dataclass

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.events import Compared, Offer
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.core.verdict import ADMITTED, Verdict


@dataclass(frozen=True, slots=True)
class Latency:
    """A limit on the seconds of one call, where the user set one."""

    settings: Settings
    limits: Limits
    name: str = "latency"

    def admit(
        self, offer: Offer, baseline_s: float, conditions: Conditions, held_bytes: int = 0
    ) -> Verdict:
        """Refuse a Choice that may break the limit, unless the baseline already does."""
        most = self.limits.latency_s
        if most is None or baseline_s > most:
            return ADMITTED
        expected = baseline_s * offer.forecast.pessimistic_ratio
        if expected <= most:
            return ADMITTED
        return self._refuse(f"{offer.choice} may take {expected:.3g} s, the limit is {most:.3g} s")

    def accept(self, choice: Choice, compared: Compared) -> Verdict:
        """Refuse a Choice that broke the limit where the baseline did not."""
        most = self.limits.latency_s
        if most is None or compared.baseline_s > most or compared.choice_s <= most:
            return ADMITTED
        return self._refuse(f"{choice} took {compared.choice_s:.3g} s, the limit is {most:.3g} s")

    def keep(
        self, offer: Offer, live_s: float, baseline_s: float, conditions: Conditions
    ) -> Verdict:
        """Demand the baseline back when the live Choice breaks the limit and it would not."""
        most = self.limits.latency_s
        if most is None or live_s <= most or baseline_s > most:
            return ADMITTED
        return self._refuse(f"{offer.choice} takes {live_s:.3g} s, the limit is {most:.3g} s")

    def _refuse(self, reason: str) -> Verdict:
        return Verdict(False, self.name, reason)
