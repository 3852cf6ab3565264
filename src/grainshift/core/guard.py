"""The contract of a Guard: it admits or refuses, with a reason. Pure, so that replay can ask it."""

from typing import Protocol

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.events import Compared, Offer
from grainshift.core.verdict import Verdict


class Guard(Protocol):
    """Says what may be tried and what may stay live."""

    @property
    def name(self) -> str:
        """The guard's word in the vocabulary."""

    def admit(
        self, offer: Offer, baseline_s: float, conditions: Conditions, held_bytes: int = 0
    ) -> Verdict:
        """May this Choice be tried, where the baseline takes `baseline_s` a call?

        `held_bytes` is what other Choices hold already, everywhere in the model.
        """

    def accept(self, choice: Choice, compared: Compared) -> Verdict:
        """Is what a Choice put out beside the baseline good enough?"""

    def keep(
        self, offer: Offer, live_s: float, baseline_s: float, conditions: Conditions
    ) -> Verdict:
        """May this Choice stay live? A refusal is a demand to return to the baseline."""
