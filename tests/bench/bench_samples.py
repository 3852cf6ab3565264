"""Small models and odd peers for the tests of contenders; imported in their processes."""

import os

import torch
from torch import Tensor, nn

from grainshift.bench.peer import Inputs, Run


def mlp(width: int = 16) -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU()), (torch.randn(4, width),)


def conv() -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers), (torch.randn(1, 3, 16, 16),)


def lstm() -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    return nn.LSTM(16, 16, batch_first=True), (torch.randn(1, 8, 16),)


def gru_stream() -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    return nn.GRU(16, 16), (torch.randn(1, 2, 16), torch.zeros(1, 2, 16))


def lstm_stream() -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    state = torch.randn(1, 2, 16), torch.randn(1, 2, 16)
    return nn.LSTM(16, 16), (torch.randn(1, 2, 16), state)


def forget(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Begins each call of a stream with the first state."""
    return lambda: model(*inputs)


def in_words(model: nn.Module) -> str:
    return f"a {type(model).__name__}"


def threads_as_output(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Agrees with eager only when PyTorch has as many threads as were asked for."""
    right = torch.get_num_threads() == threads == 1
    return lambda: model(*inputs) if right else _twice(model(*inputs))


def twice(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    return lambda: _twice(model(*inputs))


def refuse(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    raise TypeError("cannot take this graph\nand a long trace")


def die(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    os._exit(7)


def _twice(output: Tensor) -> Tensor:
    return 2 * output
