import socket
from pathlib import Path

import psutil
import pytest
from fake_computer import FakeComputer, two_cores
from hypothesis import given
from hypothesis import strategies as st

from grainshift.core.conditions import Source
from grainshift.core.machine import Cache, Machine
from grainshift.machine import find_machine
from grainshift.machine.files import parse_cores, parse_size


def found(computer: FakeComputer) -> Machine:
    return find_machine(proc=computer.proc, sys=computer.sys)


def test_facts_of_a_plain_machine(tmp_path: Path) -> None:
    machine = found(two_cores(tmp_path))
    assert machine.cpu == "Fake Xeon"
    assert machine.cores == (0, 1)
    assert machine.quota_cores == 2.0
    assert machine.memory_bytes == 16 << 30
    assert machine.caches == (Cache(1, 32 << 10, 1), Cache(3, 8 << 20, 2))
    assert machine.instruction_sets == (
        *("amx_bf16", "amx_tile", "avx", "avx2", "avx512_bf16", "avx512_vnni", "avx512f", "fma"),
    )


def test_only_cores_that_are_allowed_and_online_count(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    computer.write("proc/self/status", "Cpus_allowed_list:\t1-63\n")
    computer.write("sys/devices/system/cpu/online", "0-2\n")
    assert found(computer).cores == (1, 2)


def test_arm_names_and_features(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    text = "processor : 0\nFeatures : fp asimd asimddp sve bf16 i8mm\n"
    computer.write("proc/cpuinfo", text + "CPU implementer : 0x41\nCPU part : 0xd40\n")
    machine = found(computer)
    assert machine.cpu == "0x41 0xd40"
    assert machine.instruction_sets == ("bf16", "dotprod", "i8mm", "neon", "sve")


def test_version_2_limits_hold_from_every_group_above(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    computer.write("proc/self/cgroup", "0::/pod/box\n")
    computer.group("", cgroup__controllers="cpu memory")
    computer.group("pod", cpu__max="150000 100000", memory__max="4294967296", memory__high="max")
    computer.group("pod/box", cpu__max="max 100000", memory__max="max")
    machine = found(computer)
    assert machine.quota_cores == 1.5
    assert machine.memory_bytes == 4 << 30


def test_version_2_high_limit_counts(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    computer.write("proc/self/cgroup", "0::/\n")
    computer.group("", cgroup__controllers="", memory__max="4294967296", memory__high="2147483648")
    assert found(computer).memory_bytes == 2 << 30


def test_version_1_limits_inside_a_container_that_is_told_its_hosts_path(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    computer.write("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n")
    computer.group("cpu,cpuacct", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    computer.group("memory", memory__limit_in_bytes="1073741824")
    machine = found(computer)
    assert machine.quota_cores == 0.5
    assert machine.memory_bytes == 1 << 30


def test_version_1_without_limits_and_a_mixed_tree(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    computer.write("proc/self/cgroup", "4:memory:/a\n2:cpu:/\n0::/u\n")
    computer.group("cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    computer.group("memory", memory__limit_in_bytes="9223372036854771712")
    computer.group("memory/a", memory__limit_in_bytes="9223372036854771712")
    computer.group("unified", cgroup__controllers="cpu")
    computer.group("unified/u", cpu__max="100000 100000")
    machine = found(computer)
    assert machine.quota_cores == 1.0
    assert machine.memory_bytes == 16 << 30


@pytest.mark.parametrize("garbage", ["", "\n\n", ":::", "max", "\x00\xff", "0 0", "-5"])
def test_garbage_everywhere_still_gives_a_machine(tmp_path: Path, garbage: str) -> None:
    computer = two_cores(tmp_path)
    computer.write("proc/self/cgroup", "0::/\n")
    computer.group("", cgroup__controllers="", cpu__max="x", memory__max="x")
    for file in [path for path in tmp_path.rglob("*") if path.is_file()]:
        if file.name not in ("cgroup", "cgroup.controllers"):
            file.write_text(garbage)
    machine = found(computer)
    assert machine.cores and machine.memory_bytes > 0 and machine.rate("fp32_flops") > 0
    assert machine.caches == ()


def test_without_proc_and_sys_it_asks_elsewhere(tmp_path: Path) -> None:
    machine = found(FakeComputer(tmp_path / "nothing"))
    assert machine.cores and machine.cpu
    assert machine.memory_bytes == psutil.virtual_memory().total
    assert machine.rate("dram_bytes") > 0


def test_fingerprint_is_of_what_decides_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computer = two_cores(tmp_path)
    first = found(computer).fingerprint
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    computer.write("proc/meminfo", "MemTotal: 1000000 kB\n")
    computer.write("proc/self/status", "Cpus_allowed_list:\t4-5\n")
    computer.write("sys/devices/system/cpu/online", "0-7\n")
    (tmp_path / "sys/devices/system/cpu/cpu0").rename(tmp_path / "sys/devices/system/cpu/cpu4")
    for path in (tmp_path / "sys/devices/system/cpu/cpu4/cache").glob("*/shared_cpu_list"):
        path.write_text("4-5\n" if path.parent.name == "index2" else "4\n")
    assert found(computer).fingerprint == first  # other cores of the same kind, other memory
    computer.write("proc/self/status", "Cpus_allowed_list:\t4\n")
    fewer = found(computer).fingerprint
    computer.write("proc/cpuinfo", "model name : Slower\nflags : avx2\n")
    assert len({first, fewer, found(computer).fingerprint}) == 3


def test_fingerprint_does_not_depend_on_the_process() -> None:
    assert find_machine().fingerprint == find_machine().fingerprint


def test_rates_are_modelled_until_measured(tmp_path: Path) -> None:
    machine = found(two_cores(tmp_path))
    assert {figure.source for figure in machine.rates} == {Source.MODELLED}
    assert machine.rate("bf16_flops") > machine.rate("fp32_flops") > 1e11
    assert machine.rate("l1_bytes") > machine.rate("l3_bytes") > machine.rate("dram_bytes") > 0
    assert machine.rate("l2_bytes") == 0.0  # it has no such level


def test_modelled_rates_follow_the_clock_and_the_quota(tmp_path: Path) -> None:
    computer = two_cores(tmp_path)
    slow = found(computer).rate("fp32_flops")
    computer.write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "6000000\n")
    assert found(computer).rate("fp32_flops") == pytest.approx(2 * slow)
    computer.write("proc/self/cgroup", "0::/\n")
    computer.group("", cgroup__controllers="", cpu__max="100000 100000")
    assert found(computer).rate("fp32_flops") == pytest.approx(slow)


@given(st.frozensets(st.integers(0, 300)))
def test_core_lists_are_read_back(cores: frozenset[int]) -> None:
    assert parse_cores(",".join(map(str, cores))) == tuple(sorted(cores))


@given(st.text(max_size=20))
def test_no_text_breaks_the_parsers(text: str) -> None:
    assert parse_size(text) >= 0
    assert all(core >= 0 for core in parse_cores(text))


@given(st.integers(0), st.integers(0))
def test_no_range_is_taken_beyond_what_a_kernel_can_have(first: int, last: int) -> None:
    assert len(parse_cores(f"{first}-{last}")) <= (1 << 14) + 1


def test_ranges_and_sizes() -> None:
    assert parse_cores("0-2,5,7-8") == (0, 1, 2, 5, 7, 8)
    assert (parse_size("48K"), parse_size("2M"), parse_size("64")) == (48 << 10, 2 << 20, 64)
