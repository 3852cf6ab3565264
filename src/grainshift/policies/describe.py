"""Choices and states as numbers that a network or a table can address. Learns nothing."""

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from grainshift.core.choice import Choice, Exactness

__all__ = ["CHOICE_WIDTH", "describe", "key", "squash"]

_NAMES, _NUMBERS, _TEXTS = 12, 4, 14
_OCTAVES = (16.0, 8.0)  # the periods of the waves on the first number
CHOICE_WIDTH = _NAMES + _NUMBERS + 2 * len(_OCTAVES) + _TEXTS + 2
_ORDER = 0.25  # how much of a word's direction is its place
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
    `unrolled(16)`; slow waves on the first one let it single out a number in the middle. A word
    among the arguments has one direction wherever it stands, so that `solo` is the same of every
    profile, and a small one of its place.
    """
    names, numbers, texts = _scatter(choice.name, _NAMES), np.zeros(_NUMBERS), np.zeros(_TEXTS)
    for place, argument in enumerate(choice.args):
        if isinstance(argument, str):
            texts += _scatter(argument, _TEXTS) + _ORDER * _scatter(f"{place}={argument}", _TEXTS)
        else:
            numbers[place % _NUMBERS] += np.arcsinh(np.nan_to_num(float(argument))) / 2.0
    looser = np.array([choice.exactness is kind for kind in (Exactness.ROUNDING, Exactness.LOWER)])
    parts = [names, numbers, _waves(numbers[0]), texts, looser]
    features = np.concatenate(parts).astype(np.float32)
    features.flags.writeable = False  # it is shared by every caller through the cache
    return features


def _waves(number: float) -> NDArray[np.float64]:
    """Where a number on the log scale stands in each period; all nought where there is none."""
    if number == 0.0:
        return np.zeros(2 * len(_OCTAVES))
    turns = 2.0 * np.pi * (2.0 * number / np.log(2.0)) / np.array(_OCTAVES)
    return np.concatenate([np.sin(turns), np.cos(turns)])


def _scatter(word: str, width: int) -> NDArray[np.float64]:
    """A direction of its own for each word, the same in every process."""
    digest = np.frombuffer(blake2b(word.encode(), digest_size=width).digest(), dtype=np.uint8)
    return digest / 127.5 - 1.0
