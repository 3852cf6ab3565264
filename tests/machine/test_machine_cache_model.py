import random
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grainshift.core.machine import Cache
from grainshift.machine import Traffic, Work, model_traffic
from grainshift.machine.cache_model import Reuse, hit_ratio, hit_ratios

sizes = st.floats(1.0, 1e12)
shares = st.floats(0.0, 1.0)
works = st.builds(Work, st.floats(0, 1e12), st.floats(0, 1e13), st.floats(0, 1e4))
levels = st.builds(Cache, st.integers(1, 4), st.integers(1, 1 << 40), st.integers(1, 128))


def traffic(work: Work, size_bytes: float, share: float = 1.0) -> Traffic:
    modelled = model_traffic(work, (Cache(3, int(size_bytes), 4),), 4, share)
    assert modelled is not None
    return modelled


@given(works, st.lists(levels, min_size=1), st.integers(1, 256), st.floats(0.01, 1.0))
def test_ratios_stay_within_bounds(
    work: Work, caches: list[Cache], cores: int, share: float
) -> None:
    modelled = model_traffic(work, caches, cores, share)
    assert modelled is not None
    assert 0.0 <= modelled.hit_ratio <= 1.0
    assert 0.0 <= modelled.dram_share <= 1.0
    assert 0.0 <= modelled.dram_bytes <= work.touched_bytes


@given(works, st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_a_larger_cache_never_hits_less(work: Work, one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert traffic(work, small).hit_ratio <= traffic(work, large).hit_ratio + 1e-12


@given(works, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_a_larger_share_never_hits_less(work: Work, one: float, other: float) -> None:
    small, large = sorted((one, other))
    less, more = traffic(work, 1 << 25, small), traffic(work, 1 << 25, large)
    assert less.hit_ratio <= more.hit_ratio + 1e-12


@given(sizes, sizes, st.floats(1.0, 100.0))
def test_a_larger_working_set_never_hits_more(one: float, other: float, reuse: float) -> None:
    small, large = (Work(size, 1e9, reuse) for size in sorted((one, other)))
    assert traffic(large, 1 << 25).hit_ratio <= traffic(small, 1 << 25).hit_ratio + 1e-12


@given(sizes, st.floats(1.0, 1e3), st.floats(1.0, 1e3))
def test_more_reuse_never_asks_more_of_memory(size: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    less, more = traffic(Work(size, 1e9, low), 1 << 25), traffic(Work(size, 1e9, high), 1 << 25)
    assert more.dram_bytes <= less.dram_bytes + 1e-3


@given(st.floats(0.0, 1.0))
def test_what_fits_is_served_whole(fill: float) -> None:
    assert traffic(Work(fill * (1 << 25), 1e9), 1 << 25).hit_ratio == 1.0


def test_a_private_level_counts_once_for_each_core() -> None:
    work = Work(6 << 20, 1e9)
    private = (Cache(2, 1 << 20, 1),)
    one, eight = model_traffic(work, private, 1), model_traffic(work, private, 8)
    assert one is not None and eight is not None
    assert one.hit_ratio < 0.1 and eight.hit_ratio == 1.0


def test_without_a_cache_there_is_nothing_to_model() -> None:
    assert model_traffic(Work(1e6, 1e6), (), 2) is None


@pytest.mark.parametrize("crowding", [0.5, 0.9, 1.2, 1.5, 2.0, 4.0])
def test_it_agrees_with_a_simulated_cache_and_lies_between_lru_and_foresight(
    crowding: float,
) -> None:
    lines = 1000
    working_set = int(lines * crowding)
    modelled = traffic(Work(64.0 * working_set, 1e9), 64.0 * lines).hit_ratio
    assert modelled == pytest.approx(_random_replacement(lines, working_set), abs=0.03)
    assert _least_recently_used(lines, working_set) <= modelled + 1e-9
    assert modelled <= min(1.0, 1.0 / crowding) + 1e-9


def _random_replacement(lines: int, working_set: int) -> float:
    """The hit ratio of sweep after sweep through a cache that throws out at random."""
    draw = random.Random(0)
    held: list[int] = []
    place: dict[int, int] = {}
    hits = touches = 0
    for sweep in range(60):
        for line in range(working_set):
            hits, touches = (hits + (line in place), touches + 1) if sweep >= 30 else (0, 0)
            if line in place:
                continue
            if len(held) < lines:
                place[line] = len(held)
                held.append(line)
                continue
            victim = draw.randrange(lines)
            del place[held[victim]]
            held[victim], place[line] = line, victim
    return hits / touches


def _least_recently_used(lines: int, working_set: int) -> float:
    held: OrderedDict[int, None] = OrderedDict()
    hits = touches = 0
    for sweep in range(4):
        for line in range(working_set):
            hits, touches = (hits + (line in held), touches + 1) if sweep >= 2 else (0, 0)
            held.pop(line, None)
            held[line] = None
            if len(held) > lines:
                held.popitem(last=False)
    return hits / touches


reuses = st.lists(
    st.builds(
        lambda references, near, more: Reuse(references, near, near + more),
        st.floats(0.0, 1e9),
        st.floats(0.0, 1e9),
        st.floats(0.0, 1e9),
    )
)


@given(reuses, sizes, sizes)
def test_a_larger_cache_serves_no_less(found: list[Reuse], one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert 0.0 <= hit_ratio(found, small) <= hit_ratio(found, large) + 1e-9 <= 1.0 + 2e-9


@pytest.mark.parametrize("capacity", [10, 50, 100, 250, 399])
def test_a_walk_there_and_back_hits_as_in_a_simulated_cache(capacity: int) -> None:
    walk = list(range(400))
    held: OrderedDict[int, None] = OrderedDict()
    hits = touches = 0
    for turn in range(6):
        for line in walk if turn % 2 == 0 else reversed(walk):
            hits, touches = (hits + (line in held), touches + 1) if turn >= 2 else (0, 0)
            held.pop(line, None)
            held[line] = None
            if len(held) > capacity:
                held.popitem(last=False)
    modelled = hit_ratio([Reuse(400.0, 0.0, 400.0)], float(capacity))
    assert modelled == pytest.approx(hits / touches, abs=0.01)


def test_levels_are_told_in_order_and_shared_by_threads() -> None:
    found = [Reuse(1.0, 100.0, 100.0), Reuse(3.0)]
    caches = (Cache(3, 150, 2), Cache(1, 50, 1), Cache(2, 100, 1))
    assert hit_ratios(found, caches) == (("l1", 0.75), ("l2", 1.0), ("l3", 1.0))
    assert hit_ratios(found, caches, threads=2) == (("l1", 0.75), ("l2", 1.0), ("l3", 0.75))
    assert hit_ratios([], caches)[0] == ("l1", 1.0)
