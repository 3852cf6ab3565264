"""Rates modelled from clock, cores and vector width, for as long as none were measured."""

from dataclasses import replace

from grainshift.core.conditions import Figure, Source
from grainshift.core.machine import Machine

_REACHED = 0.8  # of the peak on paper, by a good matrix product
_DRAM_CEILING_BYTES = 200e9  # a socket's memory, however many cores ask
_BYTES_PER_CYCLE = {"l1_bytes": 64.0, "l2_bytes": 32.0, "l3_bytes": 16.0, "dram_bytes": 8.0}


def modelled_rates(machine: Machine, clock_hz: float) -> tuple[Figure, ...]:
    """What a machine of these facts usually reaches, all its usable cores together."""
    cycles = clock_hz * machine.quota_cores
    fp32 = _flops_per_cycle(machine)
    rates = {
        "fp32_flops": fp32 * cycles * _REACHED,
        "bf16_flops": _bf16_per_cycle(machine, fp32) * cycles * _REACHED,
    }
    levels = {f"l{cache.level}_bytes" for cache in machine.caches} | {"dram_bytes"}
    for name, width in _BYTES_PER_CYCLE.items():
        if name in levels:
            rates[name] = width * cycles
    rates["dram_bytes"] = min(rates["dram_bytes"], _DRAM_CEILING_BYTES)
    return tuple(Figure(name, value, Source.MODELLED) for name, value in rates.items())


def with_rates(machine: Machine, rates: tuple[Figure, ...]) -> Machine:
    """The machine with these rates, in place of those of the same name."""
    merged = {figure.name: figure for figure in (*machine.rates, *rates)}
    return replace(machine, rates=tuple(merged.values()))


def best_rates(earlier: tuple[Figure, ...] | None, later: tuple[Figure, ...]) -> tuple[Figure, ...]:
    """Of two measurements the higher of each rate: a peak that other processes hid comes out."""
    best = {figure.name: figure for figure in earlier or ()}
    for figure in later:
        if figure.name not in best or figure.value > best[figure.name].value:
            best[figure.name] = figure
    return tuple(best.values())


def _flops_per_cycle(machine: Machine) -> float:
    """Two for a multiply-add, times lanes, times units that run at once."""
    sets = machine.instruction_sets
    if "avx512f" in sets:  # the makers differ: two full units, or one in two halves
        return 64.0 if "Intel" in machine.cpu else 32.0
    if "avx2" in sets:
        return 32.0
    if "avx" in sets or "sve" in sets or "neon" in sets:
        return 16.0
    return 8.0


def _bf16_per_cycle(machine: Machine, fp32: float) -> float:
    sets = machine.instruction_sets
    if "amx_bf16" in sets:
        return 1024.0
    if "avx512_bf16" in sets or "bf16" in sets:
        return 2.0 * fp32
    return 0.5 * fp32  # converted there and back
