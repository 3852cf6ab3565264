"""Measures what Grainshift itself costs: a Slot call, an actor's answer, and all monitoring."""

import copy
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import grainshift
from grainshift.bench import actors
from grainshift.bench.measure import Plan, Timings, measure, ratio, timed
from grainshift.bench.row import Row
from grainshift.core.settings import Settings
from grainshift.core.site import Site, Tempo
from grainshift.machine import Sensors, find_machine, sampling_cost_s
from grainshift.runtime.slot import Slot

__all__ = ["run"]

_SLOT_LIMIT_US = 1.5
_SHARE_LIMIT = 0.01
_SAMPLING_LIMIT = 0.001
_CALL_S = 0.005
_NEVER = Settings(explore_share=0.0, opening_calls=0.0)


def run(quick: bool = False, only: str | None = None) -> list[Row]:
    """The Rows whose workload contains `only`."""
    blocks = 8 if quick else 40
    parts: tuple[tuple[str, Callable[[int], list[Row]]], ...] = (
        ("slot", _slot_rows),
        ("actor", lambda count: actors.run(blocks=count)),
        ("sampling", _sampling_rows),
        ("monitoring", _monitoring_rows),
    )
    return [row for name, make in parts if only is None or only in name for row in make(blocks)]


def _slot_rows(blocks: int) -> list[Row]:
    """A call through a Slot beside the bare call of the same function."""

    def baseline(x: Any, state: Any) -> Any:
        return x

    slot = Slot(Site("bench", "slot", "0", Tempo.CALL), baseline)
    slot.call("B1", 1.0, None, None)
    call = slot.call
    calls = 2000
    clock = time.perf_counter
    contenders = {
        "bare": timed(lambda: baseline(None, None), clock, calls),
        "slot": timed(lambda: call("B1", 1.0, None, None), clock, calls),
    }
    seen = measure(contenders, Plan(blocks=blocks, most_readings=10, budget_s=60.0), clock)
    extra_us = sorted(1e6 * (seen["slot"].medians - seen["bare"].medians))
    median_us = float(extra_us[len(extra_us) // 2])
    notes = f"bare {1e6 * seen['bare'].median:.3f} us; worst block +{extra_us[-1]:.3f} us"
    metric = "a call beyond the bare call, median"
    return [Row("slot", metric, "us", median_us, {}, limit=_SLOT_LIMIT_US, notes=notes)]


def _sampling_rows(blocks: int) -> list[Row]:
    """One sample of the machine's Conditions, at the rate of the default Settings."""
    sensors = Sensors(find_machine())
    try:
        cost_s = sampling_cost_s(sensors, samples=5 * blocks, pause_s=0.02)
    finally:
        sensors.close()
    share = cost_s / Settings().sense_s
    notes = f"{1e6 * cost_s:.0f} us of CPU a sample, every {Settings().sense_s} s"
    metric = "CPU time, share of a core"
    return [Row("sampling", metric, "share", share, {}, limit=_SAMPLING_LIMIT, notes=notes)]


class _Model(nn.Module):
    """A GRU in front of a linear layer, as long as it takes to last 5 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(128, 128, batch_first=True)
        self.out = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.rnn(x)
        answer: torch.Tensor = self.out(y[:, -1])
        return answer


def _monitoring_rows(blocks: int) -> list[Row]:
    """A model that is watched but runs stock, beside the same model alone."""
    plain = _Model().eval()
    watched = grainshift.tune(copy.deepcopy(plain), settings=_NEVER)
    try:
        with torch.inference_mode():
            x = _input_of(plain, _CALL_S)
            return _watch(plain, watched, x, blocks)
    finally:
        grainshift.untune(watched)


def _input_of(model: nn.Module, seconds: float) -> torch.Tensor:
    """An input so long that a call takes about that many seconds."""
    steps = 32
    while True:
        x = torch.randn(1, steps, 128)
        for _ in range(3):
            model(x)
        begin_s = time.perf_counter()
        model(x)
        took_s = time.perf_counter() - begin_s
        if took_s >= 0.8 * seconds:
            return x
        steps = int(steps * min(max(seconds / took_s, 1.2), 4.0))


def _watch(plain: nn.Module, watched: nn.Module, x: torch.Tensor, blocks: int) -> list[Row]:
    clock = time.perf_counter
    contenders = {
        "plain": timed(lambda: plain(x), clock),
        "watched": timed(lambda: watched(x), clock),
    }
    plan = Plan(blocks=2 * blocks, most_readings=20, warm_readings=20, budget_s=60.0)
    background_s, begin_s = _background_s(), clock()
    seen = measure(contenders, plan, clock)
    wall_s = clock() - begin_s
    share = (_background_s() - background_s) / wall_s
    notes = f"over {wall_s:.0f} s, the watched model called half of the time"
    return [
        _call_row(seen["plain"], seen["watched"]),
        Row(
            "monitoring",
            "CPU time of all background threads, share of a core",
            "share",
            share,
            {},
            limit=_SHARE_LIMIT,
            notes=notes,
        ),
    ]


def _call_row(plain: Timings, watched: Timings) -> Row:
    compared = ratio(plain, watched)
    return Row(
        "monitoring",
        "a call of a 5 ms model that is watched and runs stock",
        "ms",
        1e3 * watched.median,
        {"plain": 1e3 * plain.median},
        "plain",
        compared.value,
        compared.low,
        compared.high,
        1e3 * plain.median * (1.0 + _SHARE_LIMIT),
    )


def _background_s() -> float:
    """CPU seconds of this process's threads but the calling one and torch's own teams."""
    ours = {thread.native_id for thread in threading.enumerate()} - {threading.get_native_id()}
    return sum(_thread_s(number) for number in ours if number is not None)


def _thread_s(number: int) -> float:
    try:
        text = Path(f"/proc/{os.getpid()}/task/{number}/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(text.split()[0]) * 1e-9
