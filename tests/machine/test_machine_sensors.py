import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fake_computer import FakeComputer, two_cores

from grainshift.core.conditions import CONDITION_NAMES, Conditions, Source
from grainshift.machine import Sensors, Work, find_machine, sampling_cost_s
from grainshift.machine.gauges.gauge import Usage

HZ = os.sysconf("SC_CLK_TCK")
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 total=0\n"


class Rig:
    """Sensors on a fake computer, a clock that stands until it is told, and told usage."""

    def __init__(self, root: Path) -> None:
        self.computer = two_cores(root)
        self.at_s = 100.0
        self.usage = Usage(10.0, 5.0, 1000.0)
        self.sensors: Sensors | None = None

    def open(self) -> "Rig":
        computer = self.computer
        machine = replace(find_machine(proc=computer.proc, sys=computer.sys), accelerators=())
        self.sensors = Sensors(
            machine,
            lambda: self.at_s,
            proc=computer.proc,
            sys=computer.sys,
            usage=lambda: self.usage,
            counters=False,
        )
        return self

    def stat(self, core0: str, core1: str, total: str = "0 0 0 0 0 0 0 0") -> None:
        text = f"cpu  {total} 0 0\ncpu0 {core0} 0 0\ncpu1 {core1} 0 0\nintr 5 1\n"
        self.computer.write("proc/stat", text)

    def after(self, seconds: float) -> Conditions:
        assert self.sensors is not None
        self.at_s += seconds
        return self.sensors.sample(self.at_s)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    if rig.sensors:
        rig.sensors.close()


def names(conditions: Conditions) -> set[str]:
    return {figure.name for figure in conditions.figures}


def test_our_own_use_over_the_window(rig: Rig) -> None:
    rig.open()
    rig.usage = Usage(11.0, 25.0, 3000.0)
    now = rig.after(2.0)
    assert now.at_s == 102.0
    assert now.vector(("cpu_ours", "switches_per_s", "faults_per_s")) == (0.25, 10.0, 1000.0)


def test_others_use_is_what_is_left_and_gentle_work_is_not_counted(rig: Rig) -> None:
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0")
    rig.open()
    # 2 s on 2 cores: 1.2 s of work of which 0.4 s are ours, 1 s nice, 0.2 s stolen
    total = [int(HZ * s) for s in (0.8, 1.0, 0.2, 1.6, 0.0, 0.1, 0.1, 0.2)]
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", " ".join(map(str, total)))
    rig.usage = Usage(10.4)
    now = rig.after(2.0)
    assert now.value("cpu_others") == pytest.approx(0.2)
    assert now.value("steal") == pytest.approx(0.05)
    assert "switches_per_s" not in names(now)  # this usage does not tell


def test_only_our_cores_count(rig: Rig) -> None:
    rig.computer.write("proc/self/status", "Cpus_allowed_list:\t1\n")
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0")
    rig.open()
    rig.stat(f"{9 * HZ} 0 0 0 0 0 0 0", f"{HZ} 0 0 0 0 0 0 0", f"{10 * HZ} 0 0 0 0 0 0 0")
    assert rig.after(4.0).value("cpu_others") == pytest.approx(0.25)


@pytest.mark.parametrize("version", [1, 2])
def test_under_a_quota_others_in_our_group_count(rig: Rig, version: int) -> None:
    computer = rig.computer
    if version == 2:
        computer.write("proc/self/cgroup", "0::/box\n")
        computer.group("", cgroup__controllers="cpu")
        computer.group("box", cpu__max="100000 100000", cpu__stat="usage_usec 0\nuser_usec 0\n")
    else:
        computer.write("proc/self/cgroup", "3:cpu,cpuacct:/box\n")
        limits = {"cpu__cfs_quota_us": "100000", "cpu__cfs_period_us": "100000"}
        computer.group("cpu,cpuacct/box", cpuacct__usage="0", **limits)
    rig.open()
    rig.usage = Usage(10.3)
    computer.group("box", cpu__stat="usage_usec 800000\nuser_usec 1\n")
    computer.group("cpu,cpuacct/box", cpuacct__usage="800000000")
    now = rig.after(1.0)
    assert now.value("cpu_ours") == pytest.approx(0.3)
    assert now.value("cpu_others") == pytest.approx(0.5)


def test_pressure_is_the_groups_own_where_it_is(rig: Rig) -> None:
    computer = rig.computer
    computer.write("proc/pressure/cpu", PSI.format(0))
    computer.write("proc/pressure/memory", PSI.format(0))
    computer.write("proc/self/cgroup", "0::/box\n")
    computer.group("", cgroup__controllers="cpu")
    computer.group("box", cpu__pressure=PSI.format(1000))
    rig.open()
    computer.write("proc/pressure/cpu", PSI.format(999_999))
    computer.write("proc/pressure/memory", PSI.format(100_000))
    computer.group("box", cpu__pressure=PSI.format(501_000))
    now = rig.after(1.0)
    assert now.value("cpu_pressure") == pytest.approx(0.5)
    assert now.value("memory_pressure") == pytest.approx(0.1)


def test_free_memory_is_the_systems_without_a_limit(rig: Rig) -> None:
    assert rig.open().after(1.0).value("free_memory_bytes") == 8 << 30


def test_free_memory_in_a_nested_group_follows_limits_that_change(rig: Rig) -> None:
    computer = rig.computer
    computer.write("proc/self/cgroup", "0::/pod/box\n")
    computer.group("", cgroup__controllers="memory")
    pod = {"memory__current": "3000000", "memory__stat": "anon 1\ninactive_file 1000000\nx 2\n"}
    computer.group("pod", memory__max="10000000", memory__high="max", **pod)
    box = {"memory__current": "2000000", "memory__stat": "inactive_file 500000\n"}
    computer.group("pod/box", memory__max="max", memory__high="max", **box)
    rig.open()
    assert rig.after(1.0).value("free_memory_bytes") == 8_000_000
    computer.group("pod/box", memory__max="4000000")
    assert rig.after(1.0).value("free_memory_bytes") == 2_500_000
    computer.group("pod/box", memory__high="1000000")  # below what it already uses
    assert rig.after(1.0).value("free_memory_bytes") == 0


def test_free_memory_in_a_version_1_group(rig: Rig) -> None:
    computer = rig.computer
    computer.write("proc/self/cgroup", "4:memory:/box\n")
    computer.group("memory", memory__limit_in_bytes="9223372036854771712")
    stat = "cache 1\ninactive_file 1\ntotal_inactive_file 250000\n"
    box = {"memory__usage_in_bytes": "750000", "memory__stat": stat}
    computer.group("memory/box", memory__limit_in_bytes="1000000", **box)
    assert rig.open().after(1.0).value("free_memory_bytes") == 500_000


def test_the_clock_is_told_by_cpufreq(rig: Rig) -> None:
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    rig.computer.write(f"{folder}/cpuinfo_max_freq", "4000000\n")
    rig.computer.write(f"{folder}/scaling_cur_freq", "3000000\n")
    figures = {figure.name: figure for figure in rig.open().after(1.0).figures}
    assert figures["clock_ratio"].value == 0.75
    assert figures["clock_ratio"].source is Source.MEASURED


def test_without_cpufreq_the_clock_is_modelled_from_the_pace_of_fixed_work(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    machine = find_machine(proc=computer.proc, sys=computer.sys)
    now_s, step_s = 0.0, 1e-5

    def clock() -> float:
        nonlocal now_s
        now_s += step_s
        return now_s

    sensors = Sensors(machine, clock, proc=computer.proc, sys=computer.sys, counters=False)
    step_s = 2e-5  # the same work takes twice as long
    figures = {figure.name: figure for figure in sensors.sample(10.0).figures}
    assert figures["clock_ratio"].value == pytest.approx(0.5)
    assert figures["clock_ratio"].source is Source.MODELLED
    sensors.close()


def test_a_clock_that_stands_still_tells_no_ratio(rig: Rig) -> None:
    assert "clock_ratio" not in names(rig.open().after(1.0))


def test_cache_figures_are_modelled_from_told_work_and_marked(rig: Rig) -> None:
    rig.open()
    assert not {"cache_hit_ratio", "dram_ratio"} & names(rig.after(1.0))
    assert rig.sensors is not None
    dram = find_machine(proc=rig.computer.proc, sys=rig.computer.sys).rate("dram_bytes")
    rig.usage = Usage(12.0, 0.0, 0.0)
    rig.sensors.tell(Work(1e12, dram, reuse=2.0, seconds=1.0))
    figures = {figure.name: figure for figure in rig.after(1.0).figures}
    assert figures["cache_hit_ratio"].value == pytest.approx(0.5, abs=1e-3)
    assert figures["dram_ratio"].value == pytest.approx(0.5, abs=1e-3)
    assert figures["dram_ratio"].source is Source.MODELLED
    rig.sensors.tell(Work(1e6, dram, seconds=1.0))
    assert rig.after(1.0).vector(("cache_hit_ratio", "dram_ratio")) == (1.0, 0.0)
    rig.sensors.tell(None)
    assert "dram_ratio" not in names(rig.after(1.0))


def test_others_crowd_us_out_of_a_shared_cache(rig: Rig) -> None:
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0")
    rig.open()
    assert rig.sensors is not None
    rig.sensors.tell(Work(6 << 20, 1e6, seconds=1.0))
    rig.usage = Usage(11.0)
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", f"{HZ} 0 0 {HZ} 0 0 0 0")
    alone = rig.after(1.0).value("cache_hit_ratio")
    rig.usage = Usage(12.0)
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", f"{3 * HZ} 0 0 {HZ} 0 0 0 0")
    assert rig.after(1.0).value("cache_hit_ratio") < alone == 1.0


@pytest.mark.parametrize(
    "garbage", ["", "some", "cpu  1 2\n", "\x00" * 9, "max", "-", "some total=x\n"]
)
def test_files_that_turn_to_garbage_drop_their_figures_and_come_back(
    rig: Rig, garbage: str
) -> None:
    computer = rig.computer
    computer.write("proc/pressure/cpu", PSI.format(0))
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0")
    rig.open()
    for file in ("proc/stat", "proc/meminfo", "proc/pressure/cpu"):
        computer.write(file, garbage)
    gone = {"cpu_others", "steal", "free_memory_bytes", "cpu_pressure"}
    now = rig.after(1.0)
    assert not gone & names(now) and "cpu_ours" in names(now)
    rig.stat("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", f"{2 * HZ} 0 0 0 0 0 0 0")
    computer.write("proc/meminfo", "MemTotal: 5 kB\nMemAvailable: 4 kB\n")
    computer.write("proc/pressure/cpu", PSI.format(500_000))
    back = rig.after(1.0)
    assert gone <= names(back)
    assert back.value("cpu_others") == pytest.approx(0.5)  # over the two seconds since it was read
    assert back.value("cpu_pressure") == pytest.approx(0.25)


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EOPNOTSUPP, errno.EIO, errno.EBADF])
def test_files_that_vanish_never_raise(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    rig.computer.write("proc/self/cgroup", "0::/\n")
    rig.computer.group("", cgroup__controllers="", memory__max="1000", memory__current="1")
    rig.open()

    def vanished(fd: int, size: int, offset: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pread", vanished)
    assert names(rig.after(1.0)) == {"cpu_ours", "switches_per_s", "faults_per_s"}


def test_without_proc_and_sys_it_asks_psutil(tmp_path: Path) -> None:
    nothing = FakeComputer(tmp_path / "nothing")
    machine = find_machine(proc=nothing.proc, sys=nothing.sys)
    sensors = Sensors(machine, lambda: 0.0, proc=nothing.proc, sys=nothing.sys)
    now = sensors.sample(1000.0)
    assert {"cpu_ours", "cpu_others", "free_memory_bytes"} <= names(now)
    assert 0 < now.value("free_memory_bytes") <= psutil.virtual_memory().total
    assert not {"steal", "cpu_pressure"} & names(now)
    sensors.close()


def test_called_again_within_moments_it_answers_with_the_last_figures(rig: Rig) -> None:
    rig.open()
    rig.usage = Usage(11.0, 5.0, 1000.0)
    first = rig.after(1.0)
    rig.usage = Usage(99.0, 5.0, 1000.0)
    again = rig.after(0.001)
    assert again.figures == first.figures and again.at_s > first.at_s


def test_a_clock_that_steps_back_gives_no_rates_and_then_goes_on(rig: Rig) -> None:
    rig.open()
    assert "cpu_ours" not in names(rig.after(-50.0))
    rig.usage = Usage(11.0, 5.0, 1000.0)
    assert rig.after(1.0).value("cpu_ours") == 0.5


def test_after_closing_it_still_answers(rig: Rig) -> None:
    rig.open()
    assert rig.sensors is not None
    before = psutil.Process().num_fds()
    rig.sensors.close()
    after = psutil.Process().num_fds()
    assert after < before
    assert rig.after(1.0).figures == ()


def test_this_machine_tells_known_names_within_bounds() -> None:
    ticks = iter(range(1, 100))
    sensors = Sensors(find_machine(), lambda: 0.0)
    for _ in range(3):
        now = sensors.sample(float(next(ticks)))
        assert names(now) <= {*CONDITION_NAMES, "accelerator_free_bytes", "accelerator_use"}
        for figure in now.figures:
            ceiling = 1.0 if not figure.name.endswith(("_bytes", "_per_s")) else float("inf")
            assert 0.0 <= figure.value <= ceiling, figure
    assert {"cpu_ours", "cpu_others", "free_memory_bytes"} <= names(now)
    sensors.close()


def test_the_cost_is_of_whole_samples_and_leaves_a_new_window(rig: Rig) -> None:
    rig.open()
    looks = 0
    told = rig.usage

    def counted() -> Usage:
        nonlocal looks
        looks += 1
        return told

    assert rig.sensors is not None
    rig.sensors._usage = counted
    assert sampling_cost_s(rig.sensors, 5) > 0.0
    assert looks == 7  # five samples, none cut short, and a new window before and after
    told = Usage(11.0, 5.0, 1000.0)
    assert rig.after(1.0).value("cpu_ours") == 0.5
