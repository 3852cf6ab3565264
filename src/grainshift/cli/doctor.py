"""The command `doctor`: whether everything that Grainshift needs is there. Changes nothing."""

import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grainshift.api.arguments import check_torch
from grainshift.core.conditions import CONDITION_NAMES, Conditions
from grainshift.core.errors import JournalFault, NotTunable
from grainshift.core.machine import Machine
from grainshift.environment import Environment, environment
from grainshift.journal import runs
from grainshift.machine import Sensors, find_machine, load_rates

_COMPILERS = ("g++", "clang++", "c++")
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 1 << 30, 128 << 20
_WINDOW_S = 0.1
_MODELLED = ("cache_hit_ratio", "dram_ratio")  # told once a model runs


class Grade(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what would do where something is amiss."""

    name: str
    grade: Grade
    found: str
    would_do: str = ""


@dataclass(frozen=True)
class Ground:
    """What is examined."""

    place: Environment
    machine: Machine
    conditions: Conditions
    torch_version: str = torch.__version__
    threads: int = field(default_factory=torch.get_num_threads)
    which: Callable[[str], str | None] = shutil.which


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Check this installation, and say what would do where something is amiss.

    The exit status is 1 when something fails.
    """
    findings = tuple(examine(_ground()))
    sound = all(finding.grade is not Grade.FAIL for finding in findings)
    if as_json:
        data = {"sound": sound, "checks": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(data, indent=1))
    else:
        Console().print(_table(findings))
    if not sound:
        raise typer.Exit(1)


def examine(ground: Ground) -> Iterator[Finding]:
    """Every check in turn."""
    for check in _CHECKS:
        yield from check(ground)


def _ground() -> Ground:
    machine = find_machine()
    sensors = Sensors(machine)
    time.sleep(_WINDOW_S)
    conditions = sensors.sample(time.monotonic())
    sensors.close()
    return Ground(environment(), machine, conditions)


def _python(ground: Ground) -> Iterator[Finding]:
    number = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", Grade.OK, f"{number}, {sys.executable}")


def _torch(ground: Ground) -> Iterator[Finding]:
    try:
        check_torch(ground.torch_version)
    except NotTunable as refusal:
        found, _, would_do = str(refusal).partition("; ")
        yield Finding("torch", Grade.FAIL, found, would_do)
        return
    yield Finding("torch", Grade.OK, ground.torch_version)


def _cores(ground: Ground) -> Iterator[Finding]:
    quota, threads = ground.machine.quota_cores, ground.threads
    found = f"{len(ground.machine.cores)} usable, CPU time of {quota:g}, {threads} PyTorch threads"
    if threads > max(quota, 1.0):
        fitting = max(1, int(quota))
        would_do = f"more threads than cores wait for one another: set OMP_NUM_THREADS={fitting}"
        yield Finding("cores", Grade.WARN, found, would_do)
    else:
        yield Finding("cores", Grade.OK, found)


def _memory(ground: Ground) -> Iterator[Finding]:
    free_bytes = ground.conditions.value("free_memory_bytes", -1.0)
    if free_bytes < 0.0:
        yield Finding("memory", Grade.WARN, "this machine does not tell how much is free")
        return
    found = f"{free_bytes / 2**30:.1f} GiB free of {ground.machine.memory_bytes / 2**30:.1f} GiB"
    if free_bytes >= _LITTLE_BYTES:
        yield Finding("memory", Grade.OK, found)
        return
    grade = Grade.FAIL if free_bytes < _TOO_LITTLE_BYTES else Grade.WARN
    yield Finding("memory", grade, found, "end other programs, or raise the container's limit")


def _sensors(ground: Ground) -> Iterator[Finding]:
    told = {figure.name for figure in ground.conditions.figures}
    missing = [name for name in CONDITION_NAMES if name not in told and name not in _MODELLED]
    if missing:
        yield Finding("sensors", Grade.WARN, f"this machine does not tell {', '.join(missing)}")
    else:
        yield Finding("sensors", Grade.OK, "all Conditions are told")


def _compiler(ground: Ground) -> Iterator[Finding]:
    for name in _COMPILERS:
        if path := ground.which(name):
            yield Finding("compiler", Grade.OK, path)
            return
    would_do = "install g++ or clang; what must be compiled is not offered without"
    yield Finding("compiler", Grade.WARN, f"none of {', '.join(_COMPILERS)} is there", would_do)


def _cache(ground: Ground) -> Iterator[Finding]:
    folder = ground.place.cache_folder
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    would_do = "make it writable, or name another folder in GRAINSHIFT_CACHE"
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding("cache", Grade.FAIL, f"{folder} cannot be written", would_do)
    elif nearest != folder:
        yield Finding("cache", Grade.OK, f"{folder} will be made when it is first needed")
    elif (about := folder.stat()) and _is_open_to_others(about):
        would_do = f"chmod 700 {folder}"
        yield Finding("cache", Grade.WARN, f"{folder} is open to other users", would_do)
    else:
        yield Finding("cache", Grade.OK, f"{folder}, private")


def _is_open_to_others(about: os.stat_result) -> bool:
    foreign = hasattr(os, "geteuid") and about.st_uid != os.geteuid()
    return foreign or bool(stat.S_IMODE(about.st_mode) & 0o077)


def _journal(ground: Ground) -> Iterator[Finding]:
    path = ground.place.journal_file
    if not path.exists():
        yield Finding("journal", Grade.OK, "none yet; the first model that is tuned begins it")
        return
    try:
        count = len(runs(path))
    except JournalFault as fault:
        yield Finding("journal", Grade.FAIL, str(fault), f"move it away: {path}")
        return
    size = path.stat().st_size / 2**20
    yield Finding("journal", Grade.OK, f"{path}, runs: {count}, {size:.1f} MiB")


def _rates(ground: Ground) -> Iterator[Finding]:
    if load_rates(ground.place.rates_folder, ground.machine):
        yield Finding("rates", Grade.OK, "measured on this machine with this PyTorch")
    else:
        found = "not measured here yet, so Forecasts use modelled ones"
        yield Finding("rates", Grade.WARN, found, "run: grainshift probe")


def _extras(ground: Ground) -> Iterator[Finding]:
    """An extra that is missing is no fault: it is asked for where it is used."""
    for extra, packages in _packages_by_extra().items():
        missing = [package for package in packages if not _is_installed(package)]
        if missing:
            found = f"not installed: {', '.join(missing)}"
            would_do = f"if you need it: pip install 'grainshift[{extra}]'"
            yield Finding(f"extra {extra}", Grade.OK, found, would_do)
        else:
            yield Finding(f"extra {extra}", Grade.OK, f"installed: {', '.join(packages)}")


def _packages_by_extra() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in requires("grainshift") or ():
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"](\w+)", line)
        if package and extra and package[0] != "grainshift":
            found.setdefault(extra[1], []).append(package[0])
    return found


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


_CHECKS: tuple[Callable[[Ground], Iterator[Finding]], ...] = (
    _python,
    _torch,
    _cores,
    _memory,
    _sensors,
    _compiler,
    _cache,
    _journal,
    _rates,
    _extras,
)
_COLOURS = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}


def _table(findings: tuple[Finding, ...]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        said = Text(finding.found)
        if finding.would_do:
            said.append(f"\n→ {finding.would_do}", style="bold")
        grade = Text(finding.grade, style=_COLOURS[finding.grade])
        table.add_row(grade, Text(finding.name, no_wrap=True), said)
    return table
