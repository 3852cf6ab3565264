"""Measures the recurrence family, promise by promise. Knows nothing of how layers are tuned."""

import math
import sys
import time
from collections.abc import Callable, Iterator

import torch

from grainshift.bench.recurrence.beside import bf16, sequences, streams, training
from grainshift.bench.recurrence.choosing import choosing
from grainshift.bench.recurrence.deciding import deciding
from grainshift.bench.recurrence.effort import Effort, measured_machine
from grainshift.bench.recurrence.phases import under_load
from grainshift.bench.recurrence.summary import summary
from grainshift.bench.recurrence.switching import switching
from grainshift.bench.row import Row
from grainshift.bench.workloads.recurrence import WORKLOADS
from grainshift.environment import environment
from grainshift.families.recurrence import Recurrence

__all__ = ["run"]

_PARTS: tuple[Callable[[Effort], Iterator[Row]], ...] = (
    switching,
    deciding,
    streams,
    bf16,
    training,
    choosing,
    under_load,
    sequences,
)


def run(quick: bool = False, only: str | None = None) -> Iterator[Row]:
    """A Row as soon as it is measured, of each workload whose name contains `only`; then means.

    A quick run without `only` takes a few workloads of each part, for a first look.
    """
    if only is not None and not any(only in workload.name for workload in WORKLOADS):
        return
    tell = _teller()
    tell("measuring the machine's rates, and building the kernels once")
    effort = Effort(quick, only, measured_machine(again=not quick), tell)
    torch.set_num_threads(effort.cores)  # as many as whoever is measured in another process
    Recurrence(kernels=environment().kernels_folder).compile()
    rows: list[Row] = []
    for part in _PARTS:
        for row in whole(part, effort):
            rows.append(row)
            yield row
    yield from summary(rows)


def whole(part: Callable[[Effort], Iterator[Row]], effort: Effort) -> Iterator[Row]:
    """The Rows of a part; a fault ends it with a Row that says so, and the next part follows."""
    try:
        yield from part(effort)
    except Exception as fault:  # noqa: BLE001 - minutes of measuring must not be lost to it
        effort.tell(f"{part.__name__} ended: {fault!r}")
        yield Row(part.__name__, "ended", "", math.nan, {}, notes=f"{fault!r:.300}")


def _teller() -> Callable[[str], None]:
    """Says to whoever watches what is being done; what is measured goes elsewhere."""
    begin_s = time.monotonic()

    def tell(words: str) -> None:
        print(f"{time.monotonic() - begin_s:5.0f} s  {words}", file=sys.stderr, flush=True)

    return tell
