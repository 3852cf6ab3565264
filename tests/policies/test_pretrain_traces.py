"""Traces go to disk and come back, without pickle; what is broken is refused in one sentence."""

import json
import os
import pickle
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import traces

from grainshift.core.choice import Choice, Exactness
from grainshift.core.codec import decode, encode
from grainshift.core.conditions import Conditions, Figure, Source
from grainshift.core.errors import NotTunable
from grainshift.core.trace import Cost, Trace, Traces
from grainshift.policies.pretrain.traces import read_traces, write_traces

KNOWN = Traces("recurrence", "a processor", traces())
NUMBERS = st.floats(-1e9, 1e9)
CHOICES = st.builds(
    Choice,
    st.text(max_size=8),
    st.lists(st.integers(-9, 9) | st.text(max_size=5), max_size=3).map(tuple),
    st.sampled_from(Exactness),
)
COSTS = st.builds(
    Cost,
    CHOICES,
    st.lists(NUMBERS, min_size=1, max_size=4).map(tuple),
    st.integers(0, 1 << 40),
    st.floats(0, 1),
    NUMBERS,
)
FIGURES = st.builds(Figure, st.text(max_size=6), NUMBERS, st.sampled_from(Source))
TRACES = st.builds(
    Trace,
    st.text(max_size=9),
    st.text(max_size=9),
    st.sampled_from(["calm", "busy"]),
    st.lists(st.tuples(st.text(max_size=5), NUMBERS), max_size=3).map(tuple),
    st.builds(Conditions, NUMBERS, st.lists(FIGURES, max_size=3).map(tuple)),
    NUMBERS,
    st.lists(COSTS, min_size=1, max_size=4).map(tuple),
    st.sampled_from(["", "architecture"]),
)


@given(TRACES)
def test_any_trace_survives_json(one: Trace) -> None:
    assert decode(Trace, json.loads(json.dumps(encode(one)))) == one


def test_traces_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "traces.json"
    write_traces(KNOWN, path)
    write_traces(KNOWN, path)  # over what is there
    assert read_traces(path) == KNOWN
    assert [file.name for file in path.parent.iterdir()] == ["traces.json"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "traces.json"
    write_traces(KNOWN, path)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_traces(Traces("x", "y"), path)
    assert read_traces(path) == KNOWN
    assert [file.name for file in tmp_path.iterdir()] == ["traces.json"]


def refused(path: Path) -> str:
    with pytest.raises(NotTunable) as caught:
        read_traces(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def test_refuses_what_are_no_traces(tmp_path: Path) -> None:
    path = tmp_path / "given"
    assert "does not exist" in refused(path)
    for content in (b"", b"[]", b"{}", b"{", b"7", b"\xff\xfe", pickle.dumps({"format": 1})):
        path.write_bytes(content)
        refused(path)
    path.write_text(json.dumps({"format": 99, "traces": encode(KNOWN)}))
    assert "format 99" in refused(path)


def test_refuses_traces_that_make_no_sense(tmp_path: Path) -> None:
    path, (first, *_) = tmp_path / "given", KNOWN.traces
    cost = first.costs[1]
    for costs, reason in (
        ((), "no choice"),
        ((cost, cost), "twice"),
        ((Cost(cost.choice, ()),), "gains"),
        ((Cost(cost.choice, ("fast",)),), "ValueError"),  # type: ignore[arg-type]
        ((Cost(cost.choice, (float("inf"),)),), "gains"),
        ((Cost(cost.choice, (0.1,), None),), "sizes"),  # type: ignore[arg-type]
    ):
        told = Trace("a", "b", "calm", (), first.conditions, 1.0, costs)
        path.write_text(json.dumps({"format": 1, "traces": encode(Traces("f", "m", (told,)))}))
        assert reason in refused(path)


def test_damage_is_refused_or_reads_as_traces(tmp_path: Path) -> None:
    path, draw = tmp_path / "broken", random.Random(0)
    write_traces(KNOWN, path)
    content, refusals = path.read_bytes(), 0
    for _ in range(100):
        broken = bytearray(content[: draw.choice([len(content), draw.randrange(len(content))])])
        for _ in range(3 if broken else 0):
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(broken))
        try:
            assert all(one.costs for one in read_traces(path).traces)
        except NotTunable:
            refusals += 1
    assert refusals > 50
