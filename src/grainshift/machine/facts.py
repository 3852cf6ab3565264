"""Reads the static facts of this computer into a Machine, in milliseconds. Measures nothing."""

import hashlib
import os
import platform
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from grainshift.core.machine import Accelerator, Cache, Machine
from grainshift.machine.accelerators import find_accelerators
from grainshift.machine.cgroup import find_groups, memory_limit_bytes, quota_cores
from grainshift.machine.files import PROC, SYS, parse_cores, parse_size, read_number, read_text
from grainshift.machine.kept import load_rates
from grainshift.machine.modelled import modelled_rates, with_rates

_INSTRUCTION_SETS = {
    **{name: name for name in ("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f")},
    **{name: name for name in ("avx512_vnni", "avx512_bf16", "avx512_fp16")},
    **{name: name for name in ("amx_tile", "amx_bf16", "amx_int8", "sve", "sve2", "i8mm")},
    "neon": "neon",
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fp16",
    "bf16": "bf16",
}
_TYPICAL_CLOCK_HZ = 2.5e9


def find_machine(
    rates_folder: Path | None = None, *, proc: Path = PROC, sys: Path = SYS
) -> Machine:
    """The facts of this computer, with the rates kept in `rates_folder`, else modelled ones."""
    cores = _cores(proc, sys)
    groups = find_groups(proc, sys)
    name, flags = _processor(proc)
    caches, accelerators = _caches(sys, cores), find_accelerators()
    quota = min(float(len(cores)), quota_cores(groups) or float(len(cores)))
    sets = tuple(sorted({_INSTRUCTION_SETS[flag] for flag in flags & _INSTRUCTION_SETS.keys()}))
    bare = Machine(
        fingerprint=_fingerprint(name, len(cores), quota, caches, sets, accelerators),
        cpu=name,
        cores=cores,
        quota_cores=quota,
        memory_bytes=min(_memory_bytes(proc), memory_limit_bytes(groups) or 1 << 62),
        caches=caches,
        instruction_sets=sets,
        accelerators=accelerators,
    )
    machine = with_rates(bare, modelled_rates(bare, highest_clock_hz(proc, sys, cores[0])))
    kept = load_rates(rates_folder, machine) if rates_folder else None
    return with_rates(machine, kept) if kept else machine


def highest_clock_hz(proc: Path, sys: Path, core: int) -> float:
    """The highest clock of a core that the machine tells; a typical one when it tells none."""
    top_khz = read_number(sys / f"devices/system/cpu/cpu{core}/cpufreq/cpuinfo_max_freq")
    if top_khz:
        return top_khz * 1e3
    shown = _fields(proc / "cpuinfo").get("cpu MHz", "")
    try:
        return float(shown) * 1e6 or _TYPICAL_CLOCK_HZ
    except ValueError:
        return _TYPICAL_CLOCK_HZ


def _cores(proc: Path, sys: Path) -> tuple[int, ...]:
    allowed = parse_cores(_fields(proc / "self" / "status").get("Cpus_allowed_list", ""))
    online = parse_cores(read_text(sys / "devices/system/cpu/online")) or allowed
    usable = tuple(core for core in allowed if core in set(online))
    if usable:
        return usable
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _processor(proc: Path) -> tuple[str, set[str]]:
    """The processor's name and the flags of its instruction sets."""
    fields = _fields(proc / "cpuinfo")
    part = f"{fields.get('CPU implementer', '')} {fields.get('CPU part', '')}".strip()
    name = fields.get("model name") or part or platform.processor() or platform.machine()
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    if not flags and platform.machine() in ("arm64", "aarch64"):
        flags = {"neon"}  # no machine of this kind is without it
    return name, flags or _torch_flags()


def _torch_flags() -> set[str]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {"AVX2": {"avx2", "fma"}, "AVX512": {"avx2", "fma", "avx512f"}}.get(capability, set())


def _fields(path: Path) -> dict[str, str]:
    """The 'name: value' lines of a file, up to its first empty line."""
    pairs = (line.partition(":") for line in read_text(path).split("\n\n", 1)[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _caches(sys: Path, cores: tuple[int, ...]) -> tuple[Cache, ...]:
    """The data caches that the first usable core sees."""
    found: dict[int, Cache] = {}
    for folder in sorted((sys / f"devices/system/cpu/cpu{cores[0]}/cache").glob("index*")):
        level, size = read_number(folder / "level"), parse_size(read_text(folder / "size"))
        if level and size and read_text(folder / "type") != "Instruction":
            sharing = set(parse_cores(read_text(folder / "shared_cpu_list"))) & set(cores)
            found[level] = Cache(level, size, max(1, len(sharing)))
    return tuple(found[level] for level in sorted(found))


def _memory_bytes(proc: Path) -> int:
    total = _fields(proc / "meminfo").get("MemTotal", "").removesuffix(" kB")
    return int(total) << 10 if total.isdecimal() else int(psutil.virtual_memory().total)


def _fingerprint(
    name: str,
    cores: int,
    quota: float,
    caches: tuple[Cache, ...],
    sets: tuple[str, ...],
    accelerators: tuple[Accelerator, ...],
) -> str:
    """A hash of what decides speed; not of names, addresses or how much memory there is."""
    devices = tuple(device.name for device in accelerators)
    shapes = tuple((cache.level, cache.size_bytes, cache.shared_by) for cache in caches)
    told = repr((name, cores, round(quota, 2), shapes, sets, devices))
    return hashlib.sha256(told.encode()).hexdigest()[:16]
