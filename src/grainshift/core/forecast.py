"""A Forecast: what a Choice is expected to cost before it ever ran. Knows no machine."""

import math
from dataclasses import dataclass

from grainshift.core.site import Named


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected cost of a Choice at a Site, relative to its baseline where it can be.

    `time_ratio` is the Choice's time over the baseline's; `spread` is the standard deviation of
    its logarithm; `extra_bytes` is memory held beyond the baseline's; `build_s` is CPU time.
    Of the bytes that one call reads and writes, `touched_bytes` in all, `working_set_bytes` are
    distinct and come back in the next; 0 where the family cannot say. That call is of `steps`
    steps, each of `rows` units of work. `hits` are the shares of its references that the caches
    serve up to each level, modelled as if nothing else ran: `l1`, `l2`...
    """

    time_ratio: float = 1.0
    spread: float = 0.7
    extra_bytes: int = 0
    build_s: float = 0.0
    working_set_bytes: int = 0
    touched_bytes: int = 0
    steps: int = 1
    rows: int = 1
    hits: Named = ()

    @property
    def pessimistic_ratio(self) -> float:
        """The time ratio that is exceeded about once in forty times."""
        return self.time_ratio * math.exp(2.0 * self.spread)

    @property
    def log_gain(self) -> float:
        """The expected log(t_baseline / t_choice)."""
        return -math.log(self.time_ratio)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the user allows: memory beyond the baseline, relative error, seconds a call."""

    memory_bytes: int | None = None
    error_ratio: float | None = None
    latency_s: float | None = None
