"""Machine: the facts about one computer, as data. Knows nothing of how they are found out."""

from dataclasses import dataclass

from grainshift.core.conditions import Figure


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of cache: its size, and how many of the usable cores share it."""

    level: int
    size_bytes: int
    shared_by: int


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device beside the CPU."""

    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What this computer is, measured once; `rates` are FLOP/s and bytes/s by name."""

    fingerprint: str
    cpu: str
    cores: tuple[int, ...]
    quota_cores: float
    memory_bytes: int
    caches: tuple[Cache, ...] = ()
    instruction_sets: tuple[str, ...] = ()
    rates: tuple[Figure, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()

    def rate(self, name: str) -> float:
        """A rate by name: `fp32_flops`, `bf16_flops`, `l2_bytes`, `dram_bytes`; 0 if unknown."""
        for figure in self.rates:
            if figure.name == name:
                return figure.value
        return 0.0
