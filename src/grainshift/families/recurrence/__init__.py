"""The recurrence family: one LSTM, GRU or RNN layer, retuned between segments of a sequence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from torch import nn

from grainshift.core.choice import Choice
from grainshift.core.conditions import Conditions
from grainshift.core.family import Door, Recipe, Runner
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.machine import Machine
from grainshift.core.site import Named, Site
from grainshift.families.recurrence import bucket as _bucket
from grainshift.families.recurrence import build as _build
from grainshift.families.recurrence import find as _find
from grainshift.families.recurrence import forecast as _forecast
from grainshift.families.recurrence import install as _install
from grainshift.families.recurrence import kernel as _kernel
from grainshift.families.recurrence import library as _library
from grainshift.families.recurrence import offer as _offer
from grainshift.families.recurrence.choice import precision_of, uses_operators
from grainshift.families.recurrence.net import Net
from grainshift.families.recurrence.shape import parse
from grainshift.families.recurrence.weights import Packed
from grainshift.runtime.native import Native

__all__ = ["FAMILY", "Recurrence"]

_Shared = WeakKeyDictionary[nn.Module, WeakValueDictionary[str, Any]]


@dataclass(frozen=True)
class Recurrence:
    """Tunes recurrent layers.

    segment_s: the shortest stretch between two decisions.
    kernels: the folder where built kernels are kept; None leaves it at PyTorch's operators.
    """

    segment_s: float = 0.002
    kernels: Path | None = None
    _shared: _Shared = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """The family's word in the vocabulary."""
        return _find.FAMILY_NAME

    @property
    def policy(self) -> str:
        """The policy it uses unless the user names another."""
        return "bandit"

    @property
    def native(self) -> Native | None:
        """The kernels, if they are there or can be built."""
        native = None if self.kernels is None else _library.native(self.kernels)
        return native if native is not None and native.is_possible else None

    def find(self, model: nn.Module) -> tuple[Sequence[Site], Sequence[tuple[str, str]]]:
        """The Sites in a model, and (path, reason) of each place that cannot be one."""
        return _find.find(model)

    def features(self, site: Site, bucket: str) -> Named:
        """What a policy sees of the bucket: its batch and its steps."""
        return _bucket.features(bucket)

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        """The Choices at a Site for shapes of a bucket, the baseline first."""
        if self.native is None:
            return _offer.offer_operators(bucket, packing=_offer.can_pack())
        return _offer.offer_kernels(parse(site), bucket, limits)

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        """What a Choice is expected to cost."""
        return _forecast.forecast(parse(site), bucket, choice, machine)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        """How the kernels are compiled, once; None where nothing is left to do."""
        native = None if uses_operators(choice) else self.native
        return None if native is None else native.recipe

    def build(
        self, model: nn.Module, site: Site, bucket: str, choice: Choice, folder: str
    ) -> Runner:
        """Make a Choice ready to run one segment."""
        layer = _find.layer_at(model, site)
        if uses_operators(choice):
            packed = self._share(layer, "operators", Packed)
            return _build.build(layer, choice, packed)
        native = self.native
        assert native is not None  # else such a Choice is not offered
        library = _library.load(native.keep(folder) if folder else native.build())
        precision = precision_of(choice)
        net = self._share(layer, precision, lambda: Net(library, layer, precision))
        return _kernel.build(library, net, layer, choice)

    def install(self, model: nn.Module, site: Site, door: Door) -> Callable[[], None]:
        """Send the layer's calls through a Slot; the answer undoes it."""
        return _install.install(_find.layer_at(model, site), door, self.segment_s)

    def _share(self, layer: nn.Module, kind: str, make: Callable[[], Any]) -> Any:
        """What all Choices of one kind at a layer have in common, gone when the last of them is."""
        kept = self._shared.setdefault(layer, WeakValueDictionary())
        shared = kept.get(kind)
        if shared is None:
            shared = kept[kind] = make()
        return shared


FAMILY = Recurrence()
