"""Contenders: one peer, one workload, one process."""

import time
from dataclasses import replace

import bench_samples as samples
import psutil
import pytest
import torch

from grainshift.bench import peer as peers_contract
from grainshift.bench.contender import Contender, Workload
from grainshift.bench.contest import Field, contest, thread_settings
from grainshift.bench.measure import Plan
from grainshift.bench.peer import Peer, PeerUnavailable
from grainshift.bench.peers import PEERS, eager, eager_channels_last, onnxruntime, openvino_f32

MLP = Workload("mlp", "bench_samples", "mlp", {"width": 8})


def child_count() -> int:
    return len([p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())])


def test_a_contender_takes_turns_and_goes_away() -> None:
    with Contender(MLP, Peer("threads", samples.threads_as_output), 1) as contender:
        assert contender.error_ratio == 0.0  # so its process had the threads it was given
        readings = contender.turn(4)
        assert len(readings) == 4 and all(0.0 < reading < 1.0 for reading in readings)
        assert child_count() == 1
    assert child_count() == 0


def test_a_peer_that_refuses_or_dies_is_told_in_one_sentence() -> None:
    with pytest.raises(PeerUnavailable, match=r"^TypeError: cannot take this graph$"):
        Contender(MLP, Peer("refuse", samples.refuse), 1)
    with pytest.raises(PeerUnavailable, match="ended with 7"):
        Contender(MLP, Peer("die", samples.die), 1)
    assert child_count() == 0


def test_a_peer_that_is_not_ready_in_time_is_given_up() -> None:
    with pytest.raises(PeerUnavailable, match="not ready"):
        Contender(MLP, eager.PEER, 1, timeout_s=0.01)
    assert child_count() == 0


def test_a_contest_names_who_is_not_there_and_who_is_wrong() -> None:
    peers = (Peer("refuse", samples.refuse), Peer("twice", samples.twice))
    field = Field(1, Plan(blocks=5, budget_s=0.2), peers)
    row = contest(MLP, eager.PEER, field)
    assert list(row.peers) == ["twice"] and row.best_peer is None and row.ratio is None
    assert "twice errs by more than 0.0001: not compared" in row.notes
    row = contest(MLP, eager.PEER, replace(field, error_ratio=None))
    assert list(row.peers) == ["twice"] and row.best_peer == "twice"
    assert "refuse not there: TypeError: cannot take this graph" in row.notes
    assert "ours 1 threads, error 0;" in row.notes and "twice 1 threads, error 1" in row.notes
    assert row.ratio_low is not None and row.ratio_low <= row.ratio <= row.ratio_high
    assert child_count() == 0


def test_every_number_of_threads_is_tried_on_a_small_machine() -> None:
    assert list(thread_settings(1)) == [1]
    assert list(thread_settings(2)) == [1, 2]
    assert list(thread_settings(16)) == [1, 2, 4, 8, 16]
    assert list(thread_settings(12)) == [1, 2, 4, 8, 12]


@pytest.mark.parametrize("peer", [onnxruntime, openvino_f32])
def test_a_missing_package_is_told_with_what_would_do(peer, monkeypatch) -> None:
    monkeypatch.setattr(peers_contract, "find_spec", lambda name: None)
    model, inputs = samples.mlp()
    with pytest.raises(
        PeerUnavailable, match=r"not installed; pip install 'grainshift\[backends\]'"
    ):
        peer.prepare(model, inputs, 1)


def test_channels_last_needs_images() -> None:
    with pytest.raises(PeerUnavailable, match="four dimensions"):
        eager_channels_last.prepare(*samples.mlp(), 1)
    model, inputs = samples.conv()
    model.eval()
    expected = model(*inputs)
    out = eager_channels_last.prepare(model, inputs, 1)()
    assert torch.allclose(out, expected, atol=1e-5) and not out.requires_grad


def test_the_names_of_the_peers_are_the_names_of_their_files() -> None:
    assert [peer.name for peer in PEERS] == [
        peer.prepare.__module__.rpartition(".")[2] for peer in PEERS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("function", ["mlp", "conv", "lstm"])
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_agrees_with_eager(peer: Peer, function: str) -> None:
    try:
        contender = Contender(Workload(function, "bench_samples", function), peer, 1)
    except PeerUnavailable as reason:
        assert "not installed" in str(reason) or "four dimensions" in str(reason)
        pytest.skip(str(reason))
    with contender:
        assert contender.error_ratio < (0.03 if "bf16" in peer.name else 1e-4)
        assert max(contender.turn(3)) < 10.0


@pytest.mark.slow
def test_a_killed_parent_leaves_no_contender_behind() -> None:
    import subprocess
    import sys

    script = (
        "import sys, time\nfrom grainshift.bench.contender import Contender, Workload\n"
        "from grainshift.bench.peers import eager\n"
        "if __name__ == '__main__':\n"
        "    c = Contender(Workload('mlp', 'bench_samples', 'mlp'), eager.PEER, 1)\n"
        "    print(c._child.pid, flush=True)\n    time.sleep(60)"
    )
    folder = str(__file__).rpartition("/")[0]
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r})\n{script}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    end_s = time.monotonic() + 10.0
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end_s
        time.sleep(0.02)
