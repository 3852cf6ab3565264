"""Grainshift makes a PyTorch model retune its own execution while it runs."""

from grainshift.api import Monitor, Report, SiteLine, freeze, report, settle, tune, untune
from grainshift.core.errors import GrainshiftError, JournalFault, MissingExtra, NotTunable
from grainshift.core.settings import Settings

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
