"""The clock now over its highest: told by cpufreq, or else modelled from a fixed piece of work.

Virtual machines are not told their clock. The time of a chain of work that touches no memory goes
as the inverse of the clock (and of what a sibling thread takes); its best time so far stands for
the highest clock.
"""

import hashlib
from collections.abc import Callable
from typing import final

from grainshift.core.conditions import Figure, Source
from grainshift.machine.files import OpenFile, first_found, read_number
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment, share

_BLOCK = bytes(4096)
_TRIES = 3
_FIRST_TRIES = 50


def open_clock(ground: Ground) -> Gauge:
    """The gauge of the clock of the first usable core."""
    folder = ground.sys / f"devices/system/cpu/cpu{ground.machine.cores[0]}/cpufreq"
    highest = read_number(folder / "cpuinfo_max_freq")
    file = first_found((folder / "scaling_cur_freq",))
    if highest and file:
        return _Told(file, highest)
    return _Paced(ground.clock)


@final
class _Told:
    def __init__(self, file: OpenFile, highest_khz: int) -> None:
        self._file, self._highest_khz = file, highest_khz

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        return (Figure("clock_ratio", share(int(self._file.read()) / self._highest_khz)),)

    def close(self) -> None:
        self._file.close()


@final
class _Paced:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._best_s = self._fastest_s(_FIRST_TRIES) or float("inf")

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        now_s = self._fastest_s(_TRIES)
        if now_s <= 0.0:
            raise ValueError("a clock that stands still")
        self._best_s = min(self._best_s, now_s)
        return (Figure("clock_ratio", share(self._best_s / now_s), Source.MODELLED),)

    def close(self) -> None:
        pass

    def _fastest_s(self, tries: int) -> float:
        """The shortest of several, so that neither cold caches nor a switch count."""
        fastest_s = float("inf")
        for _ in range(tries):
            start_s = self._clock()
            hashlib.sha256(_BLOCK).digest()
            fastest_s = min(fastest_s, self._clock() - start_s)
        return fastest_s
