"""A small network that scores (state, Choice) pairs, and its gradient. Knows no learner.

One network serves Sites with different offers, because a Choice is an input and not an output:
score(s, c) = w3 · relu(W2 · relu(Ws·s + Wc·c + b1) + b2) + b3.

It is NumPy throughout. torch multiplies even 4 rows by a team of OpenMP threads, one team for each
thread that calls it, which would stand in the way of the very model that is being tuned; products
as small as these stay in the thread that asks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice
from grainshift.policies.describe import CHOICE_WIDTH, describe

__all__ = [
    "USUAL_SIZES",
    "NetworkActor",
    "Scale",
    "Sizes",
    "cut",
    "first_weights",
    "gradient",
    "scores",
]

Floats = NDArray[np.float32]
Shapes = Sequence[tuple[int, ...]]
_LEAST_SPREAD = 0.25
_BROKEN = 1e9  # far above what squashed numbers can sum to


@dataclass(frozen=True, slots=True)
class Sizes:
    """How wide the network is."""

    state: int = 48
    hidden: int = 32

    @property
    def shapes(self) -> Shapes:
        """The shapes of the layers."""
        h = self.hidden
        return ((self.state, h), (CHOICE_WIDTH, h), (h,), (h, h), (h,), (h,), (1,))


USUAL_SIZES = Sizes()


def first_weights(shapes: Shapes, generator: np.random.Generator) -> Floats:
    """Fresh weights in one flat array; the last layer is zero, so that nothing is preferred."""
    parts = [
        generator.standard_normal(shape) * np.sqrt(2.0 / shape[0])
        if len(shape) == 2
        else np.zeros(shape)
        for shape in shapes
    ]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def cut(flat: Floats, shapes: Shapes) -> list[Floats]:
    """Views into flat weights, one for each shape."""
    layers, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        layers.append(flat[start:end].reshape(shape))
        start = end
    return layers


def scores(layers: Sequence[Floats], x_BS: Floats, c_BAC: Floats) -> Floats:
    """The score of each Choice in each state, [B, A]."""
    return _through(layers, x_BS, c_BAC)[2]


def gradient(layers: Sequence[Floats], x_BS: Floats, c_BAC: Floats, slopes_BA: Floats) -> Floats:
    """The gradient of a loss by the flat weights, from its slopes by the scores."""
    first, second, _ = _through(layers, x_BS, c_BAC)
    _, _, _, w2, _, w3, _ = layers
    into_second = slopes_BA[:, :, None] * w3 * (second > 0)
    into_first = (into_second @ w2.T) * (first > 0)
    parts = [
        x_BS.T @ into_first.sum(axis=1),
        (c_BAC.transpose(0, 2, 1) @ into_first).sum(axis=0),
        into_first.sum(axis=(0, 1)),
        (first.transpose(0, 2, 1) @ into_second).sum(axis=0),
        into_second.sum(axis=(0, 1)),
        (second * slopes_BA[:, :, None]).sum(axis=(0, 1)),
        slopes_BA.sum().reshape(1),
    ]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def _through(
    layers: Sequence[Floats], x_BS: Floats, c_BAC: Floats
) -> tuple[Floats, Floats, Floats]:
    ws, wc, b1, w2, b2, w3, b3 = layers
    first = np.maximum((x_BS @ ws)[:, None, :] + c_BAC @ wc + b1, 0.0)
    second = np.maximum(first @ w2 + b2, 0.0)
    return first, second, second @ w3 + b3


@final
class Scale:
    """Running mean and variance of squashed states, so that each number weighs alike."""

    def __init__(self, width: int) -> None:
        self.count = np.zeros(width, dtype=np.int64)
        self.mean = np.zeros(width, dtype=np.float64)
        self.squares = np.zeros(width, dtype=np.float64)

    def see(self, squashed: Floats) -> None:
        """Take one state into account (Welford); what is broken in it counts for nothing."""
        self.count += np.isfinite(squashed)
        delta = self.mend(squashed) - self.mean
        self.mean += delta / np.maximum(self.count, 1)
        self.squares += delta * (self.mend(squashed) - self.mean)

    def mend(self, squashed: Floats) -> Floats:
        """The state with the mean in place of what is not a number."""
        whole = np.where(np.isfinite(squashed), squashed, self.mean[: squashed.shape[-1]])
        return whole.astype(np.float32)

    def spread(self) -> NDArray[np.float64]:
        """Standard deviations, not below a floor: what never moved must not be blown up."""
        return np.maximum(np.sqrt(self.squares / np.maximum(self.count, 1)), _LEAST_SPREAD)

    def normal(self, squashed: Floats) -> Floats:
        """States with mean nought and spread one, as far as seen."""
        return ((self.mend(squashed) - self.mean) / self.spread()).astype(np.float32)

    @property
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All that was seen, under names of its own."""
        return {"seen": self.count, "mean": self.mean, "squares": self.squares}


@final
class NetworkActor:
    """A frozen scorer bound to some Choices: in microseconds, from many threads at once.

    Scaling and biases are folded into the weights, and what depends on the Choices alone is
    computed here once. Each call works in small arrays of its own, so threads share nothing.
    """

    def __init__(self, layers: Sequence[Floats], scale: Scale, choices: tuple[Choice, ...]) -> None:
        if not choices:
            raise ValueError("an actor needs at least one choice to pick from")
        ws, wc, b1, w2, b2, w3, _ = layers
        rows = ws / scale.spread()[:, None]
        offered = np.stack([describe(choice) for choice in choices]) @ wc + b1 - scale.mean @ rows
        one = np.ones((len(choices), 1))  # carries the second bias through the first layer
        padded = np.hstack([rows, np.zeros((len(rows), 1))]).astype(np.float32)
        self._rows = {width: padded[:width] for width in range(len(rows) + 1)}
        self._offered = np.hstack([offered, one]).astype(np.float32)
        self._second = np.vstack([w2, b2]).astype(np.float32)
        self._third = w3.astype(np.float32)
        self._mean = scale.mean.astype(np.float32)
        self._zero = np.zeros((), dtype=np.float32)
        self._least = np.array(-np.inf, dtype=np.float32)

    def pick(self, state: NDArray[np.float32], mask: NDArray[np.bool_]) -> int:
        """The number of the best allowed Choice; the first of equals."""
        x = np.arcsinh(state)
        if not x.dot(x) < _BROKEN:  # inf or not a number, rare: repaired off the fast path
            x = np.where(np.isfinite(x), x, self._mean[: x.size])
        first = self._offered + x.dot(self._rows[x.size])
        np.maximum(first, self._zero, out=first)
        second = first.dot(self._second)
        np.maximum(second, self._zero, out=second)
        arm = int(np.where(mask, second.dot(self._third), self._least).argmax())
        if mask[arm]:
            return arm
        raise ValueError("the mask allows no choice; allow the live one")
