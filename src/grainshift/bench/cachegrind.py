"""Holds the modelled cache hits of the recurrence kernels against cachegrind's count of them.

Valgrind knows no AVX-512, and counts a fused multiply-add with an operand in memory as one
reference a lane: so the kernels are compiled for AVX2 without it. One thread; the counts of a call
are those of three calls less those of one.
"""

import math
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grainshift.bench.row import Row
from grainshift.core.choice import Choice
from grainshift.core.errors import GrainshiftError
from grainshift.families.recurrence import choice as words
from grainshift.families.recurrence.choice import hybrid, planned, rolled, unrolled
from grainshift.families.recurrence.library import KINDS, PRECISIONS, SOURCES
from grainshift.families.recurrence.reuse import kernel_reuses
from grainshift.families.recurrence.shape import Shape
from grainshift.families.recurrence.vectors import Vectors
from grainshift.machine.cache_model import LINE_BYTES, hit_ratio
from grainshift.runtime.native import find_compiler

LIMIT_POINTS = 10.0
_FLAGS = ("-std=c++17", "-O3", "-march=x86-64-v3", "-mno-fma")
_VECTORS = Vectors(32, 16)
_CALLS = (1, 3)
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Workload:
    """One call of a layer."""

    shape: Shape
    rows: int
    steps: int
    choice: Choice

    @property
    def name(self) -> str:
        """What is called, and how it runs."""
        sizes = self.shape.fingerprint.removesuffix(".bias.fp32")
        return f"{sizes}.B{self.rows}.T{self.steps} {self.choice}"


@dataclass(frozen=True, slots=True)
class Caches:
    """The two levels that cachegrind simulates, as (bytes, ways)."""

    name: str
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hits:
    """The share of data references that the first level serves, and that both serve."""

    first: float
    last: float


CACHES = (
    Caches("48K+1M", (48 << 10, 12), (1 << 20, 16)),
    Caches("32K+256K", (32 << 10, 8), (256 << 10, 8)),
)


def _workload(kind: str, sizes: tuple[int, ...], choice: Choice) -> Workload:
    inputs, hidden, layers, directions, rows, steps = sizes
    return Workload(Shape(kind, inputs, hidden, layers, directions, True), rows, steps, choice)


WORKLOADS = (
    _workload("LSTM", (64, 256, 1, 1, 1, 32), rolled()),
    _workload("LSTM", (64, 256, 1, 1, 1, 32), unrolled(8)),
    _workload("LSTM", (64, 256, 1, 1, 1, 32), unrolled(8, words.BF16)),
    _workload("LSTM", (64, 256, 1, 1, 1, 32), unrolled(8, words.INT8)),
    _workload("LSTM", (32, 64, 1, 1, 2, 32), unrolled(8)),
    _workload("LSTM", (256, 256, 2, 1, 4, 16), unrolled(8)),
    _workload("LSTM", (16, 128, 2, 1, 1, 32), planned(rolled(), unrolled(16))),
    _workload("LSTM", (256, 64, 3, 1, 1, 32), unrolled(32)),
    _workload("LSTM", (128, 128, 1, 1, 1, 1), rolled()),
    _workload("GRU", (64, 256, 1, 1, 4, 16), unrolled(8)),
    _workload("GRU", (128, 128, 1, 2, 1, 32), hybrid(8)),
    _workload("GRU", (40, 96, 2, 1, 16, 16), unrolled(16)),
    _workload("GRU", (512, 512, 1, 1, 1, 1), rolled()),
    _workload("RNN_TANH", (128, 128, 1, 1, 1, 64), unrolled(4)),
    _workload("RNN_RELU", (64, 512, 1, 1, 8, 8), rolled()),
)


def run(quick: bool = False, only: str | None = None) -> list[Row]:
    """A Row for each workload, cache and level whose name contains `only`."""
    if reason := why_not():
        return [Row("cachegrind", "cache hits", "points", math.nan, {}, notes=reason)]
    with tempfile.TemporaryDirectory() as folder:
        program = compile_into(Path(folder))
        return [
            row
            for caches in CACHES[: 1 if quick else None]
            for workload in WORKLOADS
            if only is None or only in f"{workload.name} {caches.name}"
            for row in _rows(workload, caches, count(program, workload, caches))
        ]


def why_not() -> str:
    """Why nothing can be counted here; empty where it can."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "the kernels are counted as compiled for x86-64 only"
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    return "" if find_compiler() else "there is no C++ compiler"


def compile_into(folder: Path) -> Path:
    """The kernels with a main of their own, as a program."""
    program, main = folder / "cachegrind", Path(__file__).with_suffix(".cpp")
    compiler = find_compiler() or "c++"
    command = [compiler, *_FLAGS, "-I", str(SOURCES), "-o", str(program), str(main)]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    return program


def model(workload: Workload, caches: Caches) -> Hits:
    """What we say that the caches serve."""
    shape, rows, steps = workload.shape, workload.rows, workload.steps
    reuses = kernel_reuses(shape, rows, steps, workload.choice, _VECTORS)
    return Hits(hit_ratio(reuses, caches.first[0]), hit_ratio(reuses, caches.last[0]))


def count(program: Path, workload: Workload, caches: Caches) -> Hits:
    """What cachegrind counts that they serve."""
    few, many = (_counts(program, workload, caches, calls) for calls in _CALLS)
    references, first, last = (more - less for less, more in zip(few, many, strict=True))
    return Hits(1.0 - first / references, 1.0 - last / references)


def _counts(
    program: Path, workload: Workload, caches: Caches, calls: int
) -> tuple[float, float, float]:
    """Data references, and how many of them each level misses."""
    done = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]
        + [f"--{name}={level[0]},{level[1]},{LINE_BYTES}" for name, level in _levels(caches)]
        + [str(program), *map(str, _words(workload, calls))],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise GrainshiftError(f"cachegrind ended with {done.returncode}: {done.stderr[-300:]}")
    return (
        _said("D +refs", done.stderr),
        _said("D1 +misses", done.stderr),
        _said("LLd +misses", done.stderr),
    )


def _levels(caches: Caches) -> Iterable[tuple[str, tuple[int, int]]]:
    return ("D1", caches.first), ("LL", caches.last)


def _words(workload: Workload, calls: int) -> Iterable[int]:
    shape = workload.shape
    yield from (KINDS.index(shape.kind), shape.inputs, shape.hidden)
    yield from (shape.layers, shape.directions)
    yield PRECISIONS.index(words.precision_of(workload.choice))
    yield from (workload.rows, workload.steps, calls)
    for profile in words.parts(workload.choice, shape.sweeps):
        yield from (words.widest_block(profile), words.until(profile, workload.steps))


def _said(what: str, text: str) -> float:
    found = re.search(rf"{what}:\s+([\d,]+)", text)
    if found is None:
        raise GrainshiftError(f"cachegrind did not say how many {what}")
    return float(found.group(1).replace(",", ""))


def _rows(workload: Workload, caches: Caches, counted: Hits) -> Iterable[Row]:
    modelled = model(workload, caches)
    pairs = (("first", modelled.first, counted.first), ("last", modelled.last, counted.last))
    for level, ours, theirs in pairs:
        notes = f"modelled {ours:.1%}, counted {theirs:.1%}"
        metric = f"hits of the {level} level, modelled against counted"
        off = 100.0 * abs(ours - theirs)
        name = f"{workload.name} {caches.name}"
        yield Row(name, metric, "points", off, {}, limit=LIMIT_POINTS, notes=notes)
