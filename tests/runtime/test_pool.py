"""Blocks that come back by themselves: never to two at once, and not kept for nothing."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grainshift.runtime import pool as pools
from grainshift.runtime.pool import Pool

LARGE = 1 << 17  # floats: two blocks' least size


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_a_block_comes_back_once_nobody_refers_to_it() -> None:
    pool = Pool()
    first = pool.take(4, LARGE)
    assert first.shape == (4, LARGE) and first.dtype is torch.float32
    where, view = address(first), first[1:]
    del first
    assert address(pool.take(4, LARGE)) != where  # a view still reads it
    del view
    assert address(pool.take(4, LARGE)) == where


def test_what_autograd_keeps_is_not_given_away_and_comes_back_after_the_way_back() -> None:
    pool = Pool()

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            kept = pool.take(LARGE).fill_(3.0)
            ctx.save_for_backward(kept)  # type: ignore[attr-defined]
            return x * 2.0

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
            (kept,) = ctx.saved_tensors  # type: ignore[attr-defined]
            return grad * kept[0]

    x = torch.ones(2, requires_grad=True)
    for _ in range(3):
        y = Keep.apply(x)  # type: ignore[no-untyped-call]
        pool.take(LARGE).fill_(5.0)  # somebody else's
        x.grad = None
        y.sum().backward()
        assert x.grad is not None and torch.equal(x.grad, torch.full((2,), 3.0))
    assert pool.held_bytes == 2 * 4 * LARGE


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=60))
def test_no_two_at_once_share_memory(steps: list[tuple[int, bool]]) -> None:
    pool, held = Pool(), []
    for number, (size, lets_go) in enumerate(steps):
        taken = pool.take(size * LARGE // 2)
        taken.fill_(float(number))
        held.append((number, taken))
        if lets_go:
            held.pop(0)
        del taken
        assert all(bool((tensor == float(mark)).all()) for mark, tensor in held)


def test_what_is_not_used_any_more_goes_back_to_the_system() -> None:
    pool = Pool(idle_takes=3)
    pool.take(16 * LARGE)
    assert pool.held_bytes >= 64 * LARGE
    for _ in range(5):
        pool.take(LARGE)  # far too small for that block
    assert pool.held_bytes == 4 * LARGE


def test_whichever_block_is_idle_goes_and_those_in_use_stay() -> None:
    pool = Pool(idle_takes=4)
    held = pool.take(LARGE)
    pool.take(16 * LARGE)
    pool.take(5 * LARGE)  # neither is the first block, nor are their sizes alike
    for _ in range(8):
        pool.take(LARGE)
    assert pool.held_bytes == 2 * 4 * LARGE
    where = address(held)
    del held
    for _ in range(3):  # it was in use until now, and so is not idle yet
        pool.take(LARGE // 2)
    assert where in {address(pool.take(LARGE)), address(pool.take(LARGE))}


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_floats_are_floats_whatever_the_default_is(default: torch.dtype) -> None:
    pool = Pool()
    torch.set_default_dtype(default)
    try:
        assert pool.take(3).dtype is pool.take(LARGE).dtype is torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_small_takes_count_as_well() -> None:
    pool = Pool(idle_takes=3)
    pool.take(16 * LARGE)
    for _ in range(5):
        pool.take(8)
    assert pool.held_bytes == 0


def test_the_same_takes_need_no_more_memory_the_hundredth_time() -> None:
    pool, seen = Pool(), []
    for _ in range(100):
        first, second = pool.take(8, LARGE), pool.take(7, LARGE)
        del first, second
        seen.append(pool.held_bytes)
    assert len(set(seen)) == 1


def test_versions_are_not_shared_and_small_ones_are_nobodys() -> None:
    pool = Pool()
    first = pool.take(LARGE)
    version = first._version
    first.add_(1.0)
    del first
    assert pool.take(LARGE)._version == version
    pool = Pool()
    assert pool.take(3, 5).shape == (3, 5) and pool.held_bytes == 0


def test_a_block_taken_in_inference_can_be_kept_for_gradients() -> None:
    pool = Pool()
    with torch.inference_mode():
        pool.take(LARGE)
    assert not pool.take(LARGE).is_inference()


def test_threads_share_a_pool() -> None:
    pool, wrong = Pool(), []

    def work(mark: float) -> None:
        for _ in range(50):
            mine = pool.take(LARGE)
            mine.fill_(mark)
            if not bool((mine == mark).all()):
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(float(mark),)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and pool.held_bytes <= 4 * 2 * 4 * LARGE  # the next before the last is gone


def test_where_nobody_counts_every_tensor_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_use_count", None)
    pool = Pool()
    assert pool.take(2, LARGE).shape == (2, LARGE) and pool.held_bytes == 0
