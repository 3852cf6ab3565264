"""Keeps what a policy learnt in one .npz file, without pickle. Knows no learner."""

import os
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grainshift.core.errors import NotTunable
from grainshift.core.policy import Policy

__all__ = ["FORMAT", "load", "save"]

FORMAT = 1
_BROKEN = (
    *(OSError, ValueError, KeyError, EOFError, MemoryError, TypeError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def save(policy: Policy, path: Path) -> None:
    """Write all that a policy learnt, whole or not at all."""
    content: dict[str, Any] = {
        "format": np.array([FORMAT]),
        "policy": np.array([policy.name]),
    }
    content |= {f"learnt_{name}": np.asarray(array) for name, array in policy.arrays().items()}
    assert all(array.dtype.kind != "O" for array in content.values()), "an object needs a pickle"
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as draft:
        try:
            np.savez_compressed(draft, **content)
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise


def load(policy: Policy, path: Path) -> None:
    """Give a policy what `save` wrote of one of the same name; a refusal leaves it as it was."""
    content = _read(path)
    if "format" not in content or "policy" not in content:
        raise NotTunable(f"{path} is no policy of Grainshift; give a file that it saved")
    found, name = content["format"].tolist(), content["policy"].tolist()
    if found != [FORMAT]:
        raise NotTunable(f"{path} has format {found}, not {FORMAT}; save it anew by this version")
    if name != [policy.name]:
        raise NotTunable(
            f"{path} holds {name[0]!r}, not {policy.name!r}; load it into its own kind"
        )
    policy.restore(
        {
            name.removeprefix("learnt_"): array
            for name, array in content.items()
            if name.startswith("learnt_")
        }
    )


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        raise NotTunable(f"{path} does not exist; give the file of a saved policy") from None
    except _BROKEN as fault:
        raise NotTunable(
            f"{path} cannot be read as a saved policy ({type(fault).__name__}); save it anew"
        ) from fault
