"""A layer's weights packed for the kernels, and packed anew whenever they change.

What PyTorch counts (in-place operators, optimizers, `load_state_dict`, another parameter or
another storage) is seen before every run. What it does not count, a write through `param.data` or
NumPy, is seen by the kernels, which compare samples, other ones in each run.
"""

import itertools
import struct
import sys
import weakref
from typing import NamedTuple

from torch import Tensor, nn

from grainshift.families.recurrence.find import shape_of
from grainshift.families.recurrence.library import KINDS, PRECISIONS, Library
from grainshift.families.recurrence.weights import current, grouped, is_plain

_Stamp = tuple[int, int, tuple[int, ...], tuple[int, ...]]
_numbers = itertools.count(1)


class Packed(NamedTuple):
    """One packing: the kernels' panels, and what the weights were when it was made.

    `views` keep the weights' storage from being used again while kernels may read it. No other
    packing has the same `number`.
    """

    number: int
    panels: "_Panels"
    stamps: tuple[_Stamp, ...]
    views: tuple[Tensor, ...]
    told: bytes  # `Packing` in door.cpp


class _Panels:
    """Owns what the library packed; threads may run it, nobody writes into it."""

    __slots__ = ("__weakref__", "address", "held_bytes")

    def __init__(self, library: Library, layer: nn.RNNBase, precision: str) -> None:
        shape = shape_of(layer)
        self.address = library.make(
            KINDS.index(shape.kind),
            shape.inputs,
            shape.hidden,
            shape.layers,
            shape.directions,
            PRECISIONS.index(precision),
        )
        if not self.address:
            raise MemoryError("there is no memory for packed weights")
        # not at exit: threads may still be running on them, and the system frees all anyway
        weakref.finalize(self, library.free, self.address).atexit = False
        self.held_bytes = library.held_bytes(self.address)


class Net:
    """The packed weights of one layer in one precision, shared by all Choices that run on them."""

    __slots__ = ("__weakref__", "_layer", "_library", "_precision", "kept")

    def __init__(self, library: Library, layer: nn.RNNBase, precision: str) -> None:
        self._library = library
        self._layer = layer
        self._precision = precision
        self.kept: Packed | None = None

    def fresh(self) -> Packed:
        """The packing of the weights as they are now."""
        flat = current(self._layer)
        kept = self.kept
        if kept is not None and kept.stamps == stamps_of(flat):
            return kept
        del kept  # or its memory could not be used again
        return self.renew()

    def renew(self) -> Packed:
        """Pack the weights whatever they were; runs under way keep the packing they have.

        The memory of a packing that nobody runs is used again: a training step packs anew.
        """
        flat = current(self._layer)
        _check(flat, self._layer)
        old, self.kept = self.kept, None  # from here on nobody else can come to hold it
        stamps = stamps_of(flat)
        views = tuple(weight.detach().contiguous() for weight in flat)
        if old is not None and sys.getrefcount(old) <= OWN_REFERENCES:
            panels = old.panels
        else:
            panels = _Panels(self._library, self._layer, self._precision)
        for number, group in enumerate(grouped(list(views), self._layer.bias)):
            addresses = [0 if part is None else part.data_ptr() for part in group]
            self._library.pack(panels.address, number, *addresses)
        told = _tell(panels.address, stamps)
        self.kept = packed = Packed(next(_numbers), panels, stamps, views, told)
        return packed


def stamps_of(flat: list[Tensor]) -> tuple[_Stamp, ...]:
    """Where each weight lies, how often it was written to, its sizes and strides."""
    return tuple(
        [
            (
                weight.data_ptr(),
                -1 if weight.is_inference() else weight._version,
                weight.shape,
                weight.stride(),
            )
            for weight in flat
        ]
    )


def _tell(address: int, stamps: tuple[_Stamp, ...]) -> bytes:
    """A packing as the door reads it."""
    numbers = [address, len(stamps)]
    for place, version, sizes, strides in stamps:
        numbers += (place, version, len(sizes), *sizes, *strides)
    return struct.pack(f"{len(numbers)}q", *numbers)


def _check(flat: list[Tensor], layer: nn.RNNBase) -> None:
    """Refuse weights that the kernels would read past the end of."""
    sizes = tuple(tuple(weight.shape) for weight in flat if is_plain(weight))
    if sizes != shape_of(layer).weight_sizes:
        raise ValueError("the layer's weights are not fp32 tensors of its own sizes on the CPU")


def _references_of_one() -> int:
    only = object()
    return sys.getrefcount(only)


OWN_REFERENCES = _references_of_one()
"""What `sys.getrefcount` says of what one variable holds: fewer from Python 3.14 on."""
