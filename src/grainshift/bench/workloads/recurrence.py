"""Recurrent layers and models at the sizes that the family is measured at.

The first word of a name says what it belongs to. Knows no peer and no clock.
"""

from typing import Any

from grainshift.bench.contender import Workload
from grainshift.bench.mode import Mode

_MODELS = "grainshift.bench.workloads.recurrent_models"
_SHORT = {"batch": "b", "steps": "t", "layers": "layers", "directions": "directions"}


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


def streaming_layer(
    kind: str, hidden: int, batch: int, layers: int = 1
) -> tuple[Any, tuple[Any, ...]]:
    """One layer, the input of one step, and its state."""
    import torch

    model, (x_TBI,) = layer(kind, hidden, batch, 1, layers)
    zeros = torch.zeros(layers, batch, hidden)
    return model, (x_TBI, (zeros, zeros.clone()) if kind == "LSTM" else zeros)


def _layer(group: str, kind: str, hidden: int, batch: int, steps: int, **more: int) -> Workload:
    sizes = {"kind": kind, "hidden": hidden, "batch": batch, "steps": steps, **more}
    mode = Mode.TRAIN if group == "train" else Mode.CALL
    return Workload(_name(group, kind.lower(), sizes), __name__, "layer", sizes, mode)


def _stream(kind: str, hidden: int, batch: int, **more: int) -> Workload:
    sizes = {"kind": kind, "hidden": hidden, "batch": batch, **more}
    name = _name("stream", kind.lower(), sizes)
    return Workload(name, __name__, "streaming_layer", sizes, Mode.STREAM)


def _model(group: str, word: str, function: str, **sizes: Any) -> Workload:
    mode = Mode.STREAM if group == "stream" else Mode.CALL
    return Workload(_name(group, word, sizes), _MODELS, function, sizes, mode)


def _name(group: str, word: str, sizes: dict[str, Any]) -> str:
    words = [group, word, str(sizes["hidden"])]
    words += [f"{short}{sizes[name]}" for name, short in _SHORT.items() if name in sizes]
    return "-".join(words)


SEQUENCES = (
    _layer("fp32", "LSTM", 64, batch=1, steps=16),
    _layer("fp32", "LSTM", 128, batch=1, steps=100),
    _layer("fp32", "LSTM", 128, batch=1, steps=1024),
    _layer("fp32", "LSTM", 256, batch=1, steps=128),
    _layer("fp32", "LSTM", 512, batch=1, steps=64),
    _layer("fp32", "LSTM", 1024, batch=1, steps=32),
    _layer("fp32", "LSTM", 256, batch=1, steps=128, directions=2),
    _layer("fp32", "LSTM", 256, batch=4, steps=64),
    _layer("fp32", "LSTM", 256, batch=4, steps=100, layers=2, directions=2),
    _layer("fp32", "LSTM", 128, batch=16, steps=128, layers=3),
    _layer("fp32", "LSTM", 512, batch=16, steps=64, layers=2),
    _layer("fp32", "LSTM", 64, batch=64, steps=256),
    _layer("fp32", "LSTM", 256, batch=64, steps=32),
    _layer("fp32", "GRU", 64, batch=1, steps=32),
    _layer("fp32", "GRU", 128, batch=1, steps=200),
    _layer("fp32", "GRU", 256, batch=1, steps=256),
    _layer("fp32", "GRU", 512, batch=1, steps=150),
    _layer("fp32", "GRU", 1024, batch=1, steps=32),
    _layer("fp32", "GRU", 128, batch=1, steps=256, layers=2),
    _layer("fp32", "GRU", 256, batch=4, steps=150, directions=2),
    _layer("fp32", "GRU", 64, batch=16, steps=1024),
    _layer("fp32", "GRU", 512, batch=16, steps=32),
    _layer("fp32", "GRU", 256, batch=64, steps=150),
    _layer("fp32", "RNN", 64, batch=1, steps=64),
    _layer("fp32", "RNN", 256, batch=1, steps=256),
    _layer("fp32", "RNN", 1024, batch=4, steps=32),
    _layer("fp32", "RNN", 256, batch=4, steps=150, layers=2, directions=2),
    _layer("fp32", "RNN", 128, batch=16, steps=512),
    _layer("fp32", "RNN", 512, batch=64, steps=16),
    _model("fp32", "silero", "voice_sequence", hidden=128, batch=1),
    _model(
        "fp32", "deepspeech_gru", "speech_stack", kind="GRU", hidden=256, batch=1, frames=200,
        directions=2,
    ),
    _model("fp32", "deepspeech_lstm", "speech_stack", kind="LSTM", hidden=512, batch=4, frames=100),
    _model("fp32", "deepar", "forecaster", hidden=40, batch=64, steps=96, layers=2),
    _model("fp32", "deepar", "forecaster", hidden=64, batch=64, steps=168, layers=3),
    _model("fp32", "wavernn", "vocoder_sequence", hidden=896, batch=1, steps=150),
    _model("fp32", "seq2seq", "decoder_sequence", hidden=256, batch=1, steps=20, layers=2),
)  # fmt: skip

STREAMS = (
    _stream("LSTM", 64, batch=1),
    _stream("LSTM", 256, batch=1),
    _stream("LSTM", 256, batch=4, layers=2),
    _stream("LSTM", 1024, batch=1),
    _stream("GRU", 128, batch=1),
    _stream("GRU", 512, batch=1, layers=2),
    _stream("GRU", 512, batch=4),
    _stream("RNN", 256, batch=1),
    _stream("RNN", 1024, batch=4),
    _model("stream", "silero", "voice_detector", hidden=128, batch=1),
    _model("stream", "wavernn", "vocoder", hidden=896, batch=1),
    _model("stream", "seq2seq", "decoder", hidden=512, batch=1, steps=1, layers=2),
)

BF16 = (
    _layer("bf16", "LSTM", 256, batch=1, steps=128),
    _layer("bf16", "LSTM", 512, batch=1, steps=64),
    _layer("bf16", "LSTM", 1024, batch=1, steps=32),
    _layer("bf16", "GRU", 256, batch=1, steps=200),
    _layer("bf16", "GRU", 512, batch=1, steps=150),
    _layer("bf16", "GRU", 1024, batch=1, steps=64),
    _layer("bf16", "RNN", 1024, batch=1, steps=64),
)

TRAINING = (
    _layer("train", "LSTM", 128, batch=16, steps=64),
    _layer("train", "LSTM", 256, batch=4, steps=100),
    _layer("train", "LSTM", 256, batch=32, steps=32, layers=2),
    _layer("train", "GRU", 128, batch=16, steps=64),
    _layer("train", "GRU", 256, batch=4, steps=100),
    _layer("train", "GRU", 256, batch=32, steps=32, layers=2),
    _layer("train", "RNN", 128, batch=16, steps=128),
    _layer("train", "RNN", 256, batch=4, steps=64, directions=2),
)

CHOOSING = (
    _layer("choose", "LSTM", 64, batch=1, steps=64),
    _layer("choose", "LSTM", 256, batch=1, steps=64),
    _layer("choose", "LSTM", 128, batch=16, steps=64, layers=2),
    _layer("choose", "LSTM", 256, batch=4, steps=32, directions=2),
    _layer("choose", "LSTM", 64, batch=64, steps=64),
    _layer("choose", "GRU", 64, batch=1, steps=32),
    _layer("choose", "GRU", 128, batch=1, steps=128),
    _layer("choose", "GRU", 512, batch=1, steps=32),
    _layer("choose", "GRU", 128, batch=4, steps=128, layers=3),
    _layer("choose", "GRU", 256, batch=16, steps=32),
    _layer("choose", "RNN", 128, batch=1, steps=128),
    _layer("choose", "RNN", 512, batch=4, steps=32),
)

UNDER_LOAD = (
    _layer("load", "LSTM", 256, batch=1, steps=64),
    _layer("load", "GRU", 512, batch=1, steps=64),
    _layer("load", "GRU", 128, batch=16, steps=64),
)

SWITCHING = (
    _layer("switch", "LSTM", 64, batch=1, steps=512),
    _layer("switch", "GRU", 128, batch=1, steps=512),
    _layer("switch", "RNN", 128, batch=4, steps=512),
)

DECIDING = (
    _layer("decide", "LSTM", 128, batch=16, steps=1024),
    _layer("decide", "GRU", 256, batch=4, steps=1024),
)

WORKLOADS = (
    *SEQUENCES, *STREAMS, *BF16, *TRAINING, *CHOOSING, *UNDER_LOAD, *SWITCHING, *DECIDING
)  # fmt: skip

QUICK = frozenset(
    {
        *("fp32-lstm-128-b1-t100", "fp32-gru-256-b1-t256", "fp32-rnn-128-b16-t512"),
        *("fp32-silero-128-b1", "stream-lstm-256-b1", "stream-gru-512-b1-layers2"),
        *("bf16-gru-512-b1-t150", "train-lstm-256-b4-t100", "train-gru-128-b16-t64"),
        *("choose-lstm-256-b1-t64", "choose-gru-128-b1-t128", "load-gru-512-b1-t64"),
        *("switch-gru-128-b1-t512", "decide-gru-256-b4-t1024"),
    }
)
