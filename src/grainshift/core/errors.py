"""The exceptions that users meet.

GrainshiftError
├── NotTunable      the model or the argument cannot be used, and what would do
├── MissingExtra    a package that this door needs is not installed
└── JournalFault    the Journal cannot be read (never raised while a model runs)
"""


class GrainshiftError(Exception):
    """Anything that Grainshift refuses, with a sentence that says what to do."""


class NotTunable(GrainshiftError, ValueError):
    """An argument that cannot be used; names it, its value and what would do."""


class MissingExtra(GrainshiftError, ImportError):
    """A package that is needed here is missing; says how to install it."""


class JournalFault(GrainshiftError):
    """A Journal that cannot be read back."""
