"""The recurrence family: one LSTM, GRU or RNN layer, retuned between segments of a sequence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch import nn

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.family import Door, Recipe, Runner
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.machine import Machine
from grainshift.core.site import Site
from grainshift.families.recurrence import build as _build
from grainshift.families.recurrence import find as _find
from grainshift.families.recurrence import forecast as _forecast
from grainshift.families.recurrence import install as _install
from grainshift.families.recurrence import offer as _offer
from grainshift.families.recurrence.shape import parse
from grainshift.families.recurrence.weights import Packed

__all__ = ["FAMILY", "Recurrence"]

_Packs = WeakKeyDictionary[nn.Module, ref[Packed]]


@dataclass(frozen=True)
class Recurrence:
    """Tunes recurrent layers; `segment_s` is the shortest stretch between two decisions."""

    segment_s: float = 0.002
    _packs: _Packs = field(default_factory=WeakKeyDictionary, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The family's word in the vocabulary."""
        return _find.FAMILY_NAME

    @property
    def policy(self) -> str:
        """The policy it uses unless the user names another."""
        return "bandit"

    def find(self, model: nn.Module) -> tuple[Sequence[Site], Sequence[tuple[str, str]]]:
        """The Sites in a model, and (path, reason) of each place that cannot be one."""
        return _find.find(model)

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        """The Choices at a Site for shapes of a bucket, the baseline first."""
        return _offer.offer(bucket, packing=_offer.can_pack())

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        """What a Choice is expected to cost."""
        return _forecast.forecast(parse(site), bucket, choice, machine)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        """None: nothing is compiled."""
        return None

    def build(
        self, model: nn.Module, site: Site, bucket: str, choice: Choice, folder: str
    ) -> Runner:
        """Make a Choice ready to run one segment."""
        layer = _find.layer_at(model, site)
        return _build.build(layer, choice, self._packed(layer))

    def install(self, model: nn.Module, site: Site, door: Door) -> Callable[[], None]:
        """Send the layer's calls through a Slot; the answer undoes it."""
        return _install.install(_find.layer_at(model, site), door, self.segment_s)

    def _packed(self, layer: nn.Module) -> Packed:
        """One packed copy of a layer for all its Choices, gone when the last of them is."""
        kept: Any = self._packs.get(layer, lambda: None)()
        if kept is None:
            kept = Packed()
            self._packs[layer] = ref(kept)
        return kept  # type: ignore[no-any-return]


FAMILY = Recurrence()
