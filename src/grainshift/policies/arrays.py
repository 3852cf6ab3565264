"""Taking learnt arrays back with care: everything is checked before anything is changed."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from grainshift.core.errors import NotTunable
from grainshift.core.policy import Arrays

__all__ = ["checked", "pour"]


def checked(
    arrays: Arrays, name: str, kind: type[np.generic], shape: tuple[int | None, ...]
) -> NDArray[np.generic]:
    """The array of that name, or NotTunable; None in `shape` stands for any length."""
    found = arrays.get(name)
    if found is None:
        raise NotTunable(f"the stored policy lacks the array {name!r}; train and save it anew")
    fits = found.ndim == len(shape) and all(
        want in (None, got) for want, got in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype != np.dtype(kind):
        raise NotTunable(
            f"the stored array {name!r} is {found.dtype}{list(found.shape)}, not"
            f" {np.dtype(kind)}{list(shape)}; it is from another policy or another setting"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise NotTunable(f"the stored array {name!r} holds numbers that are not finite")
    return found


def pour(arrays: Arrays, into: Mapping[str, NDArray[np.generic]]) -> None:
    """Copy stored arrays into those of a policy, all or none."""
    found = {
        name: checked(arrays, name, held.dtype.type, held.shape) for name, held in into.items()
    }
    for name, held in into.items():
        held[...] = found[name]
