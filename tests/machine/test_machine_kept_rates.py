import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from grainshift.core.conditions import Figure, Source
from grainshift.core.machine import Machine
from grainshift.machine import best_rates, find_machine, keep_rates, load_rates, with_rates

MACHINE = Machine("feed", "Fake", (0, 1), 2.0, 1 << 30)
RATES = (Figure("fp32_flops", 2e11), Figure("dram_bytes", 4e10, Source.MEASURED))


def the_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_rates_come_back_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "rates"
    assert load_rates(folder, MACHINE) is None
    assert keep_rates(folder, MACHINE, RATES)
    assert load_rates(folder, MACHINE) == RATES


def test_the_file_is_private_and_alone(tmp_path: Path) -> None:
    folder = tmp_path / "rates"
    keep_rates(folder, MACHINE, RATES)
    keep_rates(folder, MACHINE, RATES)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(the_file(folder).stat().st_mode) == 0o600


def test_another_machine_or_torch_does_not_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_rates(tmp_path, MACHINE, RATES)
    other = replace(MACHINE, fingerprint="beef")
    assert load_rates(tmp_path, other) is None
    the_file(tmp_path).rename(tmp_path / "rates-beef.json")  # a foreign file under our name
    assert load_rates(tmp_path, other) is None
    keep_rates(tmp_path, other, RATES)
    assert load_rates(tmp_path, other) == RATES
    monkeypatch.setattr("torch.__version__", "1.0")
    assert load_rates(tmp_path, other) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '{"made_for": 1}', "\x00\x01", "[" * 100_000],
)
def test_a_corrupt_file_is_ignored_and_rewritten(tmp_path: Path, text: str) -> None:
    keep_rates(tmp_path, MACHINE, RATES)
    the_file(tmp_path).write_text(text)
    assert load_rates(tmp_path, MACHINE) is None
    assert keep_rates(tmp_path, MACHINE, RATES)
    assert load_rates(tmp_path, MACHINE) == RATES


@pytest.mark.parametrize(
    "rates",
    [[], [["fp32_flops", -1.0, "measured"]], [["fp32_flops", float("nan"), "measured"]],
     [["fp32_flops", "fast", "measured"]], [["fp32_flops", 1.0, "guessed"]], [[7, 1.0, "measured"]],
     [["fp32_flops"]], 5],
)  # fmt: skip
def test_figures_that_cannot_be_true_are_ignored(tmp_path: Path, rates: object) -> None:
    keep_rates(tmp_path, MACHINE, RATES)
    file = the_file(tmp_path)
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "rates": rates}))
    assert load_rates(tmp_path, MACHINE) is None


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert not keep_rates(blocked, MACHINE, RATES)
    assert not keep_rates(blocked / "below", MACHINE, RATES)
    assert load_rates(blocked, MACHINE) is None


def test_a_full_disk_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_rates(tmp_path, MACHINE, RATES)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert not keep_rates(tmp_path, MACHINE, RATES[:1])
    assert load_rates(tmp_path, MACHINE) == RATES
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_rates(tmp_path, MACHINE, RATES)
    monkeypatch.setattr("os.getuid", lambda: the_file(tmp_path).stat().st_uid + 1)
    assert load_rates(tmp_path, MACHINE) is None


def test_a_machine_is_found_with_its_kept_rates(tmp_path: Path) -> None:
    keep_rates(tmp_path, find_machine(), RATES)
    machine = find_machine(tmp_path)
    assert machine.rate("fp32_flops") == 2e11
    sources = {figure.name: figure.source for figure in machine.rates}
    assert sources["dram_bytes"] is Source.MEASURED
    assert sources["bf16_flops"] is Source.MODELLED  # was not measured


def test_rates_replace_those_of_the_same_name() -> None:
    machine = with_rates(with_rates(MACHINE, RATES), (Figure("fp32_flops", 1.0),))
    assert (machine.rate("fp32_flops"), machine.rate("dram_bytes")) == (1.0, 4e10)


def test_the_best_of_two_measurements() -> None:
    later = (Figure("fp32_flops", 1e11), Figure("dram_bytes", 5e10), Figure("l2_bytes", 1e11))
    best = {figure.name: figure.value for figure in best_rates(RATES, later)}
    assert best == {"fp32_flops": 2e11, "dram_bytes": 5e10, "l2_bytes": 1e11}
    assert best_rates(None, RATES) == RATES
