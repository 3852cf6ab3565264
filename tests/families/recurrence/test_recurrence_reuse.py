from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grainshift.core.conditions import Conditions
from grainshift.core.machine import Cache, Machine
from grainshift.core.site import Site, Tempo
from grainshift.families.recurrence import FAMILY
from grainshift.families.recurrence.choice import (
    BF16,
    OPERATORS,
    SOLO,
    STOCK,
    hybrid,
    planned,
    rolled,
    unrolled,
)
from grainshift.families.recurrence.reuse import kernel_reuses
from grainshift.families.recurrence.reuse_operators import operator_reuses
from grainshift.families.recurrence.shape import GATES, Shape
from grainshift.families.recurrence.vectors import Vectors, vectors_of
from grainshift.machine.cache_model import hit_ratio

AVX2, AVX512 = Vectors(32, 16), Vectors(64, 32)
CACHES = (Cache(2, 1 << 20, 1), Cache(1, 48 << 10, 1), Cache(3, 1 << 25, 2))

shapes = st.builds(
    Shape,
    st.sampled_from(sorted(GATES)),
    st.integers(1, 600),
    st.integers(1, 600),
    st.integers(1, 3),
    st.integers(1, 2),
    st.booleans(),
)
profiles = st.sampled_from(
    (rolled(), unrolled(4), unrolled(32), hybrid(8), rolled(SOLO), unrolled(8, BF16))
)


@given(shapes, profiles, st.integers(1, 64), st.integers(1, 300), st.integers(1, 4))
def test_references_are_positive_and_distances_in_order(
    shape: Shape, choice: Any, rows: int, steps: int, threads: int
) -> None:
    for vectors in (AVX2, AVX512):
        for reuse in kernel_reuses(shape, rows, steps, choice, vectors, threads):
            assert reuse.references >= 0.0
            assert 0.0 <= reuse.near_bytes <= reuse.far_bytes


@given(shapes, st.integers(1, 64), st.integers(2, 300))
def test_a_plan_of_one_profile_is_that_profile(shape: Shape, rows: int, steps: int) -> None:
    whole = kernel_reuses(shape, rows, steps, unrolled(4), AVX2)
    assert kernel_reuses(shape, rows, steps, planned(*[unrolled(4)] * shape.sweeps), AVX2) == whole


@given(shapes, st.integers(1, 16), st.integers(8, 64))
def test_twice_the_steps_are_twice_the_references(shape: Shape, rows: int, steps: int) -> None:
    def references(steps: int) -> float:
        found = kernel_reuses(shape, rows, steps, rolled(), AVX2)
        return sum(reuse.references for reuse in found)

    samples = 4 * 512 * shape.sweeps
    assert abs(references(2 * steps) - 2 * references(steps)) <= samples


def test_blocks_spare_the_input_matrix_what_rolled_steps_read() -> None:
    shape = Shape("LSTM", 512, 64, 1, 1, True)
    hits = [
        hit_ratio(kernel_reuses(shape, 1, 64, choice, AVX512), 256 << 10)
        for choice in (rolled(), unrolled(4), unrolled(32))
    ]
    assert hits[0] < hits[1] < hits[2]


def test_weights_that_fit_are_served_by_the_cache_and_by_that_of_two_threads_sooner() -> None:
    shape = Shape("GRU", 256, 256, 1, 1, True)
    weights_bytes = shape.matrix_bytes
    alone = kernel_reuses(shape, 1, 256, rolled(), AVX512)
    shared = kernel_reuses(shape, 1, 256, rolled(), AVX512, 2)
    assert hit_ratio(alone, 2 * weights_bytes) > 0.99
    assert hit_ratio(alone, 0.6 * weights_bytes) < 0.95 < hit_ratio(shared, 0.6 * weights_bytes)


def test_half_as_wide_weights_fit_where_whole_ones_do_not() -> None:
    shape = Shape("LSTM", 256, 256, 1, 1, True)
    whole, half = (
        hit_ratio(kernel_reuses(shape, 1, 64, choice, AVX512), 1.2e6)
        for choice in (rolled(), rolled(BF16))
    )
    assert half > whole + 0.05


def test_steps_of_stock_read_the_whole_recurrent_matrix_from_front_to_back() -> None:
    shape = Shape("LSTM", 64, 256, 1, 1, True)
    for choice in (STOCK, unrolled(8, OPERATORS)):
        found = operator_reuses(shape, 1, 64, choice, AVX512)
        assert hit_ratio(found, 0.9 * shape.recurrent_bytes) < 0.6
        assert hit_ratio(found, 4 * shape.matrix_bytes) == 1.0


def test_a_forecast_tells_hits_level_by_level_and_the_call_that_it_means() -> None:
    machine = Machine("m", "a processor", (0, 1), 2.0, 1 << 34, CACHES, ("avx512f",))
    shape = Shape("LSTM", 64, 256, 2, 1, True)
    site = Site("recurrence", "lstm", shape.fingerprint, Tempo.SEGMENT)
    for choice in (STOCK, rolled(), planned(rolled(), unrolled(8)), unrolled(8, OPERATORS)):
        told = FAMILY.forecast(site, "B4.T64", choice, machine, Conditions(0.0))
        assert (told.steps, told.rows) == (64, 4)
        assert [name for name, _ in told.hits] == ["l1", "l2", "l3"]
        ratios = [ratio for _, ratio in told.hits]
        assert ratios[0] > 0.0 and ratios == sorted(ratios) and ratios[2] == 1.0


def test_a_step_of_a_plan_touches_what_its_profiles_touch() -> None:
    machine = Machine("m", "a processor", (0, 1), 2.0, 1 << 34, CACHES, ("avx512f",))
    shape = Shape("LSTM", 64, 256, 2, 1, True)
    site = Site("recurrence", "lstm", shape.fingerprint, Tempo.SEGMENT)

    def touched(choice: Any) -> int:
        told = FAMILY.forecast(site, "B1.T64", choice, machine, Conditions(0.0))
        return told.touched_bytes

    assert touched(unrolled(8)) < touched(planned(rolled(), unrolled(8))) < touched(rolled())
    spared = 56 * shape.input_bytes(0)
    assert touched(rolled()) - touched(planned(unrolled(8), rolled())) == spared


def test_vectors_are_those_that_the_kernels_are_compiled_for() -> None:
    def of(*sets: str) -> Vectors:
        return vectors_of(Machine("m", "a processor", (0,), 1.0, 1, (), sets))

    assert of("avx", "avx2", "avx512f") == AVX512
    assert of("avx2") == AVX2
    assert of() == Vectors(16, 16)
    assert of("neon") == Vectors(16, 32)
    assert [AVX512.most_rows(kind) for kind in ("LSTM", "GRU", "RNN_TANH")] == [6, 8, 8]
    assert AVX2.stacked("LSTM", 1, 1) == 0.5 and AVX512.stacked("LSTM", 1, 1) == 0.0
