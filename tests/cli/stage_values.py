"""Values that the tests of the demo's parts share."""

from grainshift.api.reporting import Report, SiteLine
from grainshift.cli.stage.feed import Counts, Told
from grainshift.cli.stage.pairs import Block
from grainshift.cli.stage.phases import Look, Phase, Record
from grainshift.core.conditions import Conditions, Figure
from grainshift.journal import Line


def site_line(live: str = "stock", doing: str = "", path: str = "encoder") -> SiteLine:
    return SiteLine(f"recurrence:{path}", "B4.T16", live, 9, 0.01, 0.01, None, "why", (), doing)


def record(
    *,
    stock_s: float = 0.01,
    tuned_s: float = 0.005,
    live: str = "unrolled(16, packed)",
    doing: str = "",
    others: float = 0.0,
    error_ratio: float = 2e-7,
    blocks: int = 10,
    trials: int = 3,
    name: str = "as it is",
) -> Record:
    """A phase of ten seconds in which every call took the same."""
    made = Record(Phase(name, "The machine as it is", 10.0, lambda: None), 0.0)  # type: ignore[arg-type, return-value]
    calls = ((stock_s,) * 2, (tuned_s,) * 2, (stock_s,) * 3, (tuned_s,) * 9)
    made.blocks = [(10.0 * (n + 1) / blocks, Block(*calls, error_ratio)) for n in range(blocks)]
    made.conditions = [Conditions(1.0, (Figure("cpu_others", others), Figure("cpu_pressure", 0.0)))]
    made.counts = Counts(runs=100, trial_runs=4, probe_runs=2, trials=trials)
    made.report = Report((site_line(live, doing), site_line("stock", path="decoder")), (), False)
    return made


def told(what: str, text: str, at_s: float = 3.0) -> Told:
    return Told("recurrence:encoder", Line(at_s, "B4.T16", what, text))


def look(made: Record, *lines: Told, at_s: float = 4.0) -> Look:
    return Look(at_s, 1, 4, made, lines)
