"""Large blocks of memory that come back by themselves when nobody refers to them any more.

Fresh memory is dear: the system hands it out page by page, at the first touch of each, and takes it
back when it is let go. Knows nothing of what the blocks are for.
"""

import ctypes
import math
import threading
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

_LEAST_BYTES = 1 << 18  # what is smaller the system's allocator keeps by itself
_HUGE_BYTES = 1 << 21
_MADV_HUGEPAGE = 14
_CLASSES = 8  # sizes of blocks between a power of two and the next
_IDLE_TAKES = 64

_use_count = getattr(torch._C, "_storage_Use_Count", None)


@dataclass(slots=True, eq=False)
class _Block:
    memory: Tensor
    used_at: int = 0  # the take at which it was last found in use

    @property
    def is_free(self) -> bool:
        """Whether nothing but this object refers to it."""
        assert _use_count is not None
        count: int = _use_count(self.memory.untyped_storage()._cdata)
        return count == _OWN_USES


@dataclass
class Pool:
    """Blocks for float tensors; one that was in no use for many takes goes back to the system.

    All of them do when the pool is dropped.

    Threads may share it. Where this PyTorch does not tell who refers to a block, every tensor is a
    fresh one.
    """

    idle_takes: int = _IDLE_TAKES
    _blocks: list[_Block] = field(default_factory=list)
    _takes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, *sizes: int) -> Tensor:
        """A float tensor with anything in it."""
        wanted = 4 * math.prod(sizes)
        if _use_count is None or (wanted < _LEAST_BYTES and not self._blocks):
            return torch.empty(sizes, dtype=torch.float32, device="cpu")
        with self._lock, torch.inference_mode(False):
            self._takes += 1
            free: list[_Block] = []
            for block in self._blocks:
                if block.is_free:
                    free.append(block)
                else:
                    block.used_at = self._takes
            fits = [block for block in free if wanted <= len(block.memory) <= 2 * wanted]
            found = min(fits, key=lambda one: len(one.memory), default=None)
            for block in free:
                if block is not found and self._takes - block.used_at > self.idle_takes:
                    self._blocks.remove(block)
            if wanted < _LEAST_BYTES:
                return torch.empty(sizes, dtype=torch.float32, device="cpu")
            if found is None:
                found = _Block(_fresh(_class_of(wanted)))
                self._blocks.append(found)
            found.used_at = self._takes
            # As `data` it has a version of its own: what is written to one changes no other.
            return found.memory[:wanted].view(torch.float32).view(sizes).data

    @property
    def held_bytes(self) -> int:
        """What all blocks take, in use or not."""
        with self._lock:
            return sum(len(block.memory) for block in self._blocks)


def _class_of(wanted: int) -> int:
    """The size of the block for so many bytes: at most an eighth more."""
    step = max((1 << (wanted - 1).bit_length()) // (2 * _CLASSES), 64)
    return -(-wanted // step) * step


def _fresh(size: int) -> Tensor:
    """New memory, on huge pages where it is large enough and the system has them."""
    if size < _HUGE_BYTES:
        return torch.empty(size, dtype=torch.uint8, device="cpu")
    whole = torch.empty(size + _HUGE_BYTES, dtype=torch.uint8, device="cpu")
    skipped = -whole.data_ptr() % _HUGE_BYTES
    memory = torch.empty(0, dtype=torch.uint8, device="cpu")
    memory.set_(whole.untyped_storage(), skipped, (size,), (1,))  # a slice would refer to it twice
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(size), _MADV_HUGEPAGE
        )
    return memory


def _uses_of_one() -> int:
    """How many references are counted where there is none but a block's own."""
    memory = torch.empty(1, dtype=torch.uint8, device="cpu")
    count: int = _use_count(memory.untyped_storage()._cdata) if _use_count is not None else 0
    return count


_OWN_USES = _uses_of_one()
