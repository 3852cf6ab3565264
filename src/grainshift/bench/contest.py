"""Sets ours beside every peer on one workload, each at its best thread setting.

Knows nothing of how either runs the model.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from grainshift.bench.contender import Contender, Workload
from grainshift.bench.measure import Plan, measure, row
from grainshift.bench.peer import Peer, PeerUnavailable
from grainshift.bench.peers import PEERS
from grainshift.bench.row import Row
from grainshift.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Field:
    """Whom to meet and how.

    cores: the most threads that anyone is given.
    plan: the time to spend.
    peers: whom to meet.
    error_ratio: the largest error with which a peer can be the best one. Who errs by more answers
        another question; it is shown, and the notes say so. None lets everyone be the best.
    aside: names of peers that are shown, but are never the best.
    prepare_s: seconds that a peer may take to stand ready.
    tell: is told who is being prepared.
    """

    cores: int
    plan: Plan
    peers: tuple[Peer, ...] = PEERS
    error_ratio: float | None = Settings().rounding_ratio
    aside: frozenset[str] = frozenset()
    prepare_s: float = 600.0
    tell: Callable[[str], object] = str


def contest(workload: Workload, ours: Peer, field: Field, limit_s: float | None = None) -> Row:
    """One Row of median times: ours with every core, beside each peer at its best setting."""
    notes = []
    with ExitStack() as stack:
        field.tell(f"{workload.name}: {ours.name}")
        ready = {"": stack.enter_context(Contender(workload, ours, field.cores))}
        notes.append(_note("ours", ready[""]))
        for peer in field.peers:
            field.tell(f"{workload.name}: {peer.name}")
            try:
                ready[peer.name] = stack.enter_context(best_setting(workload, peer, field))
                notes.append(_note(peer.name, ready[peer.name]))
            except PeerUnavailable as reason:
                notes.append(f"{peer.name} not there: {reason}")
        field.tell(f"{workload.name}: measuring")
        timings = measure({name: c.turn for name, c in ready.items()}, field.plan, time.monotonic)
    loose = frozenset(name for name, c in ready.items() if _is_loose(c, field.error_ratio))
    notes += [
        f"{name} errs by more than {field.error_ratio}: not compared" for name in sorted(loose)
    ]
    mine = timings.pop("")
    return row(
        workload.name,
        "median",
        mine,
        timings,
        aside=loose | field.aside,
        limit_s=limit_s,
        notes="; ".join(notes),
    )


def best_setting(workload: Workload, peer: Peer, field: Field) -> Contender:
    """The peer at the number of threads with which it is fastest here; the others are closed."""
    contenders = {str(found.threads): found for found in _prepared(workload, peer, field)}
    try:
        best = _fastest(contenders, field.plan)
    except BaseException:
        _close(contenders.values())
        raise
    _close(contender for name, contender in contenders.items() if name != best)
    return contenders[best]


def _prepared(workload: Workload, peer: Peer, field: Field) -> list[Contender]:
    """The peer at each number of threads, prepared side by side; who is late is left out."""
    settings = thread_settings(field.cores)
    with ThreadPoolExecutor(len(settings)) as pool:
        awaited = [
            pool.submit(Contender, workload, peer, threads, field.prepare_s) for threads in settings
        ]
        faults = [one.exception() for one in awaited]
    ready = [one.result() for one, fault in zip(awaited, faults, strict=True) if fault is None]
    unexpected = [fault for fault in faults if not isinstance(fault, PeerUnavailable | None)]
    if ready and not unexpected:
        return ready
    _close(ready)
    raise next(fault for fault in [*unexpected, *faults] if fault is not None)


def thread_settings(cores: int) -> Sequence[int]:
    """Every number of threads on a small machine; on a larger one the doublings, and all cores."""
    if cores <= 4:
        return range(1, cores + 1)
    doublings = [1 << power for power in range(cores.bit_length()) if 1 << power < cores]
    return [*doublings, cores]


def _fastest(contenders: dict[str, Contender], plan: Plan) -> str:
    if len(contenders) == 1:
        return next(iter(contenders))
    short = replace(plan, blocks=9, budget_s=plan.budget_s / 5)
    timings = measure({name: c.turn for name, c in contenders.items()}, short, time.monotonic)
    return min(timings, key=lambda name: timings[name].median)


def _close(contenders: Iterable[Contender]) -> None:
    for contender in contenders:
        contender.close()


def _is_loose(contender: Contender, error_ratio: float | None) -> bool:
    return error_ratio is not None and not contender.error_ratio <= error_ratio


def _note(name: str, contender: Contender) -> str:
    remark = f", {contender.remark}" if contender.remark else ""
    return f"{name} {contender.threads} threads, error {contender.error_ratio:.1g}{remark}"
