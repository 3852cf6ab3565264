"""Reads and runs plain calls in C++, for callers who take one step at a time. Knows no Slot.

Python's cost for each tensor that is touched is most of what a short call takes. The functions
here do what `call.read` and `kernel.build` do, for plain calls; for any other they answer None.
They are built against PyTorch's own headers. Where that fails, all stays in Python.
"""

import importlib.machinery
import importlib.util
import struct
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from grainshift.families.recurrence.find import shape_of
from grainshift.runtime.native import Native

Read = Callable[[tuple[Any, ...]], tuple[Any, Any, int, int] | None]
_SOURCES = Path(__file__).with_name("kernels")
_SIZES = struct.Struct("4q")
_FACTS = (
    "mode",
    "input_size",
    "hidden_size",
    "num_layers",
    "bidirectional",
    "bias",
    "proj_size",
    "batch_first",
    "dropout",
)


def native(folder: Path) -> Native:
    """The door's source, and where the built module is kept."""
    home = Path(torch.__file__).parent
    flags = (
        f"-I{home / 'include'}",
        f"-I{home / 'include' / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-I{sysconfig.get_paths()['include']}",
        f"-L{home / 'lib'}",
        *("-ltorch_python", "-ltorch_cpu", "-lc10"),
        f"-DBUILT_FOR={_word(torch.__version__)}_{_word(sys.implementation.cache_tag or '')}",
    )
    return Native("door", _SOURCES, "door.cpp", folder, flags, needed=False)


def _word(version: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in version)


@dataclass(frozen=True, slots=True)
class Swift:
    """The functions of the loaded module."""

    read: Callable[..., Any]
    step: Callable[..., Any]


@cache
def load(path: Path) -> Swift | None:
    """Load a module that was checked; None where this PyTorch cannot take it."""
    loader = importlib.machinery.ExtensionFileLoader("door", str(path))
    spec = importlib.util.spec_from_loader("door", loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        return None
    return Swift(module.read, module.step)


class Entrance:
    """Where a layer's entry finds how to read its calls swiftly, once that was built."""

    __slots__ = ("__weakref__", "read")

    def __init__(self) -> None:
        self.read: Read | None = None

    def open(self, swift: Swift, layer: nn.RNNBase) -> None:
        """From now on read plain calls in C++; a layer that changed its sizes is left to Python."""
        shape, own, read = shape_of(layer), layer.__dict__, swift.read
        if shape.projected:  # its two states differ in size
            return
        facts = tuple(part for name in _FACTS for part in (name, own[name]))
        lstm = int(shape.kind == "LSTM")
        sizes = _SIZES.pack(shape.inputs, shape.hidden, shape.sweeps, lstm)
        batch_first, drops = layer.batch_first, layer.dropout > 0 and shape.layers > 1

        def plain(args: tuple[Any, ...]) -> tuple[Any, Any, int, int] | None:
            if drops and own["training"]:
                return None
            return read(own, facts, sizes, args, batch_first)  # type: ignore[no-any-return]

        self.read = plain
