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
from grainshift.families.recurrence import bucket as _buckets
from grainshift.families.recurrence import build as _build
from grainshift.families.recurrence import find as _find
from grainshift.families.recurrence import forecast as _forecast
from grainshift.families.recurrence import install as _install
from grainshift.families.recurrence import kernel as _kernel
from grainshift.families.recurrence import library as _library
from grainshift.families.recurrence import offer as _offer
from grainshift.families.recurrence import swift as _swift
from grainshift.families.recurrence import train as _train
from grainshift.families.recurrence.choice import precision_of, uses_operators
from grainshift.families.recurrence.net import Net
from grainshift.families.recurrence.shape import parse
from grainshift.families.recurrence.swift import Entrance, Swift
from grainshift.families.recurrence.train import Turned
from grainshift.families.recurrence.weights import Packed
from grainshift.runtime.native import Native, recipe
from grainshift.runtime.pool import Pool

__all__ = ["FAMILY", "Recurrence"]

_BRIEF_STEPS = 32  # up to here, what Python costs a call is felt
_UNTRAINED = "its training calls, whose Choices are kernels that need a C++ compiler"
_Shared = WeakKeyDictionary[nn.Module, WeakValueDictionary[str, Any]]
_Installed = WeakKeyDictionary[nn.Module, WeakValueDictionary[str, nn.RNNBase]]


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
    _installed: _Installed = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )
    _pools: WeakValueDictionary[str, Pool] = field(  # gone with the last Choice that trains
        default_factory=WeakValueDictionary, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """The family's word in the vocabulary."""
        return _find.FAMILY_NAME

    @property
    def policy(self) -> str:
        """The policy it uses unless the user names another."""
        return "ppo"

    @property
    def native(self) -> Native | None:
        """The kernels, if they are there or can be built."""
        native = None if self.kernels is None else _library.native(self.kernels)
        return native if native is not None and native.is_possible else None

    def compile(self) -> None:
        """Build here and now what `tune` has built while a model runs."""
        for native in (self.native, self.kernels and _swift.native(self.kernels)):
            if native:
                native.build()

    def find(self, model: nn.Module) -> tuple[Sequence[Site], Sequence[tuple[str, str]]]:
        """The Sites in a model, and (path, reason) of each place that cannot be one."""
        sites, refused = _find.find(model)
        if self.kernels is None or self.native is not None:
            return sites, refused
        return sites, (*refused, *((site.path, _UNTRAINED) for site in sites))

    def features(self, site: Site, bucket: str) -> Named:
        """What a policy sees of the bucket: its batch and its steps."""
        return _buckets.features(bucket)

    def offer(self, site: Site, bucket: str, limits: Limits) -> tuple[Choice, ...]:
        """The Choices at a Site for shapes of a bucket, the baseline first."""
        shape, kernels = parse(site), self.native is not None
        kernels = kernels and not shape.projected  # which they do not do
        if _buckets.trains(bucket):
            return _offer.offer_training(shape, bucket, kernels=kernels)
        if not kernels:
            return _offer.offer_operators(bucket, packing=_offer.can_pack())
        return _offer.offer_kernels(parse(site), bucket, limits)

    def forecast(
        self, site: Site, bucket: str, choice: Choice, machine: Machine, conditions: Conditions
    ) -> Forecast:
        """What a Choice is expected to cost."""
        return _forecast.forecast(parse(site), bucket, choice, machine)

    def recipe(self, site: Site, bucket: str, choice: Choice) -> Recipe | None:
        """How the kernels are compiled, once, and aside what brief calls gain by."""
        native = None if uses_operators(choice) else self.native
        if native is None or self.kernels is None:
            return None
        first = recipe([native])
        if first is not None or _buckets.sizes(bucket)[1] > _BRIEF_STEPS:
            return first
        return recipe([_swift.native(self.kernels)])

    def build(
        self, model: nn.Module, site: Site, bucket: str, choice: Choice, folder: str
    ) -> Runner:
        """Make a Choice ready to run one segment."""
        layer = self._layer(model, site)
        if uses_operators(choice):
            packed = self._share(layer, "operators", Packed)
            return _build.build(layer, choice, packed)
        native = self.native
        assert native is not None  # else such a Choice is not offered
        path = native.keep(folder) if folder else native.build()
        assert path is not None  # a needed library raises instead
        library = _library.load(path)
        precision = precision_of(choice)
        net = self._share(layer, precision, lambda: Net(library, layer, precision))
        if _buckets.trains(bucket):
            turned = self._share(layer, "turned", lambda: Turned(library, parse(site)))
            return _train.build(library, net, turned, layer, choice, self._pool)
        swift = self._swiftness(folder)
        if swift is not None:
            self._share(layer, "entrance", Entrance).open(swift, layer)
        return _kernel.build(library, net, layer, choice, swift)

    def install(self, model: nn.Module, site: Site, door: Door) -> Callable[[], None]:
        """Send the layer's calls through a Slot; the answer undoes it."""
        layer = _find.layer_at(model, site)
        entrance = self._share(layer, "entrance", Entrance)
        if (swift := self._swiftness("")) is not None:
            entrance.open(swift, layer)
        trains = self.native is not None and not layer.proj_size
        take_out = _install.install(layer, door, self.segment_s, entrance, trains=trains)
        installed = self._installed.setdefault(model, WeakValueDictionary())
        installed[site.path] = layer

        def undo() -> None:
            take_out()
            installed.pop(site.path, None)

        return undo

    def _layer(self, model: nn.Module, site: Site) -> nn.RNNBase:
        """The layer whose calls come through the Slot, though the model may hold another by now."""
        installed = self._installed.get(model)
        layer = None if installed is None else installed.get(site.path)
        return _find.layer_at(model, site) if layer is None else layer

    def _swiftness(self, folder: str) -> Swift | None:
        """The functions for brief calls, if they were built."""
        if self.kernels is None:
            return None
        native = _swift.native(self.kernels)
        path = native.keep(folder) if folder else native.kept()
        return None if path is None else _swift.load(path)

    @property
    def _pool(self) -> Pool:
        """What all layers that train take their buffers from."""
        pool = self._pools.get("training")
        if pool is None:
            pool = self._pools["training"] = Pool()
        return pool

    def _share(self, layer: nn.Module, kind: str, make: Callable[[], Any]) -> Any:
        """What all Choices of one kind at a layer have in common, gone when the last of them is."""
        kept = self._shared.setdefault(layer, WeakValueDictionary())
        shared = kept.get(kind)
        if shared is None:
            shared = kept[kind] = make()
        return shared


FAMILY = Recurrence()
