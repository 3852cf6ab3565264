"""Models around recurrent layers, of the shapes that people run. Knows no peer and no clock.

Weights and inputs are random; what counts is what they cost.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Built = tuple[nn.Module, tuple[Any, ...]]


class _VoiceDetector(nn.Module):
    """A convolutional front end and one LSTM, a chunk of audio at a time (like Silero VAD)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        widths = (1, 32, 64, hidden)
        self.front = nn.Sequential(
            *(
                part
                for into, out in pairwise(widths)
                for part in (nn.Conv1d(into, out, 5, stride=4, padding=2), nn.ReLU())
            )
        )
        self.rnn = nn.LSTM(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, audio: Tensor, state: Any) -> tuple[Tensor, Any]:
        features = self.front(audio).transpose(1, 2)
        y, state = self.rnn(features, state)
        return torch.sigmoid(self.out(y)), state


def voice_detector(hidden: int = 128, batch: int = 1, samples: int = 512) -> Built:
    """A voice detector, one chunk of 32 ms, and its state."""
    torch.manual_seed(0)
    state = (torch.zeros(1, batch, hidden), torch.zeros(1, batch, hidden))
    return _VoiceDetector(hidden), (torch.randn(batch, 1, samples), state)


class _Whole(nn.Module):
    """A model with a state, called without one: it begins each sequence anew."""

    def __init__(self, model: nn.Module, state: Any) -> None:
        super().__init__()
        self.model = model
        self.state = state

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.model(x, self.state)[0]
        return y


def voice_sequence(hidden: int = 128, batch: int = 1, samples: int = 16000) -> Built:
    """The same detector on a second of audio at once."""
    model, (audio, state) = voice_detector(hidden, batch, samples)
    return _Whole(model, state), (audio,)


class _SpeechStack(nn.Module):
    """Two convolutions, three recurrent layers, one linear layer (like DeepSpeech 2)."""

    def __init__(self, kind: str, hidden: int, directions: int) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(80, 256, 11, stride=2, padding=5),
            nn.Hardtanh(0.0, 20.0),
            nn.Conv1d(256, 256, 11, padding=5),
            nn.Hardtanh(0.0, 20.0),
        )
        self.rnn = getattr(nn, kind)(256, hidden, num_layers=3, bidirectional=directions == 2)
        self.out = nn.Linear(hidden * directions, 29)

    def forward(self, spectrum: Tensor) -> Tensor:
        features = self.front(spectrum).permute(2, 0, 1)
        letters: Tensor = self.out(self.rnn(features)[0])
        return letters


def speech_stack(kind: str, hidden: int, batch: int, frames: int, directions: int = 1) -> Built:
    """A speech recogniser on so many frames of 80 bands; its recurrent layers see half of them."""
    torch.manual_seed(0)
    return _SpeechStack(kind, hidden, directions), (torch.randn(batch, 80, frames),)


class _Forecaster(nn.Module):
    """Stacked LSTM layers with the head of a normal distribution (like DeepAR)."""

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(inputs, hidden, num_layers=layers, batch_first=True)
        self.mean = nn.Linear(hidden, 1)
        self.spread = nn.Linear(hidden, 1)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        y, _ = self.rnn(series)
        return self.mean(y), nn.functional.softplus(self.spread(y))


def forecaster(hidden: int, batch: int, steps: int, layers: int) -> Built:
    """A forecaster of many series at once, with 24 features a step."""
    torch.manual_seed(0)
    return _Forecaster(24, hidden, layers), (torch.randn(batch, steps, 24),)


class _Vocoder(nn.Module):
    """A GRU with two linear layers behind it, a sample at a time (like WaveRNN)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(hidden // 4, hidden)
        self.out = nn.Sequential(nn.Linear(hidden, 256), nn.ReLU(), nn.Linear(256, 256))

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.rnn(features, state)
        return self.out(y), state


def vocoder(hidden: int, batch: int = 1, steps: int = 1) -> Built:
    """A vocoder, the features of so many samples, and its state."""
    torch.manual_seed(0)
    return _Vocoder(hidden), (torch.randn(steps, batch, hidden // 4), torch.zeros(1, batch, hidden))


def vocoder_sequence(hidden: int, batch: int, steps: int) -> Built:
    """The same vocoder on samples that are known beforehand, as when it is evaluated."""
    model, (features, state) = vocoder(hidden, batch, steps)
    return _Whole(model, state), (features,)


class _Decoder(nn.Module):
    """A decoder that feeds each output back as its next input, and carries its state by hand."""

    def __init__(self, hidden: int, layers: int, steps: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(hidden, hidden, num_layers=layers)
        self.out = nn.Linear(hidden, hidden)
        self.steps = steps

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        letters = []
        for _ in range(self.steps):
            y, state = self.rnn(x, state)
            x = torch.tanh(self.out(y))
            letters.append(x)
        return torch.cat(letters), state


def decoder(hidden: int, batch: int, steps: int, layers: int = 1) -> Built:
    """A decoder of sequences, its first input, and the state that an encoder left."""
    torch.manual_seed(0)
    state = (torch.randn(layers, batch, hidden), torch.randn(layers, batch, hidden))
    return _Decoder(hidden, layers, steps), (torch.randn(1, batch, hidden), state)


def decoder_sequence(hidden: int, batch: int, steps: int, layers: int = 1) -> Built:
    """The same decoder on a whole sentence, always after the same encoder's state."""
    model, (x, state) = decoder(hidden, batch, steps, layers)
    return _Whole(model, state), (x,)
