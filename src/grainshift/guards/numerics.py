"""Refuses what puts out other numbers than it may. Knows errors, no tensor."""

import math
from dataclasses import dataclass

from grainshift.core.choice import Choice, Exactness
from grainshift.core.conditions import Conditions
from grainshift.core.events import Compared, Offer
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.core.verdict import ADMITTED, Verdict


@dataclass(frozen=True, slots=True)
class Numerics:
    """`exact` means no difference, `rounding` a tiny one, `lower` the user's error budget."""

    settings: Settings
    limits: Limits
    name: str = "numerics"

    def admit(
        self, offer: Offer, baseline_s: float, conditions: Conditions, held_bytes: int = 0
    ) -> Verdict:
        """Refuse lower precision unless the user gave an error budget."""
        if offer.choice.exactness is Exactness.LOWER and self.limits.error_ratio is None:
            return Verdict(False, self.name, f"{offer.choice} needs an error budget")
        return ADMITTED

    def accept(self, choice: Choice, compared: Compared) -> Verdict:
        """Refuse an output whose error is larger than the Choice's exactness allows."""
        most = self._most(choice)
        if math.isfinite(compared.error_ratio) and compared.error_ratio <= most:
            return ADMITTED
        reason = f"{choice} is off by {compared.error_ratio:.2g}, {most:.2g} is allowed"
        return Verdict(False, self.name, reason)

    def keep(
        self, offer: Offer, live_s: float, baseline_s: float, conditions: Conditions
    ) -> Verdict:
        """Times say nothing of numbers."""
        return ADMITTED

    def _most(self, choice: Choice) -> float:
        if choice.exactness is Exactness.EXACT:
            return 0.0
        if choice.exactness is Exactness.ROUNDING:
            return self.settings.rounding_ratio
        return self.limits.error_ratio or 0.0
