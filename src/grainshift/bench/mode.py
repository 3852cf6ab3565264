"""What one call of a model is: an inference, a step of a stream, or a training step.

Knows no peer and no clock.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

__all__ = ["Mode", "first_answer", "plain", "surroundings"]

_STREAM_CALLS = 3  # a peer that loses its state is found out by the third answer


class Mode(StrEnum):
    """How a workload's model is called.

    CALL: every call has the same inputs. STREAM: `model(x, state) -> (y, state)`, and each call
    gets the state that the last one gave. TRAIN: forward and backward, the gradients set anew.
    """

    CALL = "call"
    STREAM = "stream"
    TRAIN = "train"


def surroundings(mode: Mode) -> AbstractContextManager[None]:
    """What a user enters once, around all the calls: it costs as much as a short one."""
    return nullcontext() if mode is Mode.TRAIN else torch.inference_mode()


def plain(model: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> Callable[[], Any]:
    """One call as a user of PyTorch writes it, inside its surroundings."""
    match mode:
        case Mode.CALL:
            return lambda: model(*inputs)
        case Mode.STREAM:
            return _stream(model, *inputs)
        case Mode.TRAIN:
            return _train(model, inputs)


def first_answer(call: Callable[[], Any], mode: Mode) -> Any:
    """The answer by which two ways to make the same calls are compared."""
    for _ in range(_STREAM_CALLS - 1 if mode is Mode.STREAM else 0):
        call()
    return call()


def _stream(model: nn.Module, x: Tensor, state: Any) -> Callable[[], Any]:
    def call() -> Any:
        nonlocal state
        y, state = model(x, state)
        return y, state

    return call


def _train(model: nn.Module, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """One training step without its optimizer; the answer is the output and all gradients."""
    seeds: list[Tensor] = []

    def call() -> Any:
        model.zero_grad(set_to_none=True)
        y = pytree.tree_leaves(model(*inputs))[0]
        if not seeds:
            torch.manual_seed(1)
            seeds.append(torch.randn_like(y))
        y.backward(seeds[0])
        return y.detach(), [weight.grad for weight in model.parameters()]

    return call
