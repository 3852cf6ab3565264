"""Turns a traced call of a tuned layer into one call of `grainshift::recurrent`.

Traced means: by Dynamo, torch.export, make_fx or under fake tensors. What the operator does not
cover reads as None, and PyTorch's own forward is traced as ever. Dynamo follows these lines itself,
so they keep to what it understands.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from grainshift.families.recurrence.call import bind
from grainshift.families.recurrence.net import stamps_of
from grainshift.families.recurrence.operator import recurrent, recurrent_kept

_TRACERS = ("torch._subclasses.", "torch.fx.")


def is_traced() -> bool:
    """Is what runs now captured by somebody who can take our operator, and by nobody else?"""
    if torch.compiler.is_compiling():
        return not (torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export())
    modes = _get_current_dispatch_mode_stack()
    watching: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return (
        bool(modes)
        and all(type(mode).__module__.startswith(_TRACERS) for mode in (*modes, *watching))
        and torch._C._get_tracing_state() is None
    )


def trace(site: int, layer: nn.RNNBase, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The layer's answer by one operator, or None where PyTorch's forward must be traced."""
    bound = bind(args, kwargs)
    drops = layer.training and layer.dropout and layer.num_layers > 1
    if bound is None or drops or _is_unusual():
        return None
    x, hx = bound
    weights = [getattr(layer, name) for name in layer._flat_weights_names]
    if not all(_is_plain(tensor) for tensor in (x, *weights)):
        return None
    if x.dim() not in (2, 3) or x.shape[-1] != layer.input_size:
        return None
    state = _read_state(layer, x, hx)
    if state is None:
        return None
    run = recurrent_kept if _wants_gradients(x, *state, *weights) else recurrent
    y, h, *rest = run(
        x,
        *state,
        weights,
        layer.mode,
        layer.bias,
        layer.num_layers,
        layer.bidirectional,
        layer.batch_first,
        site,
    )
    return y, ((h, rest[0]) if layer.mode == "LSTM" else h)


def are_same(weights: Sequence[Tensor], own: Sequence[Tensor]) -> bool:
    """Are these tensors the layer's own weights, or views of them that share their history?"""
    return stamps_of(list(weights)) == stamps_of(list(own))


def _wants_gradients(*inputs: Tensor | None) -> bool:
    """Will the backward pass follow? Whoever exports may, but mostly means to infer."""
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_exporting()
        and any(tensor is not None and tensor.requires_grad for tensor in inputs)
    )


def _is_unusual() -> bool:
    """What the operator has no rule for: autocast, function transforms, forward derivatives."""
    return (
        torch._C._is_any_autocast_enabled()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _is_plain(value: Any) -> bool:
    """An fp32 tensor on the CPU, or one of PyTorch's own that stands for it while it traces."""
    return (
        isinstance(value, Tensor)
        and (
            type(value) in (Tensor, nn.Parameter)
            or type(value).__module__.startswith("torch._subclasses.")
        )
        and value.dtype is torch.float32
        and value.device.type == "cpu"
        and value.layout is torch.strided
    )


def _read_state(layer: nn.RNNBase, x: Tensor, hx: Any) -> tuple[Any, Any] | None:
    """The initial state, in two parts that may be left out, or None where something is wrong."""
    if hx is None:
        return None, None
    if layer.mode == "LSTM" and (type(hx) is not tuple or len(hx) != 2):
        return None
    parts: tuple[Any, ...] = hx if layer.mode == "LSTM" else (hx,)
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    batch = () if x.dim() == 2 else (x.shape[0 if layer.batch_first else 1],)
    size = (rows, *batch, layer.hidden_size)
    if not all(_is_plain(part) and part.shape == size for part in parts):
        return None
    return parts[0], (parts[1] if layer.mode == "LSTM" else None)
