"""The report: every Site, its live Choice, what it gains, and why. Reads state, changes none."""

import io
import math
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grainshift.api.monitor import Monitor, monitor_of
from grainshift.core.choice import spell
from grainshift.tuner.rules import guarded
from grainshift.tuner.state import BASELINE, Case, Phase, State

_INDENT = 4
_ONGOING = {
    Phase.ASKING: "choosing what to try",
    Phase.BUILDING: "building",
    Phase.COMPARING: "comparing with the baseline",
    Phase.TRYING: "trying",
}


@dataclass(frozen=True, slots=True)
class SiteLine:
    """One Site in one bucket: what runs there, why, and what is tried beside it.

    Times are seconds a call; `doing` is empty while nothing is being tried; `monitor` tells what
    a step of it costs now.
    """

    site: str
    bucket: str
    live: str
    calls: int
    baseline_s: float | None
    live_s: float | None
    gain_ratio: float | None
    why: str
    choices: tuple[tuple[str, str], ...]
    doing: str = ""
    monitor: Monitor | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What Grainshift does to a model: a line a Site and bucket, and what it leaves alone."""

    lines: tuple[SiteLine, ...]
    untouched: tuple[tuple[str, str], ...]
    settled: bool
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=110, color_system=None)
        console.print(self)
        return text.getvalue().rstrip()

    def __rich_console__(self, console: Console, options: Any) -> Any:
        """How rich prints a report."""
        if self.lines:
            yield _table(self.lines)
        for line in self.lines:
            doing = f"; now {line.doing}" if line.doing else ""
            yield Text(f"{line.site} {line.bucket}: {line.why}{doing}")
            if monitor := str(line.monitor or ""):
                yield Padding(Text(monitor), (0, 0, 0, _INDENT), expand=False)
        for path, reason in self.untouched:
            yield Text(f"{path or 'the model'}: left as it is: {reason}")
        yield from map(Text, self.notes)
        yield "Exploring is over." if self.settled else "Still exploring."


def _table(lines: tuple[SiteLine, ...]) -> Table:
    table = Table("Site", "shapes", "live Choice")
    for heading in ("baseline", "now", "gain"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        gain = "" if line.gain_ratio is None else f"{line.gain_ratio:.2f}×"
        times = (_milliseconds(line.baseline_s), _milliseconds(line.live_s))
        table.add_row(line.site, line.bucket, line.live, *times, gain)
    return table


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g} ms"


def site_line(state: State, case: Case, reason: str) -> SiteLine:
    """The line of one Case; `reason` is why its live Choice went live."""
    names = [spell(arm.offer.choice, case.site.part_names) for arm in case.arms]
    baseline_s = case.call_s if case.baseline.count else None
    live_s = case.level.unit_s * case.work if case.level.count else None
    gain = math.exp(fmean(case.gains)) if case.gains else None
    if case.live == BASELINE:
        gain, live_s = None, baseline_s
    why = reason or "the baseline: nothing proved better yet"
    doing = ""
    if case.phase in _ONGOING and not state.frozen:
        candidate = names[case.candidate] if case.candidate else ""
        doing = f"{_ONGOING[case.phase]} {candidate}".rstrip()
    choices = tuple((name, _standing(state, case, number)) for number, name in enumerate(names))
    return SiteLine(
        case.site.key,
        case.bucket,
        names[case.live],
        case.calls,
        baseline_s,
        live_s,
        gain,
        why,
        choices,
        doing,
        monitor_of(state, case),
    )


def _standing(state: State, case: Case, number: int) -> str:
    arm = case.arms[number]
    if number == case.live:
        return "live"
    if arm.quarantined:
        return "in quarantine"
    if number == BASELINE:
        return "baseline"
    if reason := guarded(state, case, number):
        return f"refused by {reason}"
    if arm.gain is not None:
        return f"measured {math.exp(arm.gain):.2f}× the baseline's speed"
    return "rejected" if arm.rejections else "not tried yet"
