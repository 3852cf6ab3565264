"""Lets torch.compile walk into tuned recurrent layers, and into those alone.

Dynamo breaks the graph at every nn.LSTM, GRU and RNN, since their own forward unrolls into as many
nodes as there are steps; a tuned layer is one. The switch, `torch._dynamo.config.allow_rnn`, is one
for all layers, untuned ones too, and has to be thrown in each thread that compiles. So a tuned
layer enters the table by which Dynamo knows single objects, and the switch is on only while Dynamo
looks at that layer. In a PyTorch that has no such table, the graph breaks there as it always did.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, finalize

import torch
from torch import nn

_DYNAMO = "torch._dynamo"
_REASON = "only PyTorch's own forward can run this call"
_admitted: "WeakKeyDictionary[nn.Module, finalize[..., nn.Module]]" = WeakKeyDictionary()


def admit(layer: nn.Module) -> None:
    """Let Dynamo walk into this layer as long as it lives, or until it is dismissed."""
    if layer in _admitted:
        return
    ended = _admitted[layer] = finalize(layer, _erase, id(layer))
    ended.atexit = False
    if _DYNAMO in sys.modules:
        _write([layer])
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def dismiss(layer: nn.Module) -> None:
    """Have Dynamo break the graph at this layer again."""
    ended = _admitted.pop(layer, None)
    if ended is not None:
        ended()


def stock(layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """PyTorch's own forward, at which the graph breaks as it does at an untuned layer."""
    is_compiled = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
    if is_compiled and not torch._dynamo.config.allow_rnn:
        return _run(layer, args, kwargs)
    return type(layer).forward(layer, *args, **kwargs)


def _run(layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return type(layer).forward(layer, *args, **kwargs)


def _table() -> dict[int, Callable[[Any, Any], Any]]:
    try:
        from torch._dynamo.variables.builder import VariableBuilder

        return VariableBuilder._id_dispatch()
    except (ImportError, AttributeError):
        return {}


def _write(layers: Sequence[nn.Module]) -> None:
    global _run
    if not hasattr(_run, "_torchdynamo_disable"):
        _run = torch.compiler.disable(_run, reason=_REASON)  # type: ignore[no-untyped-call]
    _table().update((id(layer), _look) for layer in layers)


def _erase(number: int) -> None:
    if _DYNAMO in sys.modules:
        _table().pop(number, None)


def _look(builder: Any, layer: nn.Module) -> Any:
    from torch._dynamo import config

    with config.patch(allow_rnn=True):
        return builder.wrap_module(layer)


class _Watch(MetaPathFinder):
    """Waits until somebody imports Dynamo: that takes a second and 70 MB, so it is not us."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _DYNAMO:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self)
        return spec


class _Then(Loader):
    """Loads Dynamo as its own loader does, and then writes down the layers that wait for it."""

    def __init__(self, loader: Loader, watch: _Watch) -> None:
        self._loader = loader
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if self._watch in sys.meta_path:
            sys.meta_path.remove(self._watch)
        _write(list(_admitted))
