"""Measures the stock and the tuned model side by side, block by block. Knows nothing of tuning.

Each block gives both their turn, in an order drawn anew, and every turn begins with one call
beside the count, so that neither finds the caches full of the other's weights.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import fmean
from typing import Any

import torch

from grainshift.bench.measure import Ratio, Timings, ratio
from grainshift.runtime.compare import relative_error

TURN_S = 0.01
LEAST_BLOCKS = 5
_MOST_CALLS = 8
_EXTRA_TURNS = 2.0  # the tuned model runs on for so many turns of the stock model's, to explore


@dataclass(frozen=True, slots=True)
class Block:
    """Seconds of each call: the two turns, and all calls of either model, the turns included."""

    stock_s: tuple[float, ...]
    tuned_s: tuple[float, ...]
    all_stock_s: tuple[float, ...]
    all_tuned_s: tuple[float, ...]
    error_ratio: float


@dataclass(frozen=True, slots=True)
class Contest:
    """Both models, and what they are called with in turn."""

    stock: Callable[[Any], Any]
    tuned: Callable[[Any], Any]
    inputs: Sequence[Any]
    clock: Callable[[], float]
    draw: random.Random

    def blocks(self) -> Iterator[Block]:
        """Blocks without end."""
        return map(self._block, cycle(self.inputs))

    def alone(self) -> Iterator[float]:
        """Seconds of each call of the stock model, without end and with nothing beside it."""
        return (self._call(self.stock, given)[1] for given in cycle(self.inputs))

    def _block(self, given: Any) -> Block:
        reference, first_s = self._call(self.stock, given)
        output, checked_s = self._call(self.tuned, given)
        calls = max(1, min(_MOST_CALLS, int(TURN_S / max(first_s, 1e-9))))
        extra_s = self._run_on(given, _EXTRA_TURNS * (1 + calls) * first_s)
        seen = {"stock": [first_s], "tuned": [checked_s, *extra_s]}
        for name in self.draw.sample(("stock", "tuned"), 2):
            model = self.stock if name == "stock" else self.tuned
            seen[name].extend(self._call(model, given)[1] for _ in range(1 + calls))
        stock_s, tuned_s = tuple(seen["stock"]), tuple(seen["tuned"])
        error_ratio = relative_error(output, reference)
        return Block(stock_s[-calls:], tuned_s[-calls:], stock_s, tuned_s, error_ratio)

    def _run_on(self, given: Any, seconds: float) -> list[float]:
        until_s, seen = self.clock() + seconds, []
        while self.clock() < until_s:
            seen.append(self._call(self.tuned, given)[1])
        return seen

    def _call(self, model: Callable[[Any], Any], given: Any) -> tuple[Any, float]:
        with torch.no_grad():
            begin_s = self.clock()
            output = model(given)
            return output, self.clock() - begin_s


def speedup(blocks: Sequence[Block]) -> Ratio | None:
    """Stock time over tuned time, of the medians of each block; None where there are too few."""
    if len(blocks) < LEAST_BLOCKS:
        return None
    return ratio(stock_timings(blocks), tuned_timings(blocks))


def stock_timings(blocks: Sequence[Block]) -> Timings:
    """The stock model's turns."""
    return Timings(tuple(block.stock_s for block in blocks))


def tuned_timings(blocks: Sequence[Block]) -> Timings:
    """The tuned model's turns."""
    return Timings(tuple(block.tuned_s for block in blocks))


def whole_speedup(blocks: Sequence[Block]) -> float | None:
    """Mean stock time over mean tuned time of all calls: exploring and every outlier included."""
    if not blocks:
        return None
    tuned_s = sum(fmean(block.all_tuned_s) for block in blocks)
    return sum(fmean(block.all_stock_s) for block in blocks) / tuned_s
