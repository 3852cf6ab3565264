"""Finds the recurrent layers of a model that can be tuned, and says why others cannot."""

import types
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.utils import parametrize

from grainshift.core.site import Site, Tempo
from grainshift.families.recurrence.shape import Shape

FAMILY_NAME = "recurrence"
_STOCK = (nn.LSTM, nn.GRU, nn.RNN)
_WORDS = ("LSTM", "GRU", "RNN")


def find(model: nn.Module) -> tuple[tuple[Site, ...], tuple[tuple[str, str], ...]]:
    """The Sites of a model, and (path, reason) of each recurrent place that cannot be one."""
    sites, refused = [], []
    for path, module in model.named_modules():
        reason = _refusal(module)
        if reason is None and isinstance(module, _STOCK):
            sites.append(_site(path, module))
        elif reason is not None:
            refused.append((path, reason))
    return tuple(sites), tuple(refused)


def layer_at(model: nn.Module, site: Site) -> nn.RNNBase:
    """The layer that a Site stands for."""
    layer = model.get_submodule(site.path)
    assert isinstance(layer, nn.RNNBase)
    return layer


def is_stock_forward(layer: nn.Module) -> bool:
    """Does a call of the layer run PyTorch's own forward?"""
    own = layer.__dict__.get("forward")
    bound = isinstance(own, types.MethodType) and own.__self__ is layer
    forward = own.__func__ if isinstance(own, types.MethodType) and bound else type(layer).forward
    return (own is None or bound) and any(forward is kind.forward for kind in _STOCK)


def shape_of(layer: nn.RNNBase) -> Shape:
    """The Shape of a layer as it is now."""
    directions = 2 if layer.bidirectional else 1
    sizes = (layer.input_size, layer.hidden_size, layer.num_layers, directions)
    return Shape(layer.mode, *sizes, layer.bias, layer.proj_size)


def _site(path: str, layer: nn.RNNBase) -> Site:
    shape = shape_of(layer)
    places = [f"{path}.{name}" if path else name for name in shape.names]
    sweeps = [
        Site(FAMILY_NAME, place, sweep.fingerprint, Tempo.SEGMENT, sweep.features)
        for place, sweep in zip(places, map(shape.sweep, range(shape.sweeps)), strict=True)
    ]
    parts = tuple(sweeps) if len(sweeps) > 1 else ()
    return Site(FAMILY_NAME, path, shape.fingerprint, Tempo.SEGMENT, shape.features, parts)


def _refusal(module: nn.Module) -> str | None:
    if isinstance(module, _STOCK):
        return next(_layer_refusals(module), None)
    if isinstance(module, nn.RNNCellBase):
        return "a cell is stepped by the model's own loop; only whole layers are tuned here"
    kind = type(module)
    if kind.__module__.startswith("torch.ao.nn.") and kind.__name__ in _WORDS:
        return "a quantized layer already runs its own kernels"
    if isinstance(module, torch.jit.ScriptModule) and module.original_name in _WORDS:
        return "compiled by TorchScript; tune the model before it is compiled"
    return None


def _layer_refusals(layer: nn.RNNBase) -> Iterator[str]:
    if parametrize.is_parametrized(layer):
        yield "its weights are computed by a parametrization in every call"
    if not is_stock_forward(layer):
        yield f"{type(layer).__name__} runs a forward of its own, not PyTorch's"
    weights = list(layer.parameters())
    if not weights:
        yield "it has no parameters of its own"
    for weight in weights:
        if weight.dtype is not torch.float32:
            yield f"its weights are {weight.dtype}; only torch.float32 is supported"
        if weight.device.type != "cpu":
            yield f"its weights are on {weight.device}; only the CPU is supported"
