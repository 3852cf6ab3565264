"""The demo's model: a small tagger of streamed speech, and the chunks it is called with."""

import torch
from torch import Tensor, nn

FEATURES, SIZE, TAGS = 80, 512, 40
STREAMS, FRAMES = 4, 16
WORDS = (
    f"a tagger of streamed speech (an LSTM and a GRU of {SIZE} between two linear layers, called"
    f" with the next {FRAMES} frames of {STREAMS} streams)"
)


class Tagger(nn.Module):
    """Frames of sound go in, a score for each tag and frame comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(FEATURES, SIZE)
        self.encoder = nn.LSTM(SIZE, SIZE)
        self.decoder = nn.GRU(SIZE, SIZE)
        self.tags = nn.Linear(SIZE, TAGS)

    def forward(self, frames_TBF: Tensor) -> Tensor:
        """Scores of each tag, frame by frame."""
        heard, _ = self.encoder(torch.relu(self.front(frames_TBF)))
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
    return tuple(torch.randn(FRAMES, STREAMS, FEATURES, generator=generator) for _ in range(count))
