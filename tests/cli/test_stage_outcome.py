"""What the demo says at its end is what was measured, losses included."""

import io

import pytest
from rich.console import Console
from stage_values import record, told

from grainshift.cli.stage.outcome import sentences, table

ROUNDING = 1e-4


def said(*records, rounding_ratio: float = ROUNDING) -> str:
    return "\n".join(sentences(records, rounding_ratio))


def shown(width: int, *records) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(table([0.01, 0.02, 0.03], records))
    return text.getvalue()


def test_a_gain_is_told_with_its_interval() -> None:
    assert "2.00 times as fast as stock (2.00 to 2.00)" in said(record())


def test_a_loss_is_told_in_plain_words() -> None:
    text = said(record(tuned_s=0.02))
    assert "slower than stock, 0.50 times its speed" in text
    assert "trials cost" not in text  # another Choice than stock is to blame


def test_a_loss_on_stock_is_put_down_to_trials() -> None:
    assert "this is what trials cost, and noise" in said(record(tuned_s=0.02, live="stock"))


def test_no_difference_is_told() -> None:
    assert "no clear difference to stock" in said(record(tuned_s=0.01))


def test_too_few_blocks_are_told() -> None:
    assert "too few blocks" in said(record(blocks=3))


def test_what_changed_is_told_and_what_did_not() -> None:
    text = said(record(), record(live="rolled"), record(live="rolled", trials=1))
    assert "encoder went from stock to unrolled(16, packed), after 3 trials" in text
    assert "encoder went from unrolled(16, packed) to rolled" in text
    assert "what is live ended as it was, after 1 trial and 0 swaps" in text
    assert "decoder" not in text


def test_a_swap_there_and_back_is_counted() -> None:
    after = record()
    after.swaps = [told("swapped", "there"), told("reverted", "and back")]
    assert "ended as it was, after 3 trials and 2 swaps" in said(record(), after)


@pytest.mark.parametrize(("error_ratio", "verdict"), [(2e-7, "agreed"), (0.1, "DID NOT AGREE")])
def test_whether_outputs_agree_is_told(error_ratio: float, verdict: str) -> None:
    assert f"both models {verdict} in 20 comparisons" in said(
        record(), record(error_ratio=error_ratio)
    )


def test_a_machine_that_was_not_quiet_is_told() -> None:
    assert "not quiet" in said(record(others=0.5))
    assert "not quiet" not in said(record(others=0.01), record(others=0.5))


def test_nothing_measured_is_no_fault() -> None:
    empty = record(blocks=1)
    empty.blocks.clear()
    empty.conditions.clear()
    empty.report = None
    assert "too few blocks" in said(empty)
    assert "not told" in shown(80, empty)
    assert said() == ""


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_cuts_nothing_off(width: int) -> None:
    text = shown(width, *(record(name=name) for name in ("as it is", "load", "gone", "frozen")))
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "2.00 to 2.00" in text and "20 ms a call, 3 calls" in text
