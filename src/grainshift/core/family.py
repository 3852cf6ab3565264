"""The contract of a Family: it knows Sites of one kind. Knows nothing of tuning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.machine import Machine
from grainshift.core.site import Named, Place, Site


@dataclass(frozen=True, slots=True)
class Recipe:
    """Work for a builder in another process: `function` of `module`, given JSON arguments.

    It runs in an empty folder of its own and leaves there what the family then loads. Equal recipes
    are done once: the family then keeps what they left, or asks for them again.

    aside: whether a Choice can be built without it, only not as well. It is then built at once,
        and again from what the recipe leaves.
    """

    module: str
    function: str
    arguments: dict[str, Any]
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Runner:
    """A Choice ready to run: call `run` as the Site's baseline would be called."""

    run: Callable[..., Any]
    held_bytes: int = 0
    place: Place = Place.CALLER
    close: Callable[[], None] | None = None


class Door(Protocol):
    """What a family calls from inside the model: a Slot, seen from a Site."""

    def call(self, bucket: str, work: float, /, *args: Any) -> Any:
        """Run the live Choice of this bucket, or the one whose turn it is."""

    def is_stock(self, bucket: str) -> bool:
        """Does the baseline run in calls of this bucket, and nothing else?"""

    def train(self, bucket: str, work: float, /, *args: Any) -> Any:
        """As `call`, where gradients are wanted: a Reading covers the way there and back.

        Whatever gradients are wanted of must be among the arguments.
        """


class Family(Protocol):
    """Knows Sites of one kind: finds them, offers Choices, forecasts and builds them.

    A family whose layers are decided together finds one Site with `parts` and offers plans.
    """

    @property
    def name(self) -> str:
        """The family's word in the vocabulary."""

    @property
    def policy(self) -> str:
        """The policy it uses unless the user names another."""

    def find(self, model: Any) -> tuple[Sequence[Site], Sequence[tuple[str, str]]]:
        """The Sites in a model, and (path, reason) of each place that cannot be one."""

    def features(self, site: Site, bucket: str) -> Named:
        """What a policy sees of the bucket, beside the Site's own features; always as many."""

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        """The Choices at a Site for shapes of a bucket, the baseline first."""

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        """What a Choice is expected to cost."""

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        """What another process must do first; None when building is instant.

        It is asked again once a Choice was built, for what can be done aside.
        """

    def build(self, model: Any, site: Site, bucket: str, choice: Choice, folder: str) -> Runner:
        """Make a Choice ready to run, from what the recipe left in `folder`."""

    def install(self, model: Any, site: Site, door: Door) -> Callable[[], None]:
        """Send the Site's calls through a Slot; the answer undoes it."""
