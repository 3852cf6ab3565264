"""A ring of past lessons in preallocated arrays. Knows nothing of what is learnt from them."""

from collections.abc import Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.errors import NotTunable
from grainshift.policies.arrays import checked
from grainshift.policies.describe import CHOICE_WIDTH

__all__ = ["Ring"]

Row = Mapping[str, NDArray[np.generic] | float | int]
_OFFERED = ("choices", "mask", "bias")  # one entry for each Choice of a Query


@final
class Ring:
    """Holds the last `capacity` rows; widens by doubling when a Query offers more Choices."""

    def __init__(self, capacity: int, state_width: int, offered: int = 16) -> None:
        self.capacity = capacity
        self.written = np.zeros(1, dtype=np.int64)
        shapes: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
            "state": ((state_width,), np.float32),
            "next": ((state_width,), np.float32),
            "chosen": ((CHOICE_WIDTH,), np.float32),
            "choices": ((offered, CHOICE_WIDTH), np.float32),
            "mask": ((offered,), np.bool_),
            "bias": ((offered,), np.float32),
            "arm": ((), np.int64),
            "reward": ((), np.float32),
            "ends": ((), np.bool_),
            "group": ((), np.uint64),
        }
        self._rows = {
            name: np.zeros((capacity, *shape), dtype=kind) for name, (shape, kind) in shapes.items()
        }

    def __len__(self) -> int:
        return min(int(self.written[0]), self.capacity)

    def add(self, row: Row) -> None:
        """Write one row over the oldest; what a row leaves out is nought."""
        place = int(self.written[0]) % self.capacity
        for name, value in row.items():
            if name in _OFFERED and len(np.atleast_1d(np.asarray(value))) > self.offered:
                self._widen(len(np.atleast_1d(np.asarray(value))))
        for name, held in self._rows.items():
            held[place] = 0
            if name in _OFFERED and name in row:
                values = np.asarray(row[name])
                held[place, : len(values)] = values
            elif name in row:
                held[place] = row[name]
        self.written += 1

    def take(self, places: NDArray[np.int64] | slice) -> dict[str, NDArray[np.generic]]:
        """The rows at these places."""
        return {name: held[places] for name, held in self._rows.items()}

    def clear(self) -> None:
        """Forget every row."""
        self.written[0] = 0

    @property
    def offered(self) -> int:
        """How many Choices of a Query fit."""
        return int(self._rows["mask"].shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """What is held, without the empty rest."""
        rows = {f"ring_{name}": held[: len(self)] for name, held in self._rows.items()}
        return {"ring_written": self.written, **rows}

    def read(self, arrays: Mapping[str, NDArray[np.generic]]) -> "Ring":
        """A ring like this one that holds what `arrays` gave."""
        written = checked(arrays, "ring_written", np.int64, (1,))
        held = min(max(int(written[0]), 0), self.capacity)
        mask = checked(arrays, "ring_mask", np.bool_, (held, None))
        ring = Ring(self.capacity, self._rows["state"].shape[1], mask.shape[1])
        for name, empty in ring._rows.items():
            found = checked(arrays, f"ring_{name}", empty.dtype.type, (held, *empty.shape[1:]))
            empty[:held] = found
        if not (ring._rows["arm"] >= 0).all() or not (ring._rows["arm"] < ring.offered).all():
            raise NotTunable("the stored array 'ring_arm' holds numbers of no choice; save it anew")
        ring.written[:] = written
        return ring

    def _widen(self, least: int) -> None:
        more = max(2 * self.offered, least) - self.offered
        for name in _OFFERED:
            held = self._rows[name]
            beside = [(0, 0), (0, more)] + [(0, 0)] * (held.ndim - 2)
            self._rows[name] = np.pad(held, beside)
