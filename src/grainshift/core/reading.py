"""A Reading: one measurement of one Choice. Knows nothing of clocks or rings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of the Choice numbered `arm` in the order of the offer.

    `work` is the amount done (steps, rows), so that runs of one bucket compare. `trial` is 0 for
    a live run; else `block` and the trial's number say which paired block the run belongs to.
    """

    arm: int
    seconds: float
    work: float = 1.0
    trial: int = 0
    block: int = 0

    @property
    def unit_s(self) -> float:
        """Seconds for one unit of work."""
        return self.seconds / self.work
