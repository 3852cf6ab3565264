import pytest
from guard_cases import byte_counts, free, offer
from hypothesis import assume, given
from hypothesis import strategies as st

from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.guards.memory import Memory

GIB = 1 << 30


def guard(most: int | None = None) -> Memory:
    return Memory(Settings(), Limits(memory_bytes=most))


def admits(extra_bytes: int, most: int | None, free_bytes: float | None) -> bool:
    return guard(most).admit(offer(extra_bytes), 1.0, free(free_bytes)).admitted


@given(byte_counts, byte_counts, st.none() | byte_counts, st.none() | byte_counts)
def test_more_bytes_never_turn_refused_into_admitted(
    fewer: int, more: int, most: int | None, free_bytes: int | None
) -> None:
    assume(fewer <= more)
    assert admits(fewer, most, free_bytes) or not admits(more, most, free_bytes)


@given(byte_counts, byte_counts, byte_counts, st.none() | byte_counts)
def test_more_free_memory_or_a_higher_limit_never_turns_admitted_into_refused(
    extra: int, less: int, more: int, other: int | None
) -> None:
    assume(less <= more)
    assert admits(extra, other, more) or not admits(extra, other, less)
    assert admits(extra, more, other) or not admits(extra, less, other)
    assert admits(extra, None, other) or not admits(extra, less, other)


@given(byte_counts, st.none() | byte_counts)
def test_what_needs_nothing_is_always_admitted(free_bytes: int, most: int | None) -> None:
    assert admits(0, most, free_bytes)


@pytest.mark.parametrize(
    ("extra", "most", "free_bytes", "admitted"),
    [
        (GIB, GIB, None, True),
        (GIB + 1, GIB, None, False),
        (GIB, None, 2 * GIB, True),
        (GIB + 1, None, 2 * GIB, False),
        (1, None, 0, False),
        (10 * GIB, None, None, True),  # nothing is known and nothing was asked for
        (1, 10 * GIB, 1, False),  # the machine's word counts beside the user's
    ],
)
def test_the_limit_is_exact(
    extra: int, most: int | None, free_bytes: int | None, admitted: bool
) -> None:
    assert admits(extra, most, free_bytes) is admitted


def test_a_refusal_names_the_choice_and_the_figures() -> None:
    verdict = guard(1000).admit(offer(2000), 1.0, free(None))
    assert verdict.guard == "memory"
    assert verdict.reason == "rolled(8) needs 2,000 bytes more, the limit is 1,000"
    verdict = guard().admit(offer(2000), 1.0, free(3000))
    assert verdict.reason == "rolled(8) needs 2,000 bytes more, 3,000 are free"


@given(st.integers(1, 1 << 45), byte_counts, byte_counts)
def test_what_holds_memory_goes_when_memory_runs_out_and_only_then(
    extra: int, less: int, more: int
) -> None:
    assume(less <= more)
    kept = [guard().keep(offer(extra), 1.0, 1.0, free(b)).admitted for b in (less, more)]
    assert kept[1] or not kept[0]
    assert kept[0] is (less >= 64 << 20)
    assert guard().keep(offer(0), 1.0, 1.0, free(less)).admitted
    assert guard().keep(offer(extra), 1.0, 1.0, free(None)).admitted
