"""What the tuner holds does not grow with what it has seen."""

import gc
import json
import tracemalloc

import psutil
import pytest
from tuner_hand import BASELINE_S, hand

from grainshift.bench.simulate import Simulation
from grainshift.bench.tables import resonant
from grainshift.core.codec import encode
from grainshift.core.reading import Reading
from grainshift.core.settings import Settings
from grainshift.policies import make_policy

MIB = 1 << 20


def test_fifty_thousand_readings_leave_the_state_as_small() -> None:
    settings = Settings(dwell_s=0.0, retry_calls=20, backoff=1.0, switches_per_window=1 << 30)
    one = hand([0.5, 0.52, 1.4], settings=settings)
    readings, sizes = 0, []
    while readings < 50_000:
        turn = readings // 500 % 2  # the best changes every 500
        one.costs[1:3] = [BASELINE_S * (0.5 if turn else 1.5), BASELINE_S * (1.5 if turn else 0.5)]
        for _ in range(40):
            one.run()
        live = tuple(Reading(one.case.live, one.costs[one.case.live]) for _ in range(460))
        one.read(*live, calls=460, live_s=460 * live[0].seconds, live_work=460.0)
        readings += 500
        sizes.append(len(json.dumps(encode(one.case))))
        one.clear()
    assert len(one.case.switched_s) == 64  # it keeps no more
    assert one.case.trials > 40
    quarter = len(sizes) // 4  # what is bounded fills up first
    assert max(sizes[3 * quarter :]) <= 1.1 * max(sizes[2 * quarter : 3 * quarter])
    assert max(sizes) < 4_000


@pytest.mark.slow
def test_ten_million_readings_leave_memory_flat() -> None:
    """Ten million runs through the Slot's ring, the driver and the loop, on a simulated clock."""
    settings = Settings(seed=1, backoff=1.0, retry_calls=500)  # it never tires of trying
    run = Simulation(
        resonant(1), make_policy("bandit", 1), 4_096, 1, settings=settings, keep_log=False
    )
    slot, pump, world = run.slot, run.driver.pump, run.world
    this = psutil.Process()

    def play(calls: int) -> None:
        for call in range(calls):
            world.call = call & 4_095
            slot.call("B1", 1.0)
            if not call & 127:
                pump()

    play(2_000_000)
    gc.collect()
    begin = this.memory_info().rss
    play(7_000_000)
    gc.collect()
    assert this.memory_info().rss - begin < 4 * MIB
    tracemalloc.start()
    play(100_000)
    gc.collect()
    early = tracemalloc.get_traced_memory()[0]
    play(900_000)
    gc.collect()
    late = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert late - early < MIB // 4
    assert run.driver.decisions > 1_000
    assert sum(world.runs) > 10_000_000
