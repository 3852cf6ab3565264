"""Choices and states as numbers that a network or a table can address. Learns nothing."""

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice, Exactness

__all__ = ["CHOICE_WIDTH", "describe", "key", "squash"]

_NAMES, _NUMBERS, _TEXTS = 12, 4, 14
CHOICE_WIDTH = _NAMES + _NUMBERS + _TEXTS + 2
_GIANT = 1e30


def squash(state: tuple[float, ...], width: int) -> NDArray[np.float32]:
    """A state as `width` numbers of like size: arcsinh, so that ratios and bytes both fit.

    What is not finite comes out as not a number.
    """
    if len(state) > width:
        raise ValueError(f"a state of {len(state)} numbers is too long; give at most {width}")
    given = np.array(state, dtype=np.float64)
    squashed = np.zeros(width, dtype=np.float32)
    squashed[: len(state)] = np.arcsinh(
        np.where(np.isfinite(given), np.clip(given, -_GIANT, _GIANT), np.nan)
    )
    return squashed


@lru_cache(maxsize=4096)
def key(*words: object) -> int:
    """A number for a tuple of words, the same in every process."""
    digest = blake2b("\x1f".join(map(str, words)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


@lru_cache(maxsize=4096)
def describe(choice: Choice) -> NDArray[np.float32]:
    """A Choice as numbers: its name hashed to a direction, its arguments on a log scale.

    Nearby arguments come out near, which is what lets a network carry over from `unrolled(8)` to
    `unrolled(16)`; words among the arguments are hashed with their place.
    """
    names, numbers, texts = _scatter(choice.name, _NAMES), np.zeros(_NUMBERS), np.zeros(_TEXTS)
    for place, argument in enumerate(choice.args):
        if isinstance(argument, str):
            texts += _scatter(f"{place}={argument}", _TEXTS)
        else:
            numbers[place % _NUMBERS] += np.arcsinh(np.nan_to_num(float(argument))) / 2.0
    looser = [choice.exactness is kind for kind in (Exactness.ROUNDING, Exactness.LOWER)]
    features = np.concatenate([names, numbers, texts, looser]).astype(np.float32)
    features.flags.writeable = False  # it is shared by every caller through the cache
    return features


def _scatter(word: str, width: int) -> NDArray[np.float64]:
    """A direction of its own for each word, the same in every process."""
    digest = np.frombuffer(blake2b(word.encode(), digest_size=width).digest(), dtype=np.uint8)
    return digest / 127.5 - 1.0
