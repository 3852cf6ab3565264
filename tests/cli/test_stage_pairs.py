"""The demo's measuring, on a clock of its own and models that cost what they say."""

import random
from itertools import islice
from typing import Any

import pytest
import torch

from grainshift.cli.stage.pairs import (
    LEAST_BLOCKS,
    Block,
    Contest,
    speedup,
    tuned_timings,
    whole_speedup,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now_s

    def model(self, name: str, *costs_s: float, output: float = 1.0) -> Any:
        """A model whose calls cost these seconds in turn, the last one for ever after."""
        left = list(costs_s)

        def call(given: Any) -> torch.Tensor:
            assert not torch.is_grad_enabled()
            self.calls.append(name)
            self.now_s += left.pop(0) if len(left) > 1 else left[0]
            return torch.tensor([output])

        return call


def contest(clock: Clock, stock: Any, tuned: Any) -> Contest:
    return Contest(stock, tuned, [1, 2], clock, random.Random(0))


def test_a_block_times_both_turns_and_leaves_the_first_call_of_each_out() -> None:
    clock = Clock()
    both = contest(clock, clock.model("stock", 0.004), clock.model("tuned", 0.002))
    block = next(both.blocks())
    assert block.stock_s == pytest.approx((0.004,) * 2)  # as many as fit into a turn
    assert len(block.tuned_s) == len(block.stock_s)
    assert len(block.all_stock_s) == clock.calls.count("stock") == 1 + 1 + 2
    assert len(block.all_tuned_s) == clock.calls.count("tuned")


def test_the_tuned_model_gets_most_of_the_time_to_explore() -> None:
    clock = Clock()
    both = contest(clock, clock.model("stock", 0.2), clock.model("tuned", 0.01))
    blocks = list(islice(both.blocks(), 5))
    tuned_s = sum(sum(block.all_tuned_s) for block in blocks)
    assert tuned_s > 0.5 * clock.now_s
    assert all(len(block.stock_s) == len(block.tuned_s) == 1 for block in blocks)


def test_the_order_of_turns_is_drawn_anew() -> None:
    clock = Clock()
    both = contest(clock, clock.model("stock", 0.02), clock.model("tuned", 0.02))
    list(islice(both.blocks(), 20))
    last_of_block = {clock.calls[at] for at in range(len(clock.calls) // 20 - 1, len(clock.calls))}
    assert last_of_block == {"stock", "tuned"}


def test_the_speedup_is_what_the_models_cost() -> None:
    clock = Clock()
    both = contest(clock, clock.model("stock", 0.006), clock.model("tuned", 0.002))
    blocks = list(islice(both.blocks(), 8))
    ratio = speedup(blocks)
    assert ratio is not None and ratio.value == pytest.approx(3.0)
    assert ratio.low == pytest.approx(3.0) and ratio.high == pytest.approx(3.0)
    assert whole_speedup(blocks) == pytest.approx(3.0)
    assert tuned_timings(blocks).median == pytest.approx(0.002)


def test_slower_is_not_hidden() -> None:
    clock = Clock()
    both = contest(clock, clock.model("stock", 0.002), clock.model("tuned", 0.004))
    ratio = speedup(list(islice(both.blocks(), 8)))
    assert ratio is not None and ratio.high < 1.0


def test_one_dear_call_shows_in_the_whole_and_not_in_the_median() -> None:
    clock = Clock()
    costs_s = (0.001,) * 40 + (0.5, 0.001)
    both = contest(clock, clock.model("stock", 0.002), clock.model("tuned", *costs_s))
    blocks = list(islice(both.blocks(), 12))
    ratio, whole = speedup(blocks), whole_speedup(blocks)
    assert ratio is not None and ratio.value == pytest.approx(2.0)
    assert whole is not None and whole < 1.0


def test_too_few_blocks_tell_nothing() -> None:
    block = Block((0.1,), (0.1,), (0.1,), (0.1,), 0.0)
    assert speedup([block] * (LEAST_BLOCKS - 1)) is None
    assert speedup([block] * LEAST_BLOCKS) is not None
    assert whole_speedup([]) is None


def test_a_wrong_output_is_seen() -> None:
    clock = Clock()
    both = contest(clock, clock.model("stock", 0.01), clock.model("tuned", 0.01, output=1.0 + 1e-3))
    assert next(both.blocks()).error_ratio == pytest.approx(1e-3, rel=0.01)
