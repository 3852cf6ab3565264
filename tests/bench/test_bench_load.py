"""Load that really runs, and never stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from grainshift.bench import load


def wait_until(happened: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if happened():
            return True
        time.sleep(0.01)
    return False


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@pytest.mark.parametrize("burden", [load.busy_core, load.memory_hog])
def test_a_burden_works_inside_the_body_and_is_gone_after(burden) -> None:
    with burden(2) as ids:
        assert len({*ids}) == 2
        before_s = [cpu_s(pid) for pid in ids]
        assert min(before_s) > 0.0  # at work before the body began
        assert wait_until(lambda: all(cpu_s(pid) > s for pid, s in zip(ids, before_s, strict=True)))
    assert not any(psutil.pid_exists(pid) for pid in ids)


def test_a_burden_is_gone_after_a_fault_in_the_body() -> None:
    with pytest.raises(ZeroDivisionError), load.busy_core() as ids:
        _ = 1 / 0
    assert not psutil.pid_exists(ids[0])


def test_a_burden_stays_on_its_core() -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    with load.busy_core(1, cores=[core]) as ids:
        assert psutil.Process(ids[0]).cpu_affinity() == [core]


def test_a_hog_holds_the_memory_it_was_asked_for() -> None:
    with load.memory_hog(1, size_bytes=64 << 20) as ids:
        assert psutil.Process(ids[0]).memory_info().rss > 64 << 20


def test_a_burden_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    broken = tmp_path / "burden.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(load, "_BURDEN", broken)
    with pytest.raises(RuntimeError, match="did not start"), load.busy_core():
        pytest.fail("the body must not run")


@pytest.mark.parametrize("kind", ["busy_core", "memory_hog"])
def test_a_killed_parent_leaves_none_behind(kind: str) -> None:
    script = (
        f"import time\nfrom grainshift.bench.load import {kind}\n"
        f"with {kind}(2) as ids:\n    print(*ids, flush=True)\n    time.sleep(60)"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        ids = [int(word) for word in parent.stdout.readline().split()]
        assert len(ids) == 2 and all(psutil.pid_exists(pid) for pid in ids)
        parent.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not any(alive(pid) for pid in ids))


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected by init does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
