"""Keeps Traces in one JSON file, without pickle. Trains nothing."""

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from grainshift.core.codec import decode, encode
from grainshift.core.errors import NotTunable
from grainshift.core.trace import Trace, Traces

__all__ = ["FORMAT", "read_traces", "write_traces"]

FORMAT = 1
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def write_traces(traces: Traces, path: Path) -> None:
    """Write Traces, whole or not at all."""
    text = json.dumps({"format": FORMAT, "traces": encode(traces)}, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as draft:
        try:
            draft.write(text)
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise


def read_traces(path: Path) -> Traces:
    """The Traces in a file, or NotTunable with the reason."""
    try:
        held: Any = json.loads(path.read_text(encoding="utf-8"))
        found = held["format"]
        traces = decode(Traces, held["traces"]) if found == FORMAT else None
    except FileNotFoundError:
        raise NotTunable(f"{path} does not exist; give a file of recorded traces") from None
    except _BROKEN as fault:
        raise NotTunable(
            f"{path} cannot be read as traces ({type(fault).__name__}); profile anew"
        ) from fault
    if traces is None:
        raise NotTunable(f"{path} has format {found!r}, not {FORMAT}; profile anew")
    for number, trace in enumerate(traces.traces):
        if reason := _fault(trace):
            raise NotTunable(f"{path}: trace {number} {reason}; profile anew")
    return traces


def _fault(trace: Trace) -> str:
    """What is wrong with a Trace that was read; empty when nothing is."""
    if not trace.costs:
        return "has no choice"
    if len(set(trace.choices)) < len(trace.costs):
        return "has a choice twice"
    if not all(cost.gains and all(map(_is_number, cost.gains)) for cost in trace.costs):
        return "has gains that are no numbers"
    others = [value for cost in trace.costs for value in (cost.extra_bytes, cost.hit_ratio)]
    features = [value for _, value in trace.features]
    if not all(map(_is_number, (*others, *features, trace.baseline_s))):
        return "has sizes that are no numbers"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
