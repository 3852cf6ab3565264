"""Doors and comparisons for the recurrence tests; a Door stands where a Slot will."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from grainshift.core.choice import Choice
from grainshift.core.forecast import Limits
from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import STOCK

KINDS = (nn.LSTM, nn.GRU, nn.RNN)
BUCKET = "B4.T64"


class Door:
    """Runs, for each segment, a runner that `draw` picks, and remembers the segments."""

    def __init__(self, runs: Sequence[Callable[..., Any]], draw: random.Random | None = None):
        self.runs, self.draw = list(runs), draw
        self.seen: list[tuple[str, float]] = []
        self.trains: Callable[..., Any] = len

    def call(self, bucket: str, work: float, /, *args: Any) -> Any:
        self.seen.append((bucket, work))
        run = self.draw.choice(self.runs) if self.draw else self.runs[-1]
        return run(*args)

    def is_stock(self, bucket: str) -> bool:
        return True

    def train(self, bucket: str, work: float, /, *args: Any) -> Any:
        self.seen.append((bucket, work))
        return self.trains(*args)


def choices(family: Recurrence, model: nn.Module, bucket: str = BUCKET) -> tuple[Choice, ...]:
    (site,), _ = family.find(model)
    return family.offer(site, bucket, Limits())


def runner(family: Recurrence, model: nn.Module, choice: Choice) -> Callable[..., Any]:
    (site,), _ = family.find(model)
    return family.build(model, site, BUCKET, choice, "").run


def tuned(
    model: nn.Module,
    *picked: Choice,
    family: Recurrence | None = None,
    draw: random.Random | None = None,
) -> tuple[Door, Callable[[], None]]:
    """Install a Door on the model's one Site: it runs the picked Choices, or all offered."""
    family = family or Recurrence()
    (site,), _ = family.find(model)
    offered = picked or family.offer(site, BUCKET, Limits())
    door = Door([family.build(model, site, BUCKET, c, "").run for c in offered], draw)
    door.trains = family.build(model, site, BUCKET, STOCK, "").run
    return door, family.install(model, site, door)


def flat(answer: Any) -> list[Tensor]:
    if isinstance(answer, Tensor):
        return [answer]
    return [tensor for part in answer for tensor in flat(part)]


def error_ratio(got: Any, wanted: Any) -> float:
    """Largest difference over the largest value, over all tensors of an answer.

    Values below 0.1 come of closed gates or of terms that cancel; there stock itself was seen to
    be off from fp64 by 9e-5 of the value, so they count as 0.1.
    """
    assert [t.shape for t in flat(got)] == [t.shape for t in flat(wanted)]
    assert [t.dtype for t in flat(got)] == [t.dtype for t in flat(wanted)]
    pairs = zip(flat(got), flat(wanted), strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(0.1)) for a, b in pairs)


def same_bits(got: Any, wanted: Any) -> bool:
    return all(map(torch.equal, flat(got), flat(wanted))) and len(flat(got)) == len(flat(wanted))
