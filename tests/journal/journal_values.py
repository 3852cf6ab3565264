"""Values that the Journal's tests share."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

from hypothesis import strategies as st

from grainshift.core.choice import Choice
from grainshift.core.codec import encode
from grainshift.core.conditions import Conditions
from grainshift.core.events import AnyEvent, Offer, Opened, Read, Sensed
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.instructions import AnyInstruction, Note
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.core.site import Site, Tempo
from grainshift.journal.header import RunHeader, new_run

EVENTS = get_args(AnyEvent)
INSTRUCTIONS = get_args(AnyInstruction)
SITE = Site("recurrence", "encoder.lstm", "f00d", Tempo.SEGMENT, (("hidden", 256.0),))
NOBODY = 65534

st.register_type_strategy(
    Site,
    st.recursive(
        st.builds(Site, parts=st.just(())),
        lambda inner: st.builds(Site, parts=st.tuples(inner, inner)),
        max_leaves=3,
    ),
)


def header(**changes: Any) -> RunHeader:
    versions = {"torch": "2.13.0", "python": "3.11.2"}
    began = new_run(1_000.0, "machine-1", versions, Settings(**changes), Limits(1 << 30, None, 0.5))
    return began


def read(number: int, at_s: float | None = None) -> Read:
    readings = tuple(Reading(arm, 0.001 + number * 1e-9, 128.0, 0, arm) for arm in range(4))
    return Read(number * 0.02 if at_s is None else at_s, SITE.key, "B1", readings, 4)


def opened(at_s: float = 0.0) -> Opened:
    choices = (Choice("stock"), Choice("unrolled", (8,)))
    return Opened(at_s, SITE, "B1", tuple(Offer(choice, Forecast()) for choice in choices))


def sensed(at_s: float) -> Sensed:
    return Sensed(at_s, Conditions(at_s))


def note(reason: str) -> Note:
    return Note(SITE.key, "B1", reason)


def plain(value: Any) -> str:
    """Text that is equal for equal values, NaN included."""
    return json.dumps(encode(value))


@contextmanager
def nobody() -> Iterator[None]:
    """As a user whom permissions bind, which they don't the superuser."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
