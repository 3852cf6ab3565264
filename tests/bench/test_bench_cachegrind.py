"""Modelled cache hits of the kernels against cachegrind's count of them."""

from pathlib import Path

import pytest

from grainshift.bench import cachegrind
from grainshift.bench.cachegrind import CACHES, LIMIT_POINTS, Hits, Workload, count, model
from grainshift.core.choice import Choice
from grainshift.families.recurrence.choice import planned, rolled, unrolled
from grainshift.families.recurrence.shape import Shape

SMALL = CACHES[1]
where_valgrind_is = pytest.mark.skipif(
    bool(cachegrind.why_not()), reason=cachegrind.why_not() or "it is"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cachegrind.compile_into(tmp_path_factory.mktemp("cachegrind"))


def off_points(workload: Workload, counted: Hits) -> float:
    modelled = model(workload, SMALL)
    off = abs(modelled.first - counted.first), abs(modelled.last - counted.last)
    return 100.0 * max(off)


@where_valgrind_is
def test_the_kernels_do_what_a_plan_says_and_the_model_knows(program: Path) -> None:
    def workload(choice: Choice) -> Workload:
        return Workload(Shape("LSTM", 256, 64, 2, 1, True), 1, 16, choice)

    wide, narrow = (
        workload(planned(unrolled(16), rolled())),
        workload(planned(rolled(), unrolled(16))),
    )
    counts = [count(program, one, SMALL) for one in (wide, narrow)]
    assert off_points(wide, counts[0]) <= LIMIT_POINTS
    assert off_points(narrow, counts[1]) <= LIMIT_POINTS
    assert counts[0].first - counts[1].first > 0.05  # equal, if a plan were not obeyed


@pytest.mark.slow
@where_valgrind_is
def test_all_workloads_are_modelled_within_the_limit(program: Path) -> None:
    rows = cachegrind.run()
    assert len({row.workload for row in rows}) >= 6
    assert [row for row in rows if row.ours > LIMIT_POINTS] == []


def test_where_nothing_can_be_counted_a_row_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cachegrind, "why_not", lambda: "valgrind is not installed")
    (row,) = cachegrind.run()
    assert row.notes == "valgrind is not installed"
