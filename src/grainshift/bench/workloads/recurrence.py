"""Recurrent layers at the sizes that the family is measured at. Knows no peer and no clock."""

from typing import Any

from grainshift.bench.contender import Workload


def layer(
    kind: str, hidden: int, batch: int, steps: int, layers: int = 1, directions: int = 1
) -> tuple[Any, tuple[Any, ...]]:
    """One layer of PyTorch's, by its word there, and a sequence of random inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    kinds = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
    model = kinds[kind](hidden, hidden, num_layers=layers, bidirectional=directions == 2)
    return model, (torch.randn(steps, batch, hidden),)


def _workload(kind: str, hidden: int, batch: int, steps: int, **more: int) -> Workload:
    sizes = {"kind": kind, "hidden": hidden, "batch": batch, "steps": steps, **more}
    words = [kind.lower(), str(hidden), f"b{batch}", f"t{steps}"]
    words += [f"{name}{count}" for name, count in more.items()]
    return Workload("-".join(words), __name__, "layer", sizes)


WORKLOADS = (
    _workload("LSTM", 128, batch=1, steps=100),
    _workload("LSTM", 256, batch=1, steps=128),
    _workload("LSTM", 512, batch=1, steps=1),
    _workload("LSTM", 512, batch=1, steps=64),
    _workload("LSTM", 512, batch=8, steps=64),
    _workload("LSTM", 1024, batch=1, steps=32),
    _workload("LSTM", 512, batch=16, steps=64, layers=2),
    _workload("GRU", 128, batch=1, steps=100),
    _workload("GRU", 256, batch=1, steps=100),
    _workload("GRU", 512, batch=8, steps=100),
    _workload("GRU", 256, batch=4, steps=64, directions=2),
    _workload("GRU", 1024, batch=4, steps=32),
    _workload("RNN", 512, batch=8, steps=64),
)
