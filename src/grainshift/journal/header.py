"""The header of a run: what replay needs to begin. Knows no file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, cast, get_type_hints
from uuid import uuid4

from grainshift.core.codec import decode, encode
from grainshift.core.errors import JournalFault
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Which run this is, when and where it began, and what its tuner began with."""

    run: str
    started_at_s: float
    machine: str
    versions: tuple[tuple[str, str], ...]
    settings: Settings
    limits: Limits
    seed: int


def new_run(
    started_at_s: float,
    machine: str,
    versions: Mapping[str, str],
    settings: Settings,
    limits: Limits | None = None,
) -> RunHeader:
    """The header of a run that begins now, under a name of its own."""
    named = tuple(sorted(versions.items()))
    limits = limits or Limits()
    return RunHeader(
        uuid4().hex[:16], started_at_s, machine, named, settings, limits, settings.seed
    )


def header_to_text(header: RunHeader) -> str:
    """A header as JSON, fields by name, so that later versions can read it."""
    return json.dumps(_by_name(header))


def header_from_text(text: str) -> RunHeader:
    """The header that `header_to_text` wrote; what it does not tell takes the default."""
    try:
        return _from_names(RunHeader, json.loads(text))
    except (TypeError, ValueError, KeyError, AttributeError) as fault:
        raise JournalFault(f"a run's header cannot be read by this version: {fault}") from fault


def _by_name(value: Any) -> dict[str, Any]:
    return {
        field.name: _by_name(item) if is_dataclass(item) else encode(item)
        for field in fields(value)
        for item in [getattr(value, field.name)]
    }


def _from_names(kind: type[T], data: dict[str, Any]) -> T:
    hints = get_type_hints(kind)
    if unknown := data.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    found = {
        name: _from_names(cast(Any, hints[name]), item)
        if is_dataclass(hints[name])
        else decode(cast(Any, hints[name]), item)
        for name, item in data.items()
    }
    return kind(**found)
