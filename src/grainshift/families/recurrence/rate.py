"""The rate at which a matrix streams from the cache that holds it. Runs nothing."""

from grainshift.core.machine import Machine

_NOMINAL_BYTES = 3e10


def stream_rate(weight_bytes: int, machine: Machine) -> float:
    """Bytes a second from the smallest cache that holds the matrix."""
    for cache in sorted(machine.caches, key=lambda cache: cache.level):
        rate = machine.rate(f"l{cache.level}_bytes")
        if rate and weight_bytes <= cache.size_bytes:
            return rate
    return machine.rate("dram_bytes") or _NOMINAL_BYTES
