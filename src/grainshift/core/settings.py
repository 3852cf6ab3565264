"""Settings: everything a user can turn, in one frozen dataclass. Reads no environment."""

from dataclasses import dataclass, fields
from typing import Any, NoReturn

_SHARES = ("explore_share", "probe_share", "margin", "epsilon", "build_share")
_AT_LEAST_ONE = ("warm_calls", "builders", "switches_per_window", "backoff")
_ABOVE_ZERO = ("drift_limit", "drain_s", "sense_s", "build_timeout_s")
_LARGEST = 1e9  # of a number with a fraction
_LARGEST_COUNT = 1 << 53  # beyond it, a count does not survive JSON everywhere


def _refuse(name: str, value: Any, would_do: str) -> NoReturn:
    raise ValueError(f"settings: {name}={value!r} will not do; give {would_do}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and 0.0 <= value <= _LARGEST


def _is_canary(value: Any) -> bool:
    is_triple = isinstance(value, tuple) and len(value) == 3
    return is_triple and all(map(_is_count, value)) and 1 <= value[0] <= value[1] <= value[2]


@dataclass(frozen=True, slots=True)
class Settings:
    """How cautiously, how eagerly and by which policies Grainshift tunes.

    explore_share: share of the baseline time seen so far that exploring may cost.
    opening_calls: baseline calls' worth that exploring may cost before that share has accrued.
    probe_share: largest share of calls that re-measure the baseline beside the live Choice.
    margin: relative gain that a Choice must prove before it goes live.
    confidence: probability with which every proof holds, however often it is looked at.
    warm_calls: calls of the baseline before the first trial.
    canary_calls: calls of a new Choice before it may go live, and before it is given up.
    watch_calls: calls after going live in which the baseline is re-measured more often.
    dwell_s: shortest time between two voluntary switches of one Site.
    switches_per_window: most voluntary switches of one Site in a window.
    window_s: length of that window.
    backoff: factor by which the wait grows before a rejected Choice is tried again.
    retry_calls: calls before a rejected Choice is tried again for the first time.
    drift_slack: CUSUM slack k, in standard deviations.
    drift_limit: CUSUM limit h, in standard deviations.
    build_share: most that building may cost, as a share of the time the Site has run.
    rounding_ratio: largest relative error that counts as rounding.
    epsilon: share of proposals drawn at random from the allowed set.
    seed: seed of every random draw.
    segment_s: shortest stretch of a sequence that a recurrent layer runs between decisions.
    drain_s: longest time that Readings wait in a Slot's ring.
    sense_s: time between two samples of the machine's Conditions.
    builders: processes that may build at the same time.
    build_timeout_s: longest a build may take before it is given up.
    journal_bytes: most that the Journal may take on disk.
    """

    explore_share: float = 0.02
    opening_calls: float = 1.0
    probe_share: float = 0.02
    margin: float = 0.01
    confidence: float = 0.95
    warm_calls: int = 8
    canary_calls: tuple[int, int, int] = (1, 8, 64)
    watch_calls: int = 64
    dwell_s: float = 0.25
    switches_per_window: int = 8
    window_s: float = 30.0
    backoff: float = 2.0
    retry_calls: int = 4000
    drift_slack: float = 0.5
    drift_limit: float = 8.0
    build_share: float = 0.5
    rounding_ratio: float = 1e-4
    epsilon: float = 0.05
    seed: int = 0
    segment_s: float = 0.002
    drain_s: float = 0.02
    sense_s: float = 0.5
    builders: int = 1
    build_timeout_s: float = 300.0
    journal_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and not _is_count(value):
                _refuse(field.name, value, "a whole number that is not negative")
            if field.type is float and not _is_number(value):
                _refuse(field.name, value, "a number from 0 to 1e9")
        if not _is_canary(self.canary_calls):
            _refuse("canary_calls", self.canary_calls, "three rising counts such as (1, 8, 64)")
        for name in _SHARES:
            if getattr(self, name) > 1.0:
                _refuse(name, getattr(self, name), "a share from 0 to 1")
        if not 0.5 <= self.confidence < 1.0:
            _refuse("confidence", self.confidence, "a probability from 0.5 to below 1")
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                _refuse(name, getattr(self, name), "at least 1")
        for name in _ABOVE_ZERO:
            if getattr(self, name) <= 0.0:
                _refuse(name, getattr(self, name), "more than 0")
