"""The recurrent layer as one operator, `grainshift::recurrent`, which captured programs call.

It knows no Slot: whoever tunes a layer enters here under a number, and the operator asks them
first. Where nobody answers (the program was loaded elsewhere, the layer is no longer tuned, the
weights are not the layer's own), it runs PyTorch's own operator on the weights that it was given.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import _C, _VF, Tensor, nn
from torch._C import DispatchKey
from torch.library import custom_op

_ARGUMENTS = (
    "Tensor x, Tensor? h, Tensor? c, Tensor[] weights, "
    "str mode, bool bias, int layers, bool bidirectional, bool batch_first, int site"
)
_AUTOGRAD = (
    DispatchKey.AutogradFunctionality,
    DispatchKey.AutogradOther,
    DispatchKey.AutogradNestedTensor,
    DispatchKey.ADInplaceOrView,
)


class Tuned(Protocol):
    """Whoever runs the calls of a tuned layer."""

    def answer(self, x: Tensor, hx: Any, weights: Sequence[Tensor], batch_first: bool) -> Any:
        """What the layer's forward would answer, or None where PyTorch's operator must run."""


# A captured program keeps numbers, not objects; it may outlive its layer or leave the process. So
# one place in the process must lead from the number back to the layer, keeping neither alive.
_tuned: WeakValueDictionary[int, Tuned] = WeakValueDictionary()
_sites: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_numbers = itertools.count(1)


def enter(layer: nn.Module, tuned: Tuned) -> int:
    """Answer for a layer from now on, under a number that stays the layer's own."""
    site = _sites.setdefault(layer, next(_numbers))
    _tuned[site] = tuned
    return site


def leave(site: int, tuned: Tuned) -> None:
    """Answer no more, unless somebody else has entered meanwhile."""
    if _tuned.get(site) is tuned:
        del _tuned[site]


class _Form(NamedTuple):
    """What the operator is told beside tensors."""

    mode: str
    bias: bool
    layers: int
    bidirectional: bool
    batch_first: bool
    site: int

    @property
    def states(self) -> int:
        """The tensors that make up a state."""
        return 2 if self.mode == "LSTM" else 1

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def in_time(self, x: Tensor) -> Tensor:
        """An input with its steps first and its batch second, or such an output turned back."""
        return x.transpose(0, 1) if self.batch_first and x.dim() == 3 else x


@custom_op("grainshift::recurrent", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor[]")
def recurrent(
    x: Tensor, h: Tensor | None, c: Tensor | None, weights: Sequence[Tensor], *form: Any
) -> list[Tensor]:
    """The outputs of a layer and its final state, one tensor or two; no state given means zeros."""
    told = _Form(*form)
    tuned = _tuned.get(told.site)
    answer = None
    with torch.no_grad():
        if tuned is not None:
            answer = tuned.answer(x, _as_hx(h, c), weights, told.batch_first)
        if answer is None:
            y, *finals = _stock((x, h, c, *weights), told)
        else:
            y, *finals = _flat(answer)
        y = told.in_time(told.in_time(y).contiguous())
        return list(_apart((y, *finals), (x, h, c)))


@recurrent.register_fake
def _fake_forward(
    x: Tensor, h: Tensor | None, c: Tensor | None, weights: Sequence[Tensor], *form: Any
) -> list[Tensor]:
    told = _Form(*form)
    hidden = weights[1].shape[1]
    steps, *batch = told.in_time(x).shape[:-1]
    y = x.new_empty((steps, *batch, hidden * told.directions))
    finals = (told.layers * told.directions, *batch, hidden)
    return [told.in_time(y), *(x.new_empty(finals) for _ in range(told.states))]


def _as_hx(h: Tensor | None, c: Tensor | None) -> Any:
    """The initial state as a layer's forward takes it."""
    return h if c is None else (h, c)


def _flat(answer: tuple[Tensor, Any]) -> tuple[Tensor, ...]:
    y, state = answer
    return (y, state) if isinstance(state, Tensor) else (y, *state)


def _stock(inputs: Sequence[Any], form: _Form) -> tuple[Tensor, ...]:
    """PyTorch's own operator, as the layer's forward calls it without dropout."""
    x, h, c, *weights = inputs
    batched = x.dim() == 3
    x_TBI = form.in_time(x) if batched else x.unsqueeze(1)
    size = (form.layers * form.directions, x_TBI.shape[1], weights[1].shape[1])
    state = [x.new_zeros(size)] * form.states
    if h is not None:
        given = [h] if c is None else [h, c]
        state = given if batched else [part.unsqueeze(1) for part in given]
    answer: tuple[Tensor, ...] = getattr(_VF, form.mode.lower())(
        x_TBI,
        tuple(state) if form.states == 2 else state[0],
        weights,
        form.bias,
        form.layers,
        0.0,
        torch.is_grad_enabled(),
        form.bidirectional,
        False,
    )
    if not batched:
        return tuple(part.squeeze(1) for part in answer)
    return form.in_time(answer[0]), *answer[1:]


def _apart(made: Sequence[Tensor], given: Sequence[Tensor | None]) -> Iterator[Tensor]:
    """Tensors that share no storage, neither with one another nor with those given.

    What a Choice answers may; what an operator answers must not.
    """
    taken = {part.untyped_storage().data_ptr() for part in given if part is not None}
    for part in made:
        address = part.untyped_storage().data_ptr()
        yield part.clone() if address in taken else part
        taken.add(address)


# Gradients.


@custom_op("grainshift::recurrent_kept", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor[]")
def recurrent_kept(
    x: Tensor, h: Tensor | None, c: Tensor | None, weights: Sequence[Tensor], *form: Any
) -> list[Tensor]:
    """The same for a training step: PyTorch's operator, and a tape that the backward pass runs on.

    The tape is an attribute of the last tensor, and ends with it. A copy of that tensor has none.
    The answers are copies: a compiler that is done with its buffers writes into them.
    """
    told = _Form(*form)
    with _within_autograd():
        inputs = _leaves((x, h, c, *weights))
        outputs = _stock(inputs, told)
    tape = x.new_zeros(1, dtype=torch.int64)
    tape.grainshift = (inputs, outputs)  # type: ignore[attr-defined]
    y, *finals = (part.detach() for part in outputs)
    y = told.in_time(told.in_time(y).contiguous())
    return [y.clone(), *(part.clone() for part in finals), tape]


@recurrent_kept.register_fake
def _fake_kept(x: Tensor, *rest: Any) -> list[Tensor]:
    return [*_fake_forward(x, *rest), x.new_empty(1, dtype=torch.int64)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    x, h, c, weights, *ctx.form = inputs
    ctx.states = _Form(*ctx.form).states
    tape = output[-1] if len(output) == 2 + ctx.states else None
    ctx.save_for_backward(tape, x, h, c, *weights)


def _backward(ctx: Any, grads: Sequence[Tensor]) -> tuple[Any, ...]:
    tape, x, h, c, *weights = ctx.saved_tensors
    grads = grads[: 1 + ctx.states]
    wants_x, wants_h, wants_c, wants_weights, *_ = ctx.needs_input_grad
    wanted = [wants_x, wants_h, wants_c, *wants_weights]
    if torch.is_grad_enabled():  # a gradient that will itself be differentiated
        outputs = _stock((x, h, c, *weights), _Form(*ctx.form))
        found = _differentiate(grads, (x, h, c, *weights), outputs, wanted, create_graph=True)
    else:
        found = recurrent_backward(grads, tape, x, h, c, weights, *ctx.form, wanted)
    each = iter(found)
    gradients = [next(each) if is_wanted else None for is_wanted in wanted]
    return *gradients[:3], gradients[3:], *(None for _ in ctx.form)


recurrent.register_autograd(_backward, setup_context=_save)
recurrent_kept.register_autograd(_backward, setup_context=_save)


@custom_op(
    "grainshift::recurrent_backward",
    mutates_args=(),
    schema=f"(Tensor[] grads, Tensor? tape, {_ARGUMENTS}, bool[] wanted) -> Tensor[]",
)
def recurrent_backward(
    grads: Sequence[Tensor],
    tape: Tensor | None,
    x: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    weights: Sequence[Tensor],
    *form_and_wanted: Any,
) -> list[Tensor]:
    """The gradients that are wanted, in order: from the tape, or else by running forward again.

    Compiled kernels belong here and in `recurrent_kept`, to be asked of whoever answers for `site`.
    """
    *form, wanted = form_and_wanted
    kept = getattr(tape, "grainshift", None)
    with _within_autograd():
        inputs = _leaves((x, h, c, *weights)) if kept is None else kept[0]
        outputs = _stock(inputs, _Form(*form)) if kept is None else kept[1]
        found = _differentiate(grads, inputs, outputs, wanted, retain_graph=True)
    return list(_apart([part.contiguous() for part in found], grads))


@recurrent_backward.register_fake
def _fake_backward(grads: Sequence[Tensor], tape: Any, *rest: Any) -> list[Tensor]:
    x, h, c, weights, *_, wanted = rest
    pairs = zip((x, h, c, *weights), wanted, strict=True)
    return [part.new_empty(part.shape) for part, is_wanted in pairs if is_wanted]


@contextmanager
def _within_autograd() -> Iterator[None]:
    """An operator runs below autograd; here it differentiates."""
    left_out = _C._dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD:
        left_out = left_out.remove(key)
    included = _C._dispatch_tls_local_include_set()
    with _C._ForceDispatchKeyGuard(included, left_out), torch.enable_grad():
        yield


def _leaves(inputs: Sequence[Tensor | None]) -> list[Any]:
    return [None if part is None else part.detach().requires_grad_() for part in inputs]


def _differentiate(
    grads: Sequence[Tensor],
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    wanted: Sequence[bool],
    **options: bool,
) -> Sequence[Tensor]:
    leaves = [part for part, is_wanted in zip(inputs, wanted, strict=True) if is_wanted]
    return torch.autograd.grad(
        outputs,
        leaves,  # type: ignore[arg-type]
        grads,
        materialize_grads=True,
        **options,
    )
