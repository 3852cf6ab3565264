"""Small models for the tests of the public face, and ways to look inside what tunes them."""

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from grainshift.api.session import Session, session_of
from grainshift.core.choice import Choice
from grainshift.core.forecast import Limits
from grainshift.families.recurrence import Recurrence
from grainshift.runtime.slot import Slot


class Speaker(nn.Module):
    """An embedding, an LSTM, a GRU used twice, and a head; with a signature of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(24, 24, batch_first=True)
        self.norm = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(24, 5)

    def forward(self, words: Tensor, *, scale: float = 1.0) -> dict[str, Tensor]:
        x, _ = self.lstm(self.embed(words))
        x, state = self.gru(x)
        x, state = self.gru(x, state)
        x = self.drop(self.norm(x[:, -1]))
        return {"logits": scale * self.head(x), "state": state}


def speaker(seed: int = 0) -> Speaker:
    torch.manual_seed(seed)
    return Speaker().eval()


def words(seed: int = 1, batch: int = 2, steps: int = 20) -> Tensor:
    return torch.randint(30, (batch, steps), generator=torch.Generator().manual_seed(seed))


def slots(model: nn.Module) -> dict[str, Slot]:
    """The Slot of each Site of a tuned model."""
    places = session_of(model).driver._places
    return {key: place.slot for key, place in places.items()}


def force(model: nn.Module, bucket: str, number: int) -> dict[str, Choice]:
    """Make the Choice of that number live wherever the bucket is open; which Choices those are."""
    session, family = session_of(model), Recurrence()
    forced = {}
    for key, place in session.driver._places.items():
        if bucket in place.slot._lanes:
            choice = family.offer(place.site, bucket, Limits())[number]
            run = family.build(model, place.site, bucket, choice, "").run
            place.slot.put(bucket, number, run)
            place.slot.swap(bucket, number)
            forced[key] = choice
    return forced


def wait_until(what: Callable[[], Any], patience_s: float = 60.0) -> Any:
    until_s = time.monotonic() + patience_s
    while not (answer := what()):
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.005)
    return answer


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "grainshift" in thread.name]


def rest(session: Session) -> None:
    """Stop the session's own thread, so that only the test looks after it."""
    session._pulse.stop()
