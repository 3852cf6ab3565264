"""Measures how fast the cores together read from each cache level and from memory.

One call of `numpy.vecdot` reads a block again and again from C, without the interpreter lock: its
operands repeat a block of memory by a stride of zero, and each product of two rows is one call of
the vector library. So what Python costs vanishes, and every core streams from its own block.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import final

import numpy as np
from numpy.typing import NDArray

from grainshift.core.machine import Cache, Machine

Clock = Callable[[], float]

_ROW = 4096  # floats in a product: long enough to stream, too short for the library's own threads
_ROUND_S = 0.008  # short enough to slip between other processes
_GUESS_BYTES_PER_S = 20e9
_MOST_BYTES = 1 << 30


def measure_bandwidth(machine: Machine, budget_s: float, clock: Clock) -> dict[str, float]:
    """Bytes/s read from each level and from memory, and copied within memory, by all cores.

    A level whose block would not fit between its neighbours cannot be told apart and is left out.
    """
    cores = machine.cores[: max(1, int(machine.quota_cores))]
    blocks = _blocks(machine, len(cores))
    share_s = budget_s / (len(blocks) + 1)
    rates = {name: _read_rate(size, cores, share_s, clock) for name, size in blocks.items()}
    if "dram_bytes" in blocks:
        rates["copy_bytes"] = _copy_rate(blocks["dram_bytes"] * len(cores), share_s, clock)
    return rates


def _blocks(machine: Machine, cores: int) -> dict[str, int]:
    """The bytes that each core streams so that they come from one level."""
    blocks: dict[str, int] = {}
    below = 0
    for cache in machine.caches:
        mine = cache.size_bytes // min(cache.shared_by, cores)
        block = max(mine // 4 if cache.level >= 3 else mine * 3 // 4, below * 3 // 2)
        if block <= mine * 3 // 4:
            blocks[f"l{cache.level}_bytes"] = block
        below = max(below, mine)
    last = sum(_total_bytes(cache, cores) for cache in machine.caches[-1:])
    whole = min(max(4 * last, 64 << 20), _MOST_BYTES, machine.memory_bytes // 8)
    if whole >= 2 * last:
        blocks["dram_bytes"] = whole // cores
    return blocks


def _total_bytes(cache: Cache, cores: int) -> int:
    return cache.size_bytes * -(-cores // cache.shared_by)


def _read_rate(block_bytes: int, cores: tuple[int, ...], budget_s: float, clock: Clock) -> float:
    """The best of several rounds in which every core reads its block many times over."""
    repeats = max(1, int(_GUESS_BYTES_PER_S * _ROUND_S / block_bytes))
    streams = _Streams(block_bytes, repeats, cores, clock)
    end_s, best = clock() + budget_s, 0.0
    streams.run_s()
    while best == 0.0 or clock() < end_s:
        time.sleep(_ROUND_S / 4)  # who has rested is let in front of others
        best = max(best, streams.round_bytes / streams.run_s())
    streams.stop()
    return best


@final
class _Streams:
    """One thread for each core, pinned to it, that reads a block of its own whenever told to."""

    def __init__(
        self, block_bytes: int, repeats: int, cores: tuple[int, ...], clock: Clock
    ) -> None:
        self._clock = clock
        row = min(_ROW, block_bytes // 8)
        self._shape = (repeats, max(1, block_bytes // (8 * row)), row)
        self.round_bytes = 8 * int(np.prod(self._shape)) * len(cores)
        self._start = threading.Barrier(len(cores) + 1)
        self._finish = threading.Barrier(len(cores) + 1)
        self._going = True
        self._spans = [(0.0, 0.0)] * len(cores)
        self._threads = [
            threading.Thread(target=self._read, args=turn) for turn in enumerate(cores)
        ]
        for thread in self._threads:
            thread.start()

    def run_s(self) -> float:
        """One round, all threads at once: from the first start to the last end."""
        self._start.wait()
        self._finish.wait()
        first_s = min(start_s for start_s, _ in self._spans)
        last_s = max(end_s for _, end_s in self._spans)
        return max(last_s - first_s, 1e-9)

    def stop(self) -> None:
        """End the threads."""
        self._going = False
        self._start.wait()
        for thread in self._threads:
            thread.join()

    def _read(self, number: int, core: int) -> None:
        with suppress(OSError, AttributeError):  # unpinned is only less steady
            os.sched_setaffinity(0, {core})
        left, right = (self._repeated(np.ones(self._shape[1:], np.float32)) for _ in range(2))
        out = np.empty(self._shape[:2], np.float32)
        while True:
            self._start.wait()
            if not self._going:
                return
            start_s = self._clock()
            np.vecdot(left, right, out=out)
            self._spans[number] = (start_s, self._clock())
            self._finish.wait()

    def _repeated(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.broadcast_to(block, self._shape)


def _copy_rate(total_bytes: int, budget_s: float, clock: Clock) -> float:
    """Bytes/s, read and written both counted, of torch copying between two large blocks."""
    import torch

    source, target = (torch.ones(total_bytes // 8) for _ in range(2))
    end_s, best = clock() + budget_s, 0.0
    while best == 0.0 or clock() < end_s:
        start_s = clock()
        target.copy_(source)
        best = max(best, 2 * source.nbytes / max(clock() - start_s, 1e-9))
    return best
