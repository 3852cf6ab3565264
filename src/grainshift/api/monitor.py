"""What a Site costs now: seconds and bytes a step, cache hits, load. Reads state, changes none."""

from collections.abc import Iterator
from dataclasses import dataclass

from grainshift.core.conditions import Conditions, Figure, Source
from grainshift.tuner.state import BASELINE, Case, State

_BYTES = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Monitor:
    """What the live Choice of a Site costs, as last seen; None where nobody told.

    unit_s: seconds a unit of work, measured.
    step_s: seconds a step of as many units as the bucket holds at most.
    step_bytes: bytes that a step touches, forecast.
    working_set_bytes: distinct bytes that a call touches and the next one needs again, forecast.
    hits: share of references that the caches serve up to each level, modelled for this Site; and
    as `cache_hit_ratio` that of the last level in the whole process, where it is counted.
    cpu_ours, cpu_others: share of the usable cores that we and other processes keep busy.
    """

    unit_s: float | None
    step_s: float | None
    step_bytes: float | None
    working_set_bytes: int | None
    hits: tuple[Figure, ...]
    cpu_ours: float | None
    cpu_others: float | None

    def __str__(self) -> str:
        return "; ".join(filter(None, (*self._costs(), _hits(self.hits), self._load())))

    def _costs(self) -> Iterator[str]:
        if self.step_s is not None:
            yield f"{_time(self.step_s)} a step"
        if self.step_bytes is not None and self.working_set_bytes is not None:
            sets = _size(self.working_set_bytes)
            yield f"{_size(self.step_bytes)} touched a step, working set {sets}"

    def _load(self) -> str:
        if self.cpu_ours is None or self.cpu_others is None:
            return ""
        return f"load {self.cpu_ours:.0%} ours, {self.cpu_others:.0%} others"


def monitor_of(state: State, case: Case) -> Monitor:
    """What the live Choice of a Case costs."""
    forecast = case.arms[case.live].offer.forecast
    seen = case.baseline.count if case.live == BASELINE else case.level.count
    unit_s = case.live_s / case.work if seen else None
    touched = forecast.touched_bytes > 0
    hits = [Figure(name, ratio, Source.MODELLED) for name, ratio in forecast.hits]
    counted = _figure(state.conditions, "cache_hit_ratio")
    if counted is not None and counted.source is Source.MEASURED:
        hits.append(counted)
    return Monitor(
        unit_s=unit_s,
        step_s=None if unit_s is None else unit_s * forecast.rows,
        step_bytes=forecast.touched_bytes / forecast.steps if touched else None,
        working_set_bytes=forecast.working_set_bytes if touched else None,
        hits=tuple(hits),
        cpu_ours=_value(state.conditions, "cpu_ours"),
        cpu_others=_value(state.conditions, "cpu_others"),
    )


def _figure(conditions: Conditions, name: str) -> Figure | None:
    return next((figure for figure in conditions.figures if figure.name == name), None)


def _value(conditions: Conditions, name: str) -> float | None:
    figure = _figure(conditions, name)
    return None if figure is None else figure.value


def _hits(hits: tuple[Figure, ...]) -> str:
    """The hits, those of one source after those of the other."""
    said = []
    for source in Source:
        named = [f"{hit.name} {hit.value:.0%}" for hit in hits if hit.source is source]
        if named:
            said.append(f"hits {', '.join(named)} ({source})")
    return "; ".join(said)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _size(size_bytes: float) -> str:
    for unit in _BYTES:
        if size_bytes < 1000 or unit == _BYTES[-1]:
            break
        size_bytes /= 1000
    return f"{size_bytes:.3g} {unit}"
