import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grainshift.core.family import Recipe
from grainshift.runtime.builder import Builders, Outcome

PATIENCE_S = 60.0


@pytest.fixture
def room(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "builds"


@pytest.fixture
def builders(room: Path) -> Iterator[Builders]:
    made = Builders(room)
    yield made
    made.close()


def recipe(name: str, **arguments: Any) -> Recipe:
    return Recipe("recipes", name, arguments)


def wait_until(what: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + PATIENCE_S
    while not (answer := what()):
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.01)
    return answer


def outcomes(builders: Builders, count: int = 1, at_s: float = 0.0) -> list[Outcome]:
    found: list[Outcome] = []

    def enough() -> bool:
        found.extend(builders.poll(at_s))
        return len(found) >= count

    wait_until(enough)
    return found


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def left(room: Path) -> list[Path]:
    """The folders of builds that are there."""
    return sorted(room.glob("session-*/build-*"))


def test_a_recipe_is_done_in_another_process_at_idle_priority(builders: Builders) -> None:
    builders.submit("order", recipe("tell", words="ü\n", numbers=[1, 2.5, None]))
    assert builders.busy
    (outcome,) = outcomes(builders)
    assert (outcome.order, outcome.failure) == ("order", "")
    facts = json.loads((Path(outcome.folder) / "facts.json").read_text())
    assert facts["idle"] and facts["nice"] == 19
    # Schedulers weigh each session as a whole: idle is less than we are only inside our own.
    assert facts["session"] == os.getsid(0) and facts["group"] != os.getpgid(0)
    assert facts["empty"] == []
    assert Path(facts["folder"]) == Path(outcome.folder).resolve()
    assert facts["parent"] == os.getpid()
    assert facts["arguments"] == {"words": "ü\n", "numbers": [1, 2.5, None]}
    assert not builders.busy


def test_nothing_heavy_is_imported_before_the_recipe_asks_for_it(builders: Builders) -> None:
    builders.submit(1, recipe("tell"))
    (outcome,) = outcomes(builders)
    facts = json.loads((Path(outcome.folder) / "facts.json").read_text())
    assert facts["loaded"] == [] and not facts["torch"]


def test_what_one_process_may_import_the_builder_may_too(
    builders: Builders, tmp_path: Path
) -> None:
    (tmp_path / "late_recipes.py").write_text("def ok():\n    open('ok', 'w').close()\n")
    sys.path.insert(0, str(tmp_path))
    try:
        builders.submit(1, Recipe("late_recipes", "ok", {}))
        (outcome,) = outcomes(builders)
    finally:
        sys.path.remove(str(tmp_path))
    assert outcome.failure == "" and (Path(outcome.folder) / "ok").exists()


BAD = {
    "raises": (recipe("fail"), "ValueError: no such instruction set"),
    "chatters": (recipe("chatter"), "ValueError: at last"),
    "exits": (recipe("leave", code=3), "the recipe exited with 3 instead"),
    "exits as if well": (recipe("leave", code=0), "the recipe exited with 0 instead"),
    "exits with words": (recipe("leave", code="no g++"), "the recipe exited with 'no g++'"),
    "vanishes": (recipe("vanish", code=7), "the builder ended with status 7"),
    "is killed": (recipe("kill", number=int(signal.SIGKILL)), "ended by signal 9"),
    "crashes": (recipe("kill", number=int(signal.SIGSEGV)), "ended by signal 11"),
    "has no module": (Recipe("no_such_module", "f", {}), "No module named 'no_such_module'"),
    "has no function": (recipe("no_such_function"), "no_such_function"),
    "has a wrong argument": (recipe("tell_me"), "tell_me"),
    "takes no such argument": (recipe("fail", x=1), "unexpected keyword argument 'x'"),
    "is not JSON": (recipe("tell", x=object()), "no builder could start: Object of type object"),
    "is not text": (recipe("tell", x="\ud800"), ""),
}


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name][1]])
def test_a_recipe_that_fails_says_why_and_leaves_nothing(
    name: str, builders: Builders, room: Path
) -> None:
    bad, why = BAD[name]
    builders.submit(name, bad)
    builders.submit("next", recipe("tell"))
    first, second = outcomes(builders, 2)
    assert first.order == name and why in first.failure and first.folder == ""
    assert len(first.failure) <= 560
    assert (second.order, second.failure) == ("next", "")
    assert left(room) == [Path(second.folder)]


def test_a_recipe_that_hangs_is_ended_with_all_it_began(
    builders: Builders, room: Path, tmp_path: Path
) -> None:
    builders.timeout_s = 5.0
    mark = tmp_path / "mark"
    builders.submit("slow", recipe("hang", mark=str(mark)))
    assert builders.poll(100.0) == []
    wait_until(mark.exists)
    processes = [int(word) for word in mark.read_text().split()]
    assert builders.poll(105.0) == []
    (outcome,) = builders.poll(105.1)
    assert outcome.failure == "gave up after 5 s" and outcome.seconds == pytest.approx(5.1)
    assert outcome.folder == "" and left(room) == []
    wait_until(lambda: not any(map(is_alive, processes)))
    assert not builders.busy


def test_what_idle_priority_does_not_get_done_begins_again_in_a_hurry(
    builders: Builders, tmp_path: Path
) -> None:
    builders.patience_s = 5.0
    mark = tmp_path / "mark"
    builders.submit("slow", recipe("tell_in_a_hurry", mark=str(mark)))
    assert builders.poll(100.0) == []
    idle = int(wait_until(lambda: mark.exists() and mark.read_text()))
    assert builders.poll(105.0) == []
    assert is_alive(idle)
    (outcome,) = outcomes(builders, at_s=105.1)
    assert outcome.failure == "" and outcome.seconds == pytest.approx(5.1)
    wait_until(lambda: not is_alive(idle))
    facts = json.loads((Path(outcome.folder) / "facts.json").read_text())
    assert not facts["idle"] and 0 < facts["nice"] < 19
    assert facts["empty"] == []


def test_a_build_that_gets_on_is_left_alone(builders: Builders, tmp_path: Path) -> None:
    builders.patience_s = 1.0
    mark = tmp_path / "mark"
    builders.submit("busy", recipe("work", mark=str(mark), seconds=0.5))
    assert builders.poll(100.0) == []
    process = int(wait_until(lambda: mark.exists() and mark.read_text()))
    assert builders.poll(101.1) == []
    assert is_alive(process)
    assert builders.poll(102.2) == []  # since then it did nothing
    wait_until(lambda: not is_alive(process))


def test_what_is_done_aside_is_in_nobodys_way(builders: Builders, tmp_path: Path) -> None:
    never = {"mark": str(tmp_path / "never")}
    for number in range(2):
        builders.submit(f"aside {number}", Recipe("recipes", "wait_for", never, aside=True))
    builders.submit("needed", recipe("tell"))
    assert [outcome.order for outcome in outcomes(builders)] == ["needed"]
    assert builders.busy


def test_more_recipes_than_builders_wait_their_turn(room: Path, tmp_path: Path) -> None:
    builders = Builders(room, count=2)
    marks = [tmp_path / f"mark {number}" for number in range(5)]
    for number, mark in enumerate(marks):
        builders.submit(number, recipe("wait_for", mark=str(mark)))
    assert builders.poll(0.0) == []
    assert len(left(room)) == 2
    marks[1].touch()
    assert [outcome.order for outcome in outcomes(builders)] == [1]
    assert len(left(room)) == 3  # what is done stays; the third began
    for mark in marks:
        mark.touch()
    rest = outcomes(builders, 4)
    assert sorted(str(outcome.order) for outcome in rest) == ["0", "2", "3", "4"]
    assert len({outcome.folder for outcome in rest}) == 4
    assert all((Path(outcome.folder) / "done").exists() for outcome in rest)
    builders.close()


def test_seconds_are_those_of_the_callers_clock(builders: Builders, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    builders.submit(1, recipe("wait_for", mark=str(mark)))
    builders.poll(1000.0)
    mark.touch()
    (outcome,) = outcomes(builders, at_s=1012.5)
    assert outcome.seconds == pytest.approx(12.5)


def test_close_ends_everything_and_leaves_nothing(room: Path, tmp_path: Path) -> None:
    builders = Builders(room, count=2)
    builders.submit(0, recipe("tell"))
    (done,) = outcomes(builders)
    mark = tmp_path / "mark"
    builders.submit(1, recipe("hang", mark=str(mark)))
    for number in range(3):
        builders.submit(number, recipe("tell"))
    builders.poll(0.0)
    wait_until(mark.exists)
    assert Path(done.folder).exists()
    builders.close()
    assert not any(map(is_alive, [int(word) for word in mark.read_text().split()]))
    assert list(room.iterdir()) == []
    assert not builders.busy and builders.poll(1.0) == []
    builders.close()
    builders.submit(9, recipe("tell"))  # and it may begin again
    assert outcomes(builders)[0].failure == ""
    builders.close()
    assert list(room.iterdir()) == []


def test_discard_removes_its_own_folders_only(builders: Builders, tmp_path: Path) -> None:
    builders.submit(1, recipe("tell"))
    (outcome,) = outcomes(builders)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in ("", "/", str(elsewhere), str(tmp_path), outcome.folder + "/../../.."):
        builders.discard(folder)
    assert elsewhere.exists() and Path(outcome.folder).exists()
    builders.discard(outcome.folder)
    builders.discard(outcome.folder)
    assert not Path(outcome.folder).exists()


@pytest.mark.parametrize("where", ["file", "proc", "deep"])
def test_a_room_that_cannot_be_made_is_an_outcome(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rooms = {
        "file": tmp_path / "file",
        "proc": Path("/proc/builds"),
        "deep": tmp_path / "file" / "in" / "it",
    }
    builders = Builders(rooms[where])
    for number in range(2):
        builders.submit(number, recipe("tell"))
    found = builders.poll(0.0)
    assert [outcome.order for outcome in found] == [0, 1]
    assert all(outcome.failure.startswith("no builder could start: ") for outcome in found)
    assert not builders.busy
    builders.close()


@pytest.mark.parametrize("python", ["/no/such/python", "", None])
def test_a_python_that_is_not_there_is_an_outcome(
    python: str | None, builders: Builders, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    builders.submit(1, recipe("tell"))
    (outcome,) = builders.poll(0.0)
    assert outcome.failure.startswith("no builder could start: ")
    assert left(room) == []


def test_a_room_that_vanishes_is_an_outcome(builders: Builders, room: Path) -> None:
    builders.submit(1, recipe("tell"))
    outcomes(builders)
    os.rename(room, room.parent / "moved")  # noqa: PTH104
    builders.submit(2, recipe("tell"))
    (second,) = outcomes(builders)
    assert second.failure.startswith("no builder could start: ")


def test_an_argument_that_is_no_text_never_raises(builders: Builders) -> None:
    builders.submit(1, BAD["is not text"][0])
    assert outcomes(builders)[0].order == 1


PARENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from grainshift.core.family import Recipe
from grainshift.runtime.builder import Builders

builders = Builders(Path({room!r}))
builders.submit(1, Recipe("recipes", "hang", {{"mark": {mark!r}}}))
builders.poll(0.0)
time.sleep(600)
"""


def test_the_parents_death_ends_the_child_and_the_next_one_sweeps(
    room: Path, tmp_path: Path, builders: Builders
) -> None:
    mark = tmp_path / "mark"
    text = PARENT.format(tests=str(Path(__file__).parent), room=str(room), mark=str(mark))
    parent = subprocess.Popen([sys.executable, "-c", text])
    try:
        wait_until(mark.exists)
        child, grandchild = (int(word) for word in mark.read_text().split())
        assert is_alive(child)
        builders.submit(0, recipe("tell"))  # while the other lives, its folder is left alone
        outcomes(builders)
        assert len(list(room.glob("session-*"))) == 2
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not is_alive(child) and not is_alive(grandchild))
    finally:
        parent.kill()
        parent.wait()
    heir = Builders(room)
    heir.submit(1, recipe("tell"))
    (outcome,) = outcomes(heir)
    assert Path(outcome.folder).exists()
    assert len(list(room.glob("session-*"))) == 2  # ours and the heir's
    heir.close()


def test_a_forked_process_leaves_children_and_folders_be(
    builders: Builders, room: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    builders.submit(1, recipe("wait_for", mark=str(mark)))
    builders.poll(0.0)
    forked = os.fork()
    if forked == 0:
        code = 1
        try:
            code = 0 if builders.poll(1e9) == [] else 2  # not a timeout of ours
            builders.close()
        finally:
            os._exit(code)
    assert os.waitpid(forked, 0)[1] == 0
    assert len(left(room)) == 1
    mark.touch()
    (outcome,) = outcomes(builders)
    assert outcome.failure == "" and (Path(outcome.folder) / "done").exists()
