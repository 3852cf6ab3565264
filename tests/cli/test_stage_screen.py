"""What the demo shows while it runs, in a terminal and elsewhere."""

import io

from rich.console import Console
from stage_values import look, record, told

from grainshift.cli.stage.screen import open_screen, picture

SWAP = told("swapped", "from stock to unrolled(8): gains 50.0% over the baseline, by 4 blocks")


def drawn(width: int, *lines) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(
        picture(look(record(doing="trying rolled", others=0.5), *lines), list(lines), 0.0)
    )
    return text.getvalue()


def console(width: int = 80, **more) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, height=24, **more), text


def test_a_picture_tells_pace_choices_machine_and_story() -> None:
    text = drawn(120, SWAP, told("noted", "the level has moved: looking again"))
    assert "phase 1 of 4: The machine as it is, 6 s left" in text
    assert "10 ms a call" in text and "2.00×" in text
    assert "unrolled(16, packed)" in text and "trying rolled" in text
    assert "others use 50% of the cores" in text
    assert "3.0 s  encoder swapped from stock to unrolled(8)" in text
    assert "encoder the level has moved" in text


def test_a_picture_fits_eighty_columns() -> None:
    assert max(map(len, drawn(80, SWAP).splitlines())) <= 80


def test_an_ended_search_has_no_budget() -> None:
    made, text = record(), io.StringIO()
    made.budget_s = None
    Console(file=text, width=80).print(picture(look(made), [], 0.0))
    assert "exploring was ended" in text.getvalue() and "to explore" not in text.getvalue()


def test_before_the_first_block_nothing_is_claimed() -> None:
    empty = record()
    empty.blocks.clear()
    empty.report = None
    text = io.StringIO()
    Console(file=text, width=80).print(picture(look(empty), [], 0.0))
    assert "not measured yet" in text.getvalue() and "×" not in text.getvalue()


def test_elsewhere_than_in_a_terminal_lines_are_plain_and_whole() -> None:
    out, text = console()
    with open_screen(out, 0.0) as screen:
        screen.show(look(record(), at_s=0.0))
        screen.show(look(record(), SWAP, told("proposed", "rolled"), at_s=3.0))
        screen.show(look(record(), at_s=6.0))
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("-- phase 1 of 4")
    assert lines[1].endswith(f"encoder swapped {SWAP.line.text}")  # not broken at the width
    assert "2.00×" in lines[2] and len(lines) == 3
    assert "\x1b" not in text.getvalue()


def test_a_dumb_terminal_gets_plain_lines() -> None:
    out, text = console(force_terminal=True, _environ={"TERM": "dumb"}, color_system=None)
    with open_screen(out, 0.0) as screen:
        screen.show(look(record(), at_s=0.0))
    assert "\x1b" not in text.getvalue() and "phase 1" in text.getvalue()


def test_a_terminal_is_drawn_in_place_and_left_clean() -> None:
    out, text = console(force_terminal=True, _environ={"TERM": "xterm"})
    with open_screen(out, 0.0) as screen:
        screen.show(look(record(), SWAP))
        assert "swapped" in text.getvalue()
    assert text.getvalue().count("\x1b[?25l") == text.getvalue().count("\x1b[?25h") == 1


def test_a_low_terminal_keeps_the_newest_story() -> None:
    out, text = console(force_terminal=True, _environ={"TERM": "xterm"})
    with open_screen(out, 0.0) as screen:
        screen.show(look(record(), *(told("noted", f"note {n:02d}") for n in range(30))))
    assert "note 29" in text.getvalue() and "note 10" not in text.getvalue()
    assert "phase 1 of 4" in text.getvalue()
