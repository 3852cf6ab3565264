"""How long tasks waited, by the kernel's pressure stall information; our group's where it is."""

from typing import final

from grainshift.core.conditions import Figure
from grainshift.machine.files import OpenFile, first_found
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment, Rise, share


def open_cpu_pressure(ground: Ground) -> Gauge | None:
    """The gauge of waiting for a core."""
    return _open(ground, "cpu")


def open_memory_pressure(ground: Ground) -> Gauge | None:
    """The gauge of waiting for memory."""
    return _open(ground, "memory")


def _open(ground: Ground, what: str) -> Gauge | None:
    own = tuple(folder / f"{what}.pressure" for folder in ground.groups.unified[:1])
    file = first_found((*own, ground.proc / "pressure" / what))
    return _Pressure(f"{what}_pressure", file) if file else None


@final
class _Pressure:
    def __init__(self, name: str, file: OpenFile) -> None:
        self._name, self._file = name, file
        self._rise = Rise()

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        some = self._file.read().split(b"\n", 1)[0]
        if not some.startswith(b"some"):
            raise ValueError("no line of pressure")
        (stalled,) = self._rise.per_s(moment.at_s, int(some.rpartition(b"total=")[2]) * 1e-6)
        return (Figure(self._name, share(stalled)),)

    def close(self) -> None:
        self._file.close()
