import math
import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grainshift.core.settings import Settings

FIELDS = {field.name: field for field in fields(Settings)}
COUNTS = [name for name, field in FIELDS.items() if field.type is int]
NUMBERS = [name for name, field in FIELDS.items() if field.type is float]
NEVER = ("8", None, [], {}, object(), 1j, b"1", (1.0,), True, False, math.nan, math.inf, -math.inf)


def refused(name: str, value: Any) -> None:
    """It must be refused in one sentence with the field's name and its value."""
    pattern = rf"^settings: {name}={re.escape(repr(value))} will not do; give .+$"
    with pytest.raises(ValueError, match=pattern) as caught:
        Settings(**{name: value})
    assert "\n" not in str(caught.value)


def test_every_field_is_of_a_kind_that_is_checked() -> None:
    assert {*COUNTS, *NUMBERS, "canary_calls"} == {*FIELDS}


def test_the_defaults_are_good() -> None:
    assert Settings() == Settings(**{name: getattr(Settings(), name) for name in FIELDS})


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", NEVER, ids=repr)
def test_no_field_takes_what_is_no_number_of_its_kind(name: str, value: Any) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", [*COUNTS, *NUMBERS])
@pytest.mark.parametrize("value", [-1, -(10**400), 10**400])
def test_no_field_takes_a_number_below_nought_or_out_of_all_range(name: str, value: int) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [1.0, 2.5, 1e9])
def test_a_count_is_whole(name: str, value: float) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_may_be_given_whole(name: str) -> None:
    if name != "confidence":
        assert getattr(Settings(**{name: 1}), name) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 1.001) for name in ("explore_share", "probe_share", "margin", "epsilon")),
        ("build_share", 2),
        *(("confidence", value) for value in (0.0, 0.49, 1.0, 1, 95)),
        *((name, 0) for name in ("warm_calls", "builders", "switches_per_window", "backoff")),
        *((name, 0.0) for name in ("drift_limit", "drain_s", "sense_s", "build_timeout_s")),
        ("backoff", 0.99),
        ("segment_s", 1.1e9),
        *(
            ("canary_calls", value)
            for value in (
                (),
                (1, 8),
                (1, 8, 64, 128),
                (8, 1, 64),
                (1, 64, 8),
                (0, 8, 64),
                (-1, 8, 64),
                (1, 8, 64.0),
                (True, 8, 64),
                ("1", "8", "64"),
                (1, 8, math.nan),
                [1, 8, 64],
                "184",
                64,
            )
        ),
    ],
    ids=repr,
)
def test_each_field_has_its_own_range(name: str, value: Any) -> None:
    refused(name, value)


@given(
    st.sampled_from(sorted(FIELDS)),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_whatever_is_given_it_is_taken_or_refused_with_its_name(name: str, value: Any) -> None:
    try:
        made = Settings(**{name: value})
    except ValueError as fault:
        assert str(fault).startswith(f"settings: {name}=")
    else:
        assert getattr(made, name) == value
        hash(made)
