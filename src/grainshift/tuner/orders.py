"""Which Choices wait for which build. Equal recipes are done once. Touches no Slot."""

from dataclasses import dataclass, field

from grainshift.core.family import Recipe
from grainshift.runtime.builder import Outcome
from grainshift.tuner.ports import Workshop

__all__ = ["Order", "Orders"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is being built, and for which Site; `aside` where it was built without that already."""

    place: int
    site_key: str
    bucket: str
    arm: int
    aside: bool = False


@dataclass(slots=True)
class Orders:
    """What the builders were given, and who waits for the same.

    What failed aside is not tried again: nobody needs it.
    """

    builders: Workshop
    _going: list[tuple[Recipe, list[Order]]] = field(default_factory=list)
    _given_up: list[Recipe] = field(default_factory=list)

    def place(self, order: Order, recipe: Recipe) -> None:
        """Have a recipe done, unless it is under way for someone else."""
        if recipe in self._given_up:
            return
        for going, waiting in self._going:
            if going == recipe:
                waiting.append(order)
                return
        self.builders.submit(order, recipe)
        self._going.append((recipe, [order]))

    def ended(self, at_s: float) -> list[tuple[Outcome, list[Order]]]:
        """What ended since the last time, and who waited for it; whom it was done for is first."""
        return [(outcome, self._waiting(outcome)) for outcome in self.builders.poll(at_s)]

    def _waiting(self, outcome: Outcome) -> list[Order]:
        for entry in self._going:
            recipe, orders = entry
            if orders[0] == outcome.order:
                self._going.remove(entry)
                if outcome.failure and recipe.aside:
                    self._given_up.append(recipe)
                return orders
        return []
