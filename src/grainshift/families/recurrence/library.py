"""The kernels as a loaded library: its functions, typed, and the threads that it borrows.

Knows no tensor. The library runs on PyTorch's own OpenMP threads, which are handed to it as
functions of the runtime that PyTorch has loaded; where there is none, it runs on one thread.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from grainshift.runtime.native import Native

KINDS = ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")
PRECISIONS = ("fp32", "bf16", "int8")
SOURCES = Path(__file__).with_name("kernels")
_WORD, _ADDRESS = ctypes.c_int64, ctypes.c_void_p


def native(folder: Path) -> Native:
    """The kernels' sources, and where the built library is kept."""
    return Native("recurrence", SOURCES, "forward.cpp", folder)


@dataclass(frozen=True, slots=True)
class Library:
    """The functions of the kernels, and two addresses: that of `run`, and that of `pool`, the
    functions of the borrowed threads.
    """

    make: Callable[..., int]
    free: Callable[[int], None]
    pack: Callable[..., None]
    held_bytes: Callable[[int], int]
    run: Callable[[bytes], int]
    run_address: int
    pool: int
    kept: Callable[[int], int]
    left: Callable[[int], int]
    turned_floats: Callable[[int, int], int]
    turn: Callable[..., None]
    run_back: Callable[[bytes], None]
    outer: Callable[[bytes], int]


@cache
def load(path: Path) -> Library:
    """Load a library that was checked; calls release the interpreter lock."""
    opened = ctypes.CDLL(str(path))
    return Library(
        make=_function(opened.gs_make, _ADDRESS, *[_WORD] * 6),
        free=_function(opened.gs_free, None, _ADDRESS),
        pack=_function(opened.gs_pack, None, _ADDRESS, _WORD, *[_ADDRESS] * 4),
        held_bytes=_function(opened.gs_held_bytes, _WORD, _ADDRESS),
        run=_function(opened.gs_run, ctypes.c_int, ctypes.c_char_p),
        run_address=ctypes.cast(opened.gs_run, _ADDRESS).value or 0,
        pool=ctypes.addressof(pool) if (pool := _pool()) else 0,
        kept=_function(opened.gs_kept, _WORD, _WORD),
        left=_function(opened.gs_left, _WORD, _WORD),
        turned_floats=_function(opened.gs_turned_floats, _WORD, _WORD, _WORD),
        turn=_function(opened.gs_turn, None, _WORD, _WORD, _ADDRESS, _ADDRESS),
        run_back=_function(opened.gs_run_back, None, ctypes.c_char_p),
        outer=_function(opened.gs_outer, ctypes.c_int, ctypes.c_char_p),
    )


def _function(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function


@cache
def _pool() -> Any:
    """Three functions of the OpenMP runtime in this process: parallel, number, size; or None."""
    for path in _loaded_runtimes():
        try:
            runtime = ctypes.CDLL(path)
            functions = (
                runtime.GOMP_parallel,
                runtime.omp_get_thread_num,
                runtime.omp_get_num_threads,
            )
        except (OSError, AttributeError):
            continue
        return (ctypes.c_void_p * 3)(*(ctypes.cast(f, ctypes.c_void_p).value for f in functions))
    return None


def _loaded_runtimes() -> list[str]:
    """The OpenMP runtimes mapped into this process, PyTorch's own first."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    runtimes = [path for path in paths if "libgomp" in path or "libomp" in path]
    return sorted(runtimes, key=lambda path: "torch" not in path)
