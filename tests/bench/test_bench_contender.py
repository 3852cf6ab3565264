"""Contenders: one peer, one workload, one process."""

import multiprocessing
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bench_samples as samples
import psutil
import pytest
import torch

from grainshift.bench import peer as peers_contract
from grainshift.bench.contender import Contender, Workload
from grainshift.bench.contest import Field, best_setting, contest, thread_settings
from grainshift.bench.export import onnx_bytes
from grainshift.bench.measure import Plan
from grainshift.bench.mode import Mode
from grainshift.bench.peer import Peer, PeerUnavailable
from grainshift.bench.peers import PEERS, eager, eager_channels_last, onnxruntime, openvino_f32

MLP = Workload("mlp", "bench_samples", "mlp", {"width": 8})


GRU_STREAM = Workload("gru", "bench_samples", "gru_stream", mode=Mode.STREAM)
FORGET = Peer("forget", samples.forget, stream=samples.forget)


def child_count() -> int:
    return len(multiprocessing.active_children())


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


def wait_until_stopped(process: int) -> None:
    until_s = time.monotonic() + 30.0
    while Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        assert time.monotonic() < until_s, "it runs on"
        time.sleep(0.001)


def test_whose_turn_it_is_not_takes_nobodys_core() -> None:
    with Contender(MLP, eager.PEER, 1) as contender:
        for _ in range(2):
            wait_until_stopped(contender._child.pid or 0)
            assert min(contender.turn(1)) > 0.0


def test_a_peer_that_is_not_ready_in_time_is_given_up() -> None:
    with pytest.raises(PeerUnavailable, match="not ready"):
        Contender(MLP, eager.PEER, 1, timeout_s=0.0)
    assert child_count() == 0


def test_a_peer_that_loses_the_state_of_a_stream_is_found_out() -> None:
    with Contender(GRU_STREAM, eager.PEER, 1) as right, Contender(GRU_STREAM, FORGET, 1) as wrong:
        assert right.error_ratio == 0.0 and wrong.error_ratio > 0.05


def test_a_peer_without_a_mode_says_so() -> None:
    train = replace(GRU_STREAM, mode=Mode.TRAIN)
    with pytest.raises(PeerUnavailable, match="no train mode"):
        Contender(train, FORGET, 1)


def test_training_is_compared_by_its_gradients() -> None:
    train = Workload("mlp", "bench_samples", "mlp", {"width": 8}, Mode.TRAIN)
    with Contender(train, eager.PEER, 1) as contender:
        assert contender.error_ratio == 0.0 and min(contender.turn(2)) > 0.0


def test_the_notes_say_what_a_peer_has_to_say_of_its_model() -> None:
    ours = replace(eager.PEER, remark=samples.in_words)
    field = Field(1, Plan(blocks=5, budget_s=0.1), (eager.PEER,), aside=frozenset({"eager"}))
    row = contest(MLP, ours, field)
    assert "ours 1 threads, error 0, a Sequential;" in row.notes
    assert row.peers["eager"] > 0.0 and row.best_peer is None  # shown, but set aside


def test_who_is_late_with_all_settings_is_not_there() -> None:
    field = Field(2, Plan(blocks=5, budget_s=0.1), (eager.PEER,))
    with pytest.raises(PeerUnavailable, match="not ready"):
        best_setting(MLP, eager.PEER, replace(field, prepare_s=0.0))
    with best_setting(MLP, eager.PEER, field) as best:
        assert best.threads in (1, 2) and child_count() == 1
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
    assert torch.allclose(eager_channels_last.prepare(model, inputs, 1)(), expected, atol=1e-5)


def test_the_names_of_the_peers_are_the_names_of_their_files() -> None:
    assert [peer.name for peer in PEERS] == [
        peer.prepare.__module__.rpartition(".")[2] for peer in PEERS
    ]


NEEDS = {"onnxruntime": ("onnxruntime", "onnx", "onnxscript"), "openvino": ("openvino",)}


def where_installed(peer: Peer) -> Any:
    """The peer, marked where a package that it needs is missing."""
    packages = NEEDS.get(peer.name.partition("_")[0], ())
    missing = [package for package in packages if find_spec(package) is None]
    mark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
    return pytest.param(peer, marks=mark, id=peer.name)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["mlp", "conv", "lstm"])
@pytest.mark.parametrize("peer", [where_installed(peer) for peer in PEERS])
def test_a_peer_agrees_with_eager(peer: Peer, function: str) -> None:
    workload = Workload(function, "bench_samples", function)
    if peer is eager_channels_last.PEER and function != "conv":
        with pytest.raises(PeerUnavailable, match="four dimensions"):
            Contender(workload, peer, 1)
        return
    with Contender(workload, peer, 1) as contender:
        assert contender.error_ratio < (0.03 if "bf16" in peer.name else 1e-4)
        assert max(contender.turn(3)) < 10.0


@pytest.mark.slow
@pytest.mark.parametrize("function", ["gru_stream", "lstm_stream"])
@pytest.mark.parametrize("peer", [where_installed(p) for p in PEERS if p.stream])
def test_a_peer_carries_the_state_of_a_stream(peer: Peer, function: str) -> None:
    workload = Workload(function, "bench_samples", function, mode=Mode.STREAM)
    with Contender(workload, peer, 1) as contender:
        assert contender.error_ratio < (0.03 if "bf16" in peer.name else 1e-4)
        assert max(contender.turn(3)) < 10.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_the_exported_model_keeps_the_recurrent_operator(kind: str) -> None:
    onnx = pytest.importorskip("onnx")
    model = getattr(torch.nn, kind)(8, 8)
    graph = onnx.load_from_string(onnx_bytes(model, (torch.randn(4, 1, 8),))).graph
    assert [node.op_type for node in graph.node].count(kind) == 1


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
