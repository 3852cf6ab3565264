"""A Slot on a simulated clock, with Choices whose seconds and answers are known."""

from collections.abc import Callable
from typing import Any

import torch

from grainshift.core.site import Site, Tempo
from grainshift.runtime.slot import Sample, Slot

BUCKET = "b"
SITE = Site("family", "path", "print", Tempo.CALL)


class Clock:
    """Seconds that pass only where a Choice lets them."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def tick(self, seconds: float, answer: Any = None) -> Callable[..., Any]:
        """A Choice that takes this long and answers so, or with what it is given."""

        def run(*args: Any) -> Any:
            self.now_s += seconds
            return answer if answer is not None else args[0] + 0.0

        return run


def broken(fault: BaseException) -> Callable[..., Any]:
    """A Choice that raises."""

    def run(*args: Any) -> Any:
        raise fault

    return run


def make(clock: Clock, *extra_s: float, baseline_s: float = 1.0) -> Slot:
    """A Slot with an opened bucket, a baseline, and further Choices that are ready."""
    slot = Slot(SITE, clock.tick(baseline_s), clock)
    slot.call(BUCKET, 1.0, torch.zeros(1))
    slot.drain()
    slot.opened.clear()
    for number, seconds in enumerate(extra_s, 1):
        slot.put(BUCKET, number, clock.tick(seconds))
    return slot


def only(samples: list[Sample]) -> Sample:
    (sample,) = samples
    return sample
