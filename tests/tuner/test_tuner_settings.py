"""Every setting that the tuner reads changes what it does; the others are tested where it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from tuner_hand import BASELINE_S, Hand, hand, is_live, offers, surely

import grainshift
from grainshift.api import session
from grainshift.bench.simulate import Simulation
from grainshift.bench.tables import stationary
from grainshift.core.choice import Choice, Exactness
from grainshift.core.events import Sensed
from grainshift.core.forecast import Forecast
from grainshift.core.instructions import Ask, Build, Deal, Note, Remember, Swap
from grainshift.core.settings import Settings
from grainshift.policies import make_policy

TESTS = Path(__file__).parents[1]
EAGER = Settings(dwell_s=0.0, opening_calls=20.0, retry_calls=100)


@dataclass(frozen=True)
class Felt:
    """Two values of a setting, and an outcome that is smaller under the first."""

    low: Any
    high: Any
    outcome: Callable[[Settings], float]
    base: Settings = EAGER


def first_ask(settings: Settings, forecast: Forecast | None = None) -> Hand:
    one = hand([3.0], offers(forecast or Forecast(3.0, 0.02)), settings)
    one.until(lambda one: bool(one.told(Ask)), most=20_000)
    return one


def gone_live(settings: Settings, *costs: float) -> Hand:
    one = hand(list(costs), settings=settings)
    one.until(is_live(1))
    return one


def probes(settings: Settings, calls: int = 2_000) -> int:
    one = gone_live(settings, 0.5)
    one.clear()
    one.run(calls)
    return len(one.told(Deal))


def goes_live(settings: Settings) -> bool:
    one = hand([0.9], settings=settings)
    one.run(400)
    return bool(one.told(Swap))


def least_gain(settings: Settings) -> float:
    one = gone_live(settings, 0.5)
    return one.case.arms[1].gain_low or 0.0


def blocks(settings: Settings) -> int:
    (told,) = gone_live(settings, 0.2).told(Remember)
    return int(told.blocks)


def between_switches_s(settings: Settings) -> float:
    one = hand([0.8, 0.3], surely(0.8, 0.9), settings)
    one.until(is_live(1))
    first_s = one.at_s
    one.until(is_live(2), most=6_000)
    return one.at_s - first_s


def switches(settings: Settings) -> int:
    settings = replace(settings, window_s=1e6, retry_calls=1, backoff=1.0)
    one = hand([0.5], settings=settings)
    for _ in range(8):
        one.costs[1] = 0.5 * BASELINE_S
        one.run(100)
        one.costs[1] = 2.0 * BASELINE_S
        one.run(60)
    return len(one.told(Swap))


def second_wait(settings: Settings) -> int:
    one = hand([1.3], surely(1.0), replace(settings, opening_calls=1e6))
    one.until(lambda one: one.case.arms[1].rejections == 2)
    return one.case.arms[1].wait_until_calls - one.case.calls


def calls_until_noticed(settings: Settings) -> int:
    one = hand([], offers(), settings)  # the baseline alone
    one.run(100)
    one.costs[0] *= 1.1
    one.run(100)
    moved = [at for at, (_, said) in enumerate(one.steps) if any(isinstance(i, Note) for i in said)]
    return moved[0] if moved else len(one.steps)


def seconds_until_built(settings: Settings) -> float:
    one = hand([0.5], offers(Forecast(0.5, 0.02, build_s=1.0)), settings)
    one.until(lambda one: bool(one.told(Build)), most=6_000)
    return one.at_s


def may_round(settings: Settings) -> bool:
    first, told = surely(0.5)
    told = replace(told, choice=Choice("choice", (1,), Exactness.ROUNDING))
    one = hand([0.5], (first, told), settings, error_ratio=1e-3)
    one.run(100)
    return one.case.live == 1


def samples(settings: Settings) -> int:
    run = Simulation(stationary(1), make_policy("bandit", 1), 400, 1, settings)
    run.run()
    return sum(isinstance(event, Sensed) for event, _ in run.recorder.steps)


PLAIN = Settings()
TUNER_READS: Mapping[str, Felt] = {
    "explore_share": Felt(0.1, 0.005, lambda s: first_ask(s).calls, PLAIN),
    "opening_calls": Felt(20.0, 1.0, lambda s: first_ask(s).calls),
    "probe_share": Felt(0.01, 0.1, probes),
    "margin": Felt(0.2, 0.01, goes_live),
    "confidence": Felt(0.999, 0.6, least_gain),
    "warm_calls": Felt(8, 100, lambda s: first_ask(s).calls),
    "canary_calls": Felt((1, 8, 64), (1, 20, 64), blocks),
    "watch_calls": Felt(0, 400, lambda s: probes(s, 200)),
    "dwell_s": Felt(0.0, 5.0, between_switches_s),
    "switches_per_window": Felt(2, 8, switches),
    "window_s": Felt(0.0, 5.0, between_switches_s, replace(EAGER, switches_per_window=1)),
    "backoff": Felt(1.0, 3.0, second_wait),
    "retry_calls": Felt(50, 500, second_wait),
    "drift_slack": Felt(0.1, 2.0, calls_until_noticed),
    "drift_limit": Felt(4.0, 40.0, calls_until_noticed),
    "build_share": Felt(1.0, 0.1, seconds_until_built),
    "rounding_ratio": Felt(1e-4, 1e-2, may_round),
    "sense_s": Felt(1.0, 0.1, samples),
}
# What the tuner does not read: the file that shows its effect, and a word that it must hold.
ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "epsilon": ("contract/test_every_policy.py", "epsilon=0.3"),
    "seed": ("contract/test_every_policy.py", "seed=5"),
    "segment_s": ("api/test_arguments.py", "Settings(segment_s=0.5)"),
    "drain_s": ("tuner/test_tuner_pulse.py", "interval_s"),
    "builders": ("runtime/test_builder.py", "count=2"),
    "build_timeout_s": ("runtime/test_builder.py", "timeout_s"),
    "journal_bytes": ("journal/test_journal_rotate.py", "LEAST_BYTES"),
}


@pytest.mark.parametrize("name", TUNER_READS)
def test_a_setting_is_felt(name: str) -> None:
    felt = TUNER_READS[name]
    low, high = (replace(felt.base, **{name: value}) for value in (felt.low, felt.high))
    assert felt.outcome(low) < felt.outcome(high)


def test_every_setting_is_listed_once() -> None:
    assert {*TUNER_READS, *ELSEWHERE} == {field.name for field in fields(Settings)}
    assert not {*TUNER_READS} & {*ELSEWHERE}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there(name: str) -> None:
    file, word = ELSEWHERE[name]
    assert word in (TESTS / file).read_text()


def test_the_session_passes_on_what_the_tuner_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings(
        epsilon=0.125,
        seed=77,
        drain_s=0.375,
        builders=3,
        build_timeout_s=44.0,
        journal_bytes=9 << 20,
    )
    given: list[tuple[str, Any]] = []
    for name in ("Journal", "Builders", "make_policy", "Pulse"):
        real = getattr(session, name)

        def spy(*args: Any, name: str = name, real: Any = real) -> Any:
            given.extend((name, arg) for arg in args)
            return real(*args)

        monkeypatch.setattr(session, name, spy)
    model = grainshift.tune(nn.LSTM(4, 8), settings=settings)
    grainshift.untune(model)
    wanted = [("Journal", 9 << 20), ("Builders", 3), ("Builders", 44.0), ("Pulse", 0.375)]
    wanted += [("make_policy", 77), ("make_policy", 0.125)]
    assert [one for one in wanted if one not in given] == []
