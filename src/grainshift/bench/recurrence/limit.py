"""The least time that a machine of known rates can take for a model. Knows no peer and no clock."""

from typing import Any

from torch import nn

from grainshift.bench.sweeps import dense_flops, sweeps_of
from grainshift.core.machine import Machine


def least_time_s(model: nn.Module, inputs: tuple[Any, ...], machine: Machine) -> float:
    """Sweep by sweep the longer of streaming its weights in every step and its arithmetic.

    Linear and convolution layers count by their arithmetic; all else counts as nothing.
    """
    flops_per_s = machine.rate("fp32_flops")
    sweeps_s = (
        max(
            sweep.steps * sweep.recurrent_bytes / bytes_per_s(sweep.recurrent_bytes, machine),
            sweep.flops / flops_per_s,
        )
        for sweep in sweeps_of(model, inputs)
    )
    return sum(sweeps_s) + dense_flops(model, inputs) / flops_per_s


def bytes_per_s(size_bytes: int, machine: Machine) -> float:
    """What all cores read together from the smallest level that holds so much, spread over them."""
    for cache in sorted(machine.caches, key=lambda cache: cache.level):
        copies = -(-len(machine.cores) // cache.shared_by)
        rate = machine.rate(f"l{cache.level}_bytes")
        if rate and size_bytes <= copies * cache.size_bytes:
            return rate
    return machine.rate("dram_bytes")
