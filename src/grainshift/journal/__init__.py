"""The append-only record of everything that happened, and what is read from it. Imports core."""

from grainshift.journal.append import Journal, JournalStatus
from grainshift.journal.experience import Experience, ExperienceKey
from grainshift.journal.file import JournalWarning
from grainshift.journal.header import RunHeader, new_run
from grainshift.journal.read import Gap, Run, entries, find_run, gaps, runs, sites
from grainshift.journal.replay import Difference, Replayed, decision_hash, rebuild, replay
from grainshift.journal.story import Line, Teller, story, tell
from grainshift.journal.text import Entry

__all__ = [
    "Difference",
    "Entry",
    "Experience",
    "ExperienceKey",
    "Gap",
    "Journal",
    "JournalStatus",
    "JournalWarning",
    "Line",
    "Replayed",
    "Run",
    "RunHeader",
    "Teller",
    "decision_hash",
    "entries",
    "find_run",
    "gaps",
    "new_run",
    "rebuild",
    "replay",
    "runs",
    "sites",
    "story",
    "tell",
]
