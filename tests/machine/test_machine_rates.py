import math
import sys
import time

import pytest

from grainshift.core.machine import Accelerator, Cache, Machine
from grainshift.machine import find_machine, measure_rates
from grainshift.machine.probe_bandwidth import _blocks, _Streams
from grainshift.machine.probe_flops import _peak


def machine(*caches: Cache, cores: int = 2, memory_bytes: int = 64 << 30) -> Machine:
    return Machine("f", "x", tuple(range(cores)), float(cores), memory_bytes, caches)


L1, L2 = Cache(1, 32 << 10, 1), Cache(2, 1 << 20, 1)


def test_each_block_lies_between_its_level_and_the_one_below() -> None:
    blocks = _blocks(machine(L1, L2, Cache(3, 32 << 20, 2)), 2)
    assert 0 < blocks["l1_bytes"] < L1.size_bytes
    assert L1.size_bytes < blocks["l2_bytes"] < L2.size_bytes
    assert L2.size_bytes < blocks["l3_bytes"] < 16 << 20
    assert 2 * blocks["dram_bytes"] >= 4 * (32 << 20)


def test_a_level_that_cannot_be_told_from_the_one_below_is_left_out() -> None:
    blocks = _blocks(machine(L1, Cache(2, 2 << 20, 1), Cache(3, 4 << 20, 2)), 2)
    assert "l3_bytes" not in blocks and "l2_bytes" in blocks


def test_memory_is_left_out_where_a_large_enough_block_would_not_fit() -> None:
    assert "dram_bytes" not in _blocks(machine(L1, Cache(3, 768 << 20, 2)), 2)
    assert "dram_bytes" not in _blocks(machine(L1, L2, Cache(3, 32 << 20, 2), cores=2,
                                               memory_bytes=256 << 20), 2)  # fmt: skip


def test_memory_is_measured_where_no_cache_is_told() -> None:
    assert _blocks(machine(), 2) == {"dram_bytes": 32 << 20}


def test_a_stream_reads_its_whole_block_every_round() -> None:
    streams = _Streams(1 << 20, 3, (0,), time.perf_counter)
    assert streams.round_bytes == 3 << 20
    assert streams.run_s() > 0.0
    streams.stop()
    assert not any(thread.is_alive() for thread in streams._threads)


def test_what_torch_lacks_counts_as_nothing() -> None:
    def missing(size: int) -> tuple[object, float]:
        raise AttributeError("no such operator")

    assert _peak(missing, 0.01, time.perf_counter) == 0.0  # type: ignore[arg-type]


def test_the_peak_is_the_work_over_the_shortest_run() -> None:
    now_s = 0.0
    durations = iter([0.5, 0.2, 0.4, *[0.3] * 1000])

    def clock() -> float:
        return now_s

    def run() -> None:
        nonlocal now_s
        now_s += next(durations)

    assert _peak(lambda size: (run, 100.0), 10.0, clock) == pytest.approx(500.0)


def test_this_machine_reaches_something_at_every_level() -> None:
    here = find_machine()
    rates = {figure.name: figure.value for figure in measure_rates(here, budget_s=0.05)}
    assert {"fp32_flops", "bf16_flops", "copy_bytes"} <= rates.keys()
    assert all(math.isfinite(rate) and rate > 1e6 for rate in rates.values())


@pytest.mark.cuda
def test_a_cuda_device_reaches_something() -> None:
    here = find_machine()
    assert here.accelerators
    rates = {figure.name: figure.value for figure in measure_rates(here, budget_s=1.0)}
    assert rates["cuda_bf16_flops"] > 1e9 and rates["cuda_memory_bytes"] > 1e9


@pytest.mark.parametrize("is_used", [True, False])
def test_accelerators_are_found_without_initializing_cuda(
    monkeypatch: pytest.MonkeyPatch, is_used: bool
) -> None:
    class Device:
        name, total_memory = "Fake GPU", 1 << 34

    def properties(number: int) -> type[Device]:
        assert is_used, "this would initialize CUDA"
        return Device

    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: is_used)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # it would name the device that is there
    monkeypatch.setattr("torch.cuda.get_device_properties", properties)
    told = Accelerator("Fake GPU", 1 << 34) if is_used else Accelerator("CUDA device", 0)
    assert find_machine().accelerators == (told,)
