"""Reads the environment, once and here only. Knows nothing of what is done with the answers."""

import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("grainshift", "torch", "numpy", "onnxruntime", "openvino")


@dataclass(frozen=True, slots=True)
class Environment:
    """What the user's environment says.

    cache_folder: where the Journal and measured facts are kept. GRAINSHIFT_CACHE names it;
        otherwise it is the folder `grainshift` inside XDG_CACHE_HOME or ~/.cache.
    """

    cache_folder: Path

    @property
    def journal_file(self) -> Path:
        """The Journal that every model of this user writes."""
        return self.cache_folder / "journal.sqlite"

    @property
    def rates_folder(self) -> Path:
        """Where the measured rates of this machine are kept."""
        return self.cache_folder / "machine"

    @property
    def kernels_folder(self) -> Path:
        """Where built kernels are kept."""
        return self.cache_folder / "kernels"

    def weights_file(self, family: str, policy: str) -> Path:
        """Where the weights of a family's policy are kept that was trained on this machine."""
        return self.cache_folder / "weights" / f"{family}-{policy}.npz"


def environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """The environment of this process, or the one that `variables` describe."""
    return Environment(cache_folder=_cache_folder(variables))


def child_variables(**changes: str) -> dict[str, str]:
    """This process's variables with changes, for a process started from here."""
    return {**os.environ, **changes}


def versions() -> dict[str, str]:
    """The versions of Python and of each package that figures depend on, where installed."""
    found = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _cache_folder(variables: Mapping[str, str]) -> Path:
    if named := variables.get("GRAINSHIFT_CACHE"):
        return _from_here(Path(named))
    shared = Path(variables.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():  # the standard says to ignore a relative one
        return shared / "grainshift"
    if home := variables.get("HOME"):
        return Path(home) / ".cache" / "grainshift"
    return Path(tempfile.gettempdir()) / f"grainshift-{os.getuid()}"


def _from_here(named: Path) -> Path:
    """The same folder wherever this process goes; what cannot be told fails where it is used."""
    with suppress(RuntimeError):  # there is no user of that name
        named = named.expanduser()
    with suppress(OSError):  # the folder that this process is in was removed
        named = named.absolute()
    return named
