"""A Verdict: a Guard's word on a Choice, with its reason. Knows no Guard."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Admitted or refused, by whom, and why."""

    admitted: bool
    guard: str = ""
    reason: str = ""


ADMITTED = Verdict(True)
