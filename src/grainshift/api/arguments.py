"""Reads what the user gave, and refuses it at the door with a sentence. Touches no model."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Integral, Real

from torch import nn

from grainshift.core.errors import NotTunable
from grainshift.core.family import Family
from grainshift.core.machine import Machine
from grainshift.core.settings import Settings
from grainshift.environment import environment
from grainshift.families.recurrence import Recurrence
from grainshift.policies import POLICIES

GOALS = ("latency", "throughput")
FAMILY_NAMES = ("recurrence",)
TORCH_FROM, TORCH_BELOW = (2, 9), (2, 15)

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_MOST_BYTES = 1 << 63
_SIZES = 'bytes such as 2_000_000_000, a size such as "2GB" or "512MiB", or a share such as "80%"'


def check_model(model: object) -> nn.Module:
    """The model, if it is one."""
    if not isinstance(model, nn.Module):
        raise NotTunable(f"model={model!r:.80} is a {type(model).__name__}; give a torch.nn.Module")
    return model


def check_torch(version: str) -> None:
    """Refuse a torch that this version of Grainshift was not made for."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not TORCH_FROM <= numbers < TORCH_BELOW:
        low, high = (".".join(map(str, bound)) for bound in (TORCH_FROM, TORCH_BELOW))
        raise NotTunable(f"torch {version} is installed; install torch>={low},<{high}")


def read_bytes(name: str, given: int | str | None, all_bytes: int) -> int | None:
    """A memory budget in bytes."""
    if given is None:
        return None
    size = _size(given, all_bytes)
    if size is None or not size < _MOST_BYTES:
        raise NotTunable(f"{name}={given!r:.80} cannot be read as memory; give {_SIZES}")
    if size < 1:
        raise NotTunable(f"{name}={given!r:.80} leaves no memory at all; give {_SIZES}")
    return int(size)


def _size(given: int | str, all_bytes: int) -> float | None:
    if not isinstance(given, str):
        is_count = isinstance(given, Integral) and not isinstance(given, bool)
        return int(given) if is_count else None
    if share := _SHARE.fullmatch(given):
        return all_bytes * float(share[1]) / 100.0
    if found := _SIZE.fullmatch(given):
        units = _BINARY if found[3] else _UNITS
        return float(found[1]) * units[found[2].lower()]
    return None


def read_positive(name: str, given: float | None, would_do: str) -> float | None:
    """A positive number, or None."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Real) or not 0.0 < float(given) < 1e9:
        raise NotTunable(f"{name}={given!r:.80} will not do; give {would_do}")
    return float(given)


def read_wait(timeout: float) -> float:
    """Seconds to wait, nought included."""
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, Real)
        or not 0.0 <= float(timeout) < 1e9
    ):
        raise NotTunable(f"timeout={timeout!r:.80} will not do; give seconds such as 60")
    return float(timeout)


def read_goal(goal: str) -> str:
    """One of the goals."""
    if not isinstance(goal, str) or goal not in GOALS:
        raise NotTunable(f"goal={goal!r:.80} is unknown; give one of {', '.join(GOALS)}")
    return goal


def read_engines(engines: Sequence[str] | None, machine: Machine) -> Machine:
    """The Machine with only those engines that may be used."""
    if engines is None:
        return machine
    cpus = {f"cpu:{number}": core for number, core in enumerate(machine.cores)}
    gpus = {f"cuda:{number}": gpu for number, gpu in enumerate(machine.accelerators)}
    known = ", ".join([*cpus, *gpus])
    named = _names(engines)
    if not named:
        raise NotTunable(f"engines={engines!r:.80} will not do; give a list out of {known}")
    for engine in named:
        if engine not in cpus and engine not in gpus:
            raise NotTunable(f"engines: there is no {engine!r:.80}; give a list out of {known}")
    cores = tuple(core for name, core in cpus.items() if name in named)
    accelerators = tuple(gpu for name, gpu in gpus.items() if name in named)
    return replace(machine, cores=cores or machine.cores[:1], accelerators=accelerators)


def read_families(names: Sequence[str] | None, settings: Settings) -> tuple[Family, ...]:
    """The families to use; all of them unless some are named."""
    wanted = FAMILY_NAMES if names is None else _names(names)
    known = ", ".join(FAMILY_NAMES)
    if not wanted:
        raise NotTunable(f"families={names!r:.80} will not do; give a list out of {known}")
    for name in wanted:
        if name not in FAMILY_NAMES:
            raise NotTunable(f"families: there is no {name!r:.80}; give a list out of {known}")
    return tuple(_make_family(name, settings) for name in dict.fromkeys(wanted))


def _names(given: object) -> tuple[str, ...]:
    """The names in a list, or nothing when it is no list of names."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return ()
    names = tuple(given)
    return names if all(isinstance(name, str) for name in names) else ()


def _make_family(name: str, settings: Settings) -> Family:
    makers = {"recurrence": lambda: Recurrence(settings.segment_s, environment().kernels_folder)}
    return makers[name]()


def read_policy(name: str | None) -> str | None:
    """The name of a policy, or None for each family's own."""
    if name is not None and (not isinstance(name, str) or name not in POLICIES):
        raise NotTunable(f"policy={name!r:.80} is unknown; give one of {', '.join(POLICIES)}")
    return name


def read_settings(settings: object) -> Settings:
    """The Settings, or the defaults."""
    if settings is None:
        return Settings()
    if not isinstance(settings, Settings):
        kind = type(settings).__name__
        raise NotTunable(f"settings={settings!r:.80} is a {kind}; give grainshift.Settings(...)")
    return settings
