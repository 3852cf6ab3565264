"""A small network that scores (state, Choice) pairs, in NumPy or torch alike. Knows no learner.

One network serves Sites with different offers, because a Choice is an input and not an output:
score(s, c) = w3 · relu(W2 · relu(Ws·s + Wc·c + b1) + b2) + b3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

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
    "scores",
    "values",
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
    def scorer(self) -> Shapes:
        """The shapes of the layers that score a pair."""
        h = self.hidden
        return ((self.state, h), (CHOICE_WIDTH, h), (h,), (h, h), (h,), (h,), (1,))

    @property
    def valuer(self) -> Shapes:
        """The shapes of the layers that value a state."""
        h = self.hidden
        return ((self.state, h), (h,), (h, h), (h,), (h,), (1,))


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


def cut(flat: Any, shapes: Shapes) -> list[Any]:
    """Views into flat weights, one for each shape, of an array or a tensor."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes]).tolist()
    starts = [0, *ends[:-1]]
    return [
        flat[start:end].reshape(shape)
        for start, end, shape in zip(starts, ends, shapes, strict=True)
    ]


def scores(layers: Sequence[Any], x_BS: Any, c_BAC: Any) -> Any:
    """The score of each Choice in each state, [B, A]."""
    ws, wc, b1, w2, b2, w3, b3 = layers
    first = ((x_BS @ ws)[:, None, :] + c_BAC @ wc + b1).clip(min=0)
    return (first @ w2 + b2).clip(min=0) @ w3 + b3


def values(layers: Sequence[Any], x_BS: Any) -> Any:
    """The value of each state, [B]."""
    w1, b1, w2, b2, w3, b3 = layers
    return ((x_BS @ w1 + b1).clip(min=0) @ w2 + b2).clip(min=0) @ w3 + b3


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
