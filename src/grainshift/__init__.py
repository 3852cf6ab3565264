"""Grainshift makes a PyTorch model retune its own execution while it runs.

What needs PyTorch is imported when it is first asked for: a builder's process does without.
"""

from typing import TYPE_CHECKING, Any

from grainshift.core.errors import GrainshiftError, JournalFault, MissingExtra, NotTunable
from grainshift.core.settings import Settings

if TYPE_CHECKING:
    from grainshift.api import Monitor, Report, SiteLine, freeze, report, settle, tune, untune

__version__ = "0.1.0"

__all__ = [
    "GrainshiftError",
    "JournalFault",
    "MissingExtra",
    "Monitor",
    "NotTunable",
    "Report",
    "Settings",
    "SiteLine",
    "freeze",
    "report",
    "settle",
    "tune",
    "untune",
]


if not TYPE_CHECKING:  # or type checkers would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from grainshift import api

        globals()[name] = getattr(api, name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
