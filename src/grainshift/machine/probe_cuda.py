"""Measures a CUDA device's peak FLOP/s and its bandwidths. Knows no CPU."""

from collections.abc import Callable
from typing import Any

from grainshift.core.machine import Machine

Clock = Callable[[], float]
_SIZE = 4096
_BLOCK_BYTES = 256 << 20


def measure_cuda(machine: Machine, budget_s: float, clock: Clock) -> dict[str, float]:
    """The rates of the first CUDA device, by names that begin with `cuda_`; none without one."""
    if not machine.accelerators:
        return {}
    import torch

    block, other = (torch.ones(_BLOCK_BYTES // 4, device="cuda") for _ in range(2))
    host = torch.ones(_BLOCK_BYTES // 4).pin_memory()
    flops = 2.0 * _SIZE**3
    ways: dict[str, tuple[Callable[[], Any], float]] = {
        "cuda_fp32_flops": (_product(torch.float32), flops),
        "cuda_bf16_flops": (_product(torch.bfloat16), flops),
        "cuda_memory_bytes": (lambda: block.copy_(other), 2.0 * _BLOCK_BYTES),
        "cuda_copy_bytes": (lambda: block.copy_(host, non_blocking=True), 1.0 * _BLOCK_BYTES),
    }
    share_s = budget_s / len(ways)
    return {name: work / _fastest_s(run, share_s, clock) for name, (run, work) in ways.items()}


def _product(dtype: Any) -> Callable[[], Any]:
    import torch

    left, right = (torch.ones(_SIZE, _SIZE, dtype=dtype, device="cuda") for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def _fastest_s(run: Callable[[], Any], budget_s: float, clock: Clock) -> float:
    """The shortest time of one run on the device, by its own events."""
    import torch

    event: Any = torch.cuda.Event  # torch types its constructor not at all
    run()
    torch.cuda.synchronize()
    end_s, fastest_s = clock() + budget_s, float("inf")
    while fastest_s == float("inf") or clock() < end_s:
        start, stop = (event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        fastest_s = min(fastest_s, start.elapsed_time(stop) / 1e3)
    return fastest_s
