"""Models how much of what a program touches the caches serve. Pure: knows no counter or machine.

A program that runs again and again sweeps its working set of W bytes, and re-reads each byte
`reuse` times while it is near. The near re-reads hit. The first touch in a sweep hits if the byte
survived since the last sweep. With the caches' capacity C and a replacement that doesn't know the
future, each miss throws out a random line, so over the W·(1 - h)/line misses of a sweep a line
survives with probability

    h = exp(-(W / C) · (1 - h))        (h = 1 where W ≤ C)

which is the hit ratio itself: the equation's smaller root. It lies between strict LRU, which keeps
nothing of a sweep longer than itself (h = 0), and perfect foresight (h = C / W).

Where a program's loops are known, Reuse says more: a reference hits in every cache that holds the
distinct bytes touched since the last one to the same place, as strict LRU would have it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grainshift.core.machine import Cache
from grainshift.core.site import Named

LINE_BYTES = 64
_HALVINGS = 50


@dataclass(frozen=True, slots=True)
class Reuse:
    """References to bytes that were last touched a while ago, told in distinct bytes since then.

    The distances are spread evenly from `near_bytes` to `far_bytes`.
    """

    references: float
    near_bytes: float = 0.0
    far_bytes: float = 0.0

    def times(self, count: float) -> "Reuse":
        """The same, so many times over."""
        return Reuse(self.references * count, self.near_bytes, self.far_bytes)

    def hits(self, capacity_bytes: float) -> float:
        """The references that a cache serves which throws out what was touched longest ago."""
        if capacity_bytes >= self.far_bytes:
            return self.references
        inside_bytes = max(0.0, capacity_bytes - self.near_bytes)
        return self.references * inside_bytes / max(self.far_bytes - self.near_bytes, 1.0)


def hit_ratio(reuses: Sequence[Reuse], capacity_bytes: float) -> float:
    """The share of all references that a cache of this capacity serves; 1 where there are none."""
    references = sum(reuse.references for reuse in reuses)
    if references <= 0.0:
        return 1.0
    return sum(reuse.hits(capacity_bytes) for reuse in reuses) / references


def hit_ratios(reuses: Sequence[Reuse], caches: Sequence[Cache], threads: int = 1) -> Named:
    """The share of all references that each level and those before it serve, as `l1`, `l2`...

    Of a cache that cores share, each of so many threads has its part.
    """
    return tuple(
        (
            f"l{cache.level}",
            round(hit_ratio(reuses, cache.size_bytes / max(1, min(threads, cache.shared_by))), 4),
        )
        for cache in sorted(caches, key=lambda cache: cache.level)
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What a running model does to memory: one pass of `seconds` over its working set.

    `working_set_bytes` are distinct bytes that come back in every pass; `touched_bytes` are all
    reads and writes of a pass; `reuse` says how many of them in a row go to the same near byte.
    """

    working_set_bytes: float
    touched_bytes: float
    reuse: float = 1.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The share of touched bytes that the caches serve, and the bytes that memory must."""

    hit_ratio: float
    dram_bytes: float

    @property
    def dram_share(self) -> float:
        """The share of touched bytes that come from memory."""
        return 1.0 - self.hit_ratio


def model_traffic(
    work: Work, caches: Sequence[Cache], cores: int, share: float = 1.0
) -> Traffic | None:
    """The Traffic of a pass spread over `cores`, where `share` of shared caches is ours.

    None without a cache to model.
    """
    capacity = max((_capacity_bytes(cache, cores, share) for cache in caches), default=0.0)
    if capacity <= 0.0:
        return None
    first_touches = 1.0 / max(1.0, work.reuse)
    miss_ratio = first_touches * (1.0 - _survival(max(0.0, work.working_set_bytes) / capacity))
    return Traffic(1.0 - miss_ratio, max(0.0, work.touched_bytes) * miss_ratio)


def _capacity_bytes(cache: Cache, cores: int, share: float) -> float:
    """What all instances of one level hold of us; a core's private cache is ours whole."""
    instances = math.ceil(max(1, cores) / max(1, cache.shared_by))
    ours = 1.0 if cache.shared_by <= 1 else min(1.0, max(0.0, share))
    return cache.size_bytes * instances * ours


def _survival(crowding: float) -> float:
    """The smaller root of h = exp(-crowding · (1 - h)), by halving (0, 1 / crowding)."""
    if crowding <= 1.0:
        return 1.0
    low, high = 0.0, 1.0 / crowding
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if math.exp(-crowding * (1.0 - middle)) > middle:
            low = middle
        else:
            high = middle
    return low
