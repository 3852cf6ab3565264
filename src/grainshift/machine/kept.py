"""Keeps measured rates in a folder, one private file per machine. Knows not how they came about."""

import json
import math
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from grainshift.core.codec import decode, encode
from grainshift.core.conditions import Figure
from grainshift.core.machine import Machine

_FORMAT = 1


def load_rates(folder: Path, machine: Machine) -> tuple[Figure, ...] | None:
    """The rates kept for this machine and this torch; None when there are none to be trusted."""
    try:
        with _path(folder, machine).open("rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            data = json.load(file)
        if data["made_for"] != _made_for(machine):
            return None
        rates = decode(cast(Any, tuple[Figure, ...]), data["rates"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return rates if rates and all(map(_credible, rates)) else None


def keep_rates(folder: Path, machine: Machine, rates: tuple[Figure, ...]) -> bool:
    """Keep the rates for later runs, all or nothing; False when the folder cannot be written."""
    text = json.dumps({"made_for": _made_for(machine), "rates": encode(rates)}, indent=1)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, draft = tempfile.mkstemp(dir=folder, prefix=".rates-")  # mode 0600
    except OSError:
        return False
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
        Path(draft).replace(_path(folder, machine))
    except OSError:
        with suppress(OSError):
            Path(draft).unlink()
        return False
    return True


def _path(folder: Path, machine: Machine) -> Path:
    return folder / f"rates-{machine.fingerprint}.json"


def _made_for(machine: Machine) -> list[Any]:
    import torch

    return [_FORMAT, machine.fingerprint, str(torch.__version__), torch.get_num_threads()]


def _credible(figure: Figure) -> bool:
    return isinstance(figure.name, str) and math.isfinite(figure.value) and figure.value > 0
