"""The demo's model: a small tagger of streamed speech, and the chunks it is called with."""

import torch
from torch import Tensor, nn

FEATURES, LSTM_SIZE, GRU_SIZE, TAGS = 80, 512, 256, 40
FRAMES = 16
WORDS = (
    f"a tagger of streamed speech: LSTM {FEATURES} to {LSTM_SIZE}, GRU {LSTM_SIZE} to {GRU_SIZE},"
    f" a linear layer to {TAGS} tags, called with {FRAMES} frames at a time"
)


class Tagger(nn.Module):
    """Frames of sound go in, a score for each tag and frame comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(FEATURES, LSTM_SIZE)
        self.decoder = nn.GRU(LSTM_SIZE, GRU_SIZE)
        self.tags = nn.Linear(GRU_SIZE, TAGS)

    def forward(self, frames_TBF: Tensor) -> Tensor:
        """Scores of each tag, frame by frame."""
        heard, _ = self.encoder(frames_TBF)
        understood, _ = self.decoder(heard)
        scores: Tensor = self.tags(understood)
        return scores


def make_model() -> Tagger:
    """The tagger with random weights, the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tagger().eval()


def make_chunks(count: int = 8) -> tuple[Tensor, ...]:
    """Chunks of random sound, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(FRAMES, 1, FEATURES, generator=generator) for _ in range(count))
