"""What the peers that read an exported model share. Knows no engine."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


class Flat(nn.Module):
    """A streaming model with its state in plain sight: `(x, *state) -> (y, *state)`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Any, ...]:
        """One call, all tensors in one row."""
        return tuple(pytree.tree_leaves(self.model(x, state if len(state) > 1 else state[0])))


def onnx_bytes(model: nn.Module, inputs: tuple[Any, ...]) -> bytes:
    """The model as ONNX, by the exporter that keeps recurrent layers as the one operator they are.

    The newer exporter takes nn.RNN apart into products, and is slower at all of them.
    """
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    form = {"dynamo": False} if recurrent else {"dynamo": True, "external_data": False}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        torch.onnx.export(model, inputs, file, verbose=False, **form)  # type: ignore[arg-type]
        return file.read_bytes()
