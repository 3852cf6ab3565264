"""Reads one call of a recurrent layer, and tells the calls that only PyTorch's forward may run.

Whatever is unusual or wrong reads as None: the stock forward then runs it, or raises its own error.
"""

from collections.abc import Callable, Mapping
from operator import ge
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence

from grainshift.families.recurrence.weights import current, is_plain
from grainshift.runtime.training import wanting

_FULL_PRECISION = ("none", "ieee")


class Call(NamedTuple):
    """A call as every Runner takes it, x as TBI; `batched` and `batch_first` lead back.

    Where `rows` tells the rows of each step, x holds those of all steps, one step after the other.
    `flat` is the layer's weights where gradients are wanted of anything, else None.
    """

    x: Tensor
    state: Any
    flat: list[Tensor] | None
    batched: bool
    batch_first: bool
    packing: PackedSequence | None = None
    rows: tuple[int, ...] = ()

    def answer(self, y_TBO: Tensor, state: Any) -> tuple[Any, Any]:
        """Outputs and state in the form that the caller expects."""
        if self.packing is not None:
            _, rows, order, back = self.packing
            return PackedSequence(y_TBO, rows, order, back), _in_order(state, back)
        if self.batched:
            return (y_TBO.transpose(0, 1) if self.batch_first else y_TBO), state
        if isinstance(state, Tensor):
            return y_TBO.squeeze(1), state.squeeze(1)
        return y_TBO.squeeze(1), tuple(part.squeeze(1) for part in state)


def read(layer: nn.RNNBase, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
    """The call as a Runner takes it, or None when the stock forward must run it."""
    if torch.compiler.is_compiling() or _is_unusual():
        return None
    bound = bind(args, kwargs)
    if bound is None or (layer.training and layer.dropout and layer.num_layers > 1):
        return None
    x, hx = bound
    flat = current(layer)
    if not all(map(is_plain, flat)):
        return None
    if type(x) is PackedSequence:
        return _read_ragged(layer, x, hx, flat)
    if not is_plain(x):
        return None
    batched = x.dim() == 3
    if not batched and x.dim() != 2:
        return None
    x_TBI = x.unsqueeze(1) if not batched else x.transpose(0, 1) if layer.batch_first else x
    if x_TBI.shape[2] != layer.input_size or 0 in x_TBI.shape:
        return None
    state = _read_state(layer, hx, x_TBI, x_TBI.shape[1], batched)
    if state is None:
        return None
    if not torch.is_grad_enabled() or next(wanting((x, state, flat)), None) is None:
        return Call(x_TBI, state, None, batched, layer.batch_first)
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return None  # whoever computes this call again must meet the Choice of the first time
    return Call(x_TBI, state, flat, batched, layer.batch_first)


def bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Input and initial state of a call, or None where it has a form of its own."""
    if not kwargs and 1 <= len(args) <= 2:
        return (args[0], None) if len(args) == 1 else (args[0], args[1])
    if len(args) == 1 and kwargs.keys() == {"hx"}:
        return args[0], kwargs["hx"]
    if not args and "input" in kwargs and kwargs.keys() <= {"input", "hx"}:
        return kwargs["input"], kwargs.get("hx")
    return None


def _fp32_precision() -> Callable[[str, str], str]:
    getter: Callable[[str, str], str] | None = getattr(torch._C, "_get_fp32_precision_getter", None)
    return getter or (lambda backend, op: "none")


_precision = _fp32_precision()


def _is_unusual() -> bool:
    """Tracing, modes, transforms, autocast, determinism or lower precision asked for."""
    return (
        torch._C._get_tracing_state() is not None
        or torch._C._is_any_autocast_enabled()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch.are_deterministic_algorithms_enabled()
        or _precision("mkldnn", "matmul") not in _FULL_PRECISION
    )


def _read_ragged(layer: nn.RNNBase, x: PackedSequence, hx: Any, flat: list[Tensor]) -> Call | None:
    data, sizes, order, _ = x
    if not is_plain(data) or data.dim() != 2 or data.shape[1] != layer.input_size:
        return None
    if type(sizes) is not Tensor or sizes.dtype is not torch.int64 or not sizes.is_cpu:
        return None
    rows = tuple(sizes.tolist()) if sizes.dim() == 1 else ()
    ends = bool(rows) and rows[-1] >= 1 and all(map(ge, rows, rows[1:]))
    if not ends or sum(rows) != data.shape[0]:  # the kernels would read what is not there
        return None
    state = _read_state(layer, hx, data, rows[0], True)
    if state is None or not _is_order(order, rows[0]):
        return None
    if torch.is_grad_enabled() and next(wanting((data, state, flat)), None) is not None:
        return None  # gradients of rows that end at different steps are PyTorch's
    state = state if hx is None else _in_order(state, order)
    return Call(data, state, None, True, False, x, rows)


def _is_order(order: Any, count: int) -> bool:
    """Whether it can put as many rows in order, and no other number of them."""
    return order is None or (type(order) is Tensor and order.shape == (count,))


def _in_order(state: Any, order: Tensor | None) -> Any:
    """The rows of a state in another order."""
    if order is None:
        return state
    if isinstance(state, Tensor):
        return state.index_select(1, order)
    return tuple(part.index_select(1, order) for part in state)


def _read_state(layer: nn.RNNBase, hx: Any, x: Tensor, batch: int, batched: bool) -> Any:
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [(rows, batch, layer.proj_size or layer.hidden_size)]
    lstm = layer.mode == "LSTM"
    if lstm:
        sizes.append((rows, batch, layer.hidden_size))
    if hx is None:
        return tuple(map(x.new_zeros, sizes)) if lstm else x.new_zeros(sizes[0])
    if lstm and (type(hx) is not tuple or len(hx) != 2):
        return None
    parts = hx if lstm else (hx,)
    if not all(is_plain(part) for part in parts):
        return None
    if not batched:
        if any(part.dim() != 2 for part in parts):
            return None
        parts = tuple(part.unsqueeze(1) for part in parts)
    if any(part.shape != size for part, size in zip(parts, sizes, strict=True)):
        return None
    return parts if lstm else parts[0]
