from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_values import EVENTS, INSTRUCTIONS, note, plain, read

from grainshift.core.codec import encode_tagged
from grainshift.core.events import Failed, Frozen
from grainshift.journal.text import CHUNK, instruction_text, pack, unpack

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def stays_awake() -> None:
    pass


def there_and_back(items: list[Any], first: int = 0) -> list[Any]:
    return [entry for chunk in pack(first, items, stays_awake) for entry in unpack(chunk)]


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_comes_back(kind: Any) -> None:
    @quick
    @given(st.from_type(kind))
    def check(event: Any) -> None:
        (entry,) = there_and_back([(event, ())], first=7)
        assert type(entry.event) is kind
        assert plain(entry.event) == plain(event)
        assert (entry.number, entry.instructions) == (7, ())

    check()


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_every_instruction_comes_back(kind: Any) -> None:
    @quick
    @given(st.lists(st.from_type(kind), min_size=1, max_size=3).map(tuple))
    def check(instructions: Any) -> None:
        (entry,) = there_and_back([(Frozen(1.0), instructions)])
        assert [type(done) for done in entry.instructions] == [kind] * len(instructions)
        assert plain(entry.instructions) == plain(instructions)

    check()


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_text_is_what_the_codec_would_give(kind: Any) -> None:
    @quick
    @given(st.from_type(kind))
    def check(instruction: Any) -> None:
        import json

        tagged = json.dumps(encode_tagged(instruction), separators=(",", ":"))
        assert instruction_text(instruction) == tagged

    check()


def test_many_entries_keep_numbers_and_order() -> None:
    items = [(read(number), (note(str(number)),)) for number in range(3 * CHUNK + 5)]
    chunks = list(pack(100, items, stays_awake))
    assert max(chunk.count for chunk in chunks) <= CHUNK
    back = [entry for chunk in chunks for entry in unpack(chunk)]
    assert [entry.number for entry in back] == list(range(100, 100 + len(items)))
    assert [(entry.event, entry.instructions) for entry in back] == items


def test_what_cannot_be_encoded_leaves_a_gap_and_nothing_else_is_lost() -> None:
    odd = Failed(1.0, "site", "B1", 1, "build", object())  # type: ignore[arg-type]
    items: list[Any] = [(read(number), ()) for number in range(300)]
    items[5] = (odd, ())
    items[299] = (odd, ())
    numbers = [entry.number for entry in there_and_back(items)]
    assert numbers == [number for number in range(300) if number not in (5, 299)]


def test_the_encoder_rests_between_slices() -> None:
    rests: list[int] = []
    list(pack(0, [(read(0), ())] * 1_000, lambda: rests.append(1)))
    assert len(rests) >= 1_000 // 128
