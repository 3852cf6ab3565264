"""Measures the CPU's peak FLOP/s: the best of MKL and of oneDNN with packed weights."""

import time
from collections.abc import Callable
from typing import Any

Clock = Callable[[], float]
_Product = tuple[Callable[[], Any], float]

_SIZES = (256, 512, 1024, 2048, 4096)
_BURST_S = 0.004


def measure_flops(budget_s: float, clock: Clock) -> dict[str, float]:
    """The most FLOP/s of any way to multiply two matrices, by precision.

    A precision or a way that this build of torch lacks is left out.
    """
    import torch

    kinds = {
        "fp32_flops": (_mkl(torch.float32), _onednn(torch.float32)),
        "bf16_flops": (_mkl(torch.bfloat16), _onednn(torch.bfloat16)),
        "int8_flops": (_int8,),
    }
    share_s = budget_s / sum(len(ways) for ways in kinds.values())
    rates: dict[str, float] = {}
    with torch.inference_mode():
        for name, ways in kinds.items():
            best = max(_peak(way, share_s, clock) for way in ways)
            if best > 0.0:
                rates[name] = best
    return rates


def _peak(way: Callable[[int], _Product], budget_s: float, clock: Clock) -> float:
    """The most FLOP/s at any size: short runs slip between other work, long ones hide calls."""
    best = 0.0
    end_s = clock() + budget_s
    try:
        for tried, size in enumerate(_SIZES):
            run, flops = way(size)
            run()
            share_s = (end_s - clock()) / (len(_SIZES) - tried)
            fastest_s = _fastest_s(run, share_s, clock)
            best = max(best, flops / fastest_s)
            if 8.0 * fastest_s > end_s - clock():  # the next size would not fit
                break
    except (RuntimeError, AttributeError):  # how torch says that it has no such operator
        return 0.0
    return best


def _fastest_s(run: Callable[[], Any], budget_s: float, clock: Clock) -> float:
    """The shortest run; rests between bursts, since who has rested is let in front of others."""
    end_s, fastest_s = clock() + budget_s, float("inf")
    while fastest_s == float("inf") or clock() < end_s:
        time.sleep(_BURST_S)
        burst_end_s = now_s = clock() + _BURST_S
        while now_s <= burst_end_s:
            start_s = clock()
            run()
            now_s = clock()
            fastest_s = min(fastest_s, max(now_s - start_s, 1e-9))
    return fastest_s


def _mkl(dtype: Any) -> Callable[[int], _Product]:
    def prepare(size: int) -> _Product:
        import torch

        left, right = (torch.ones(size, size, dtype=dtype) for _ in range(2))
        out = torch.empty(size, size, dtype=dtype)
        return (lambda: torch.mm(left, right, out=out)), 2.0 * size**3

    return prepare


def _onednn(dtype: Any) -> Callable[[int], _Product]:
    def prepare(size: int) -> _Product:
        import torch

        left, right = (torch.ones(size, size, dtype=dtype) for _ in range(2))
        packed = torch.ops.mkldnn._reorder_linear_weight(right, size)
        linear = torch.ops.mkldnn._linear_pointwise
        return (lambda: linear(left, packed, None, "none", [], "")), 2.0 * size**3

    return prepare


def _int8(size: int) -> _Product:
    import torch

    left, right = (torch.ones(size, size, dtype=torch.int8) for _ in range(2))
    return (lambda: torch._int_mm(left, right)), 2.0 * size**3
