"""What the report tells of a Site's costs now."""

import json
from typing import Any

import pytest
import torch
from torch import nn
from tuned_models import rest

import grainshift
from grainshift.api.monitor import Monitor, monitor_of
from grainshift.api.reporting import Report, site_line
from grainshift.api.session import session_of
from grainshift.core.choice import Choice, plan
from grainshift.core.conditions import Conditions, Figure, Source
from grainshift.core.events import AnyEvent, Offer, Opened, Read, Sensed
from grainshift.core.forecast import Forecast, Limits
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.core.site import Site, Tempo
from grainshift.guards import make_guards
from grainshift.tuner import loop
from grainshift.tuner.state import State

PARTS = tuple(Site("recurrence", f"encoder.l{n}", "f", Tempo.SEGMENT) for n in range(3))
SITE = Site("recurrence", "encoder", "f00d", Tempo.SEGMENT, parts=PARTS)
KEY = (SITE.key, "B4.T32")
STOCK = Forecast(
    working_set_bytes=3_000_000,
    touched_bytes=64_000_000,
    steps=32,
    rows=4,
    hits=(("l1", 0.5), ("l2", 0.75)),
)
PLAN = plan((Choice("rolled"), Choice("unrolled", (8,)), Choice("unrolled", (8,))))
OPENED = Opened(0.0, SITE, KEY[1], (Offer(Choice("stock"), STOCK), Offer(PLAN, Forecast())))
READ = Read(1.0, *KEY, (Reading(0, 0.0128, 128.0),) * 8, 8, 8 * 0.0128, 8 * 128.0)


def after(*events: AnyEvent) -> State:
    settings, limits = Settings(), Limits()
    state = loop.begin(settings, limits, make_guards(settings, limits))
    for event in events:
        state, _ = loop.step(state, event)
    return state


def monitor(*events: AnyEvent) -> Monitor:
    state = after(*events)
    return monitor_of(state, state.cases[KEY])


def sensed(*figures: Figure) -> Sensed:
    return Sensed(2.0, Conditions(2.0, figures))


def test_a_step_is_as_many_units_as_the_bucket_has_rows() -> None:
    told = monitor(OPENED, READ)
    assert told.unit_s == pytest.approx(1e-4)
    assert told.step_s == pytest.approx(4e-4)
    assert told.step_bytes == 2_000_000.0 and told.working_set_bytes == 3_000_000


def test_nothing_is_told_that_nobody_knows() -> None:
    told = monitor(OPENED)
    assert told.unit_s is None and told.step_s is None
    assert told.cpu_ours is None and told.cpu_others is None
    bare = Opened(0.0, SITE, KEY[1], (Offer(Choice("stock"), Forecast()),))
    assert str(monitor(bare)) == ""


def test_hits_are_marked_as_modelled_or_measured() -> None:
    modelled = Figure("cache_hit_ratio", 0.2, Source.MODELLED)
    assert [hit.name for hit in monitor(OPENED, sensed(modelled)).hits] == ["l1", "l2"]
    told = monitor(OPENED, READ, sensed(Figure("cache_hit_ratio", 0.9)))
    assert "hits l1 50%, l2 75% (modelled)" in str(told)
    assert "hits cache_hit_ratio 90% (measured)" in str(told)


def test_it_is_one_line_with_the_load() -> None:
    told = monitor(OPENED, READ, sensed(Figure("cpu_ours", 0.48), Figure("cpu_others", 0.02)))
    assert str(told) == (
        "400 µs a step; 2 MB touched a step, working set 3 MB;"
        " hits l1 50%, l2 75% (modelled); load 48% ours, 2% others"
    )


def test_the_report_prints_it_and_gives_it_as_data() -> None:
    state = after(OPENED, READ)
    line = site_line(state, state.cases[KEY], "")
    report = Report((line,), (), False)
    assert f"    {line.monitor}" in str(report)
    (data,) = json.loads(json.dumps(report.to_dict()))["lines"]
    assert data["monitor"]["step_s"] == pytest.approx(4e-4)
    assert data["monitor"]["hits"][0] == {"name": "l1", "value": 0.5, "source": "modelled"}


def test_plans_are_told_part_by_part() -> None:
    state = after(OPENED)
    line = site_line(state, state.cases[KEY], "")
    assert dict(line.choices).keys() == {"stock", "plan(l0: rolled, l1 l2: unrolled(8))"}


def test_a_tuned_model_has_a_monitor_for_each_site() -> None:
    model = grainshift.tune(nn.Sequential(nn.LSTM(8, 16, 2)).eval())
    rest(session_of(model))
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(20, 2, 8))
    session_of(model).driver.pump()
    (line,) = grainshift.report(model).lines
    told: Any = line.monitor
    assert told.unit_s > 0.0 and told.step_s == pytest.approx(2 * told.unit_s)
    assert told.step_bytes > 2 * 4 * 16 * 16 * 4  # both recurrent matrices
    assert all(0.0 <= hit.value <= 1.0 and hit.source is Source.MODELLED for hit in told.hits)
    grainshift.untune(model)
