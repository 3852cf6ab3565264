"""Documentation says what is there, all of it, and nothing of one machine."""

import importlib.util
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
import rules_docs as rules
from rules_tree import PACKAGE, ROOT, kept_files

from grainshift.core.settings import Settings
from grainshift.environment import Environment

TEXTS = [path for path in kept_files() if path.suffix not in {".npz", ".png", ".svg", ".gif"}]
FAMILIES = sorted(path.parent for path in PACKAGE.glob("families/*/__init__.py"))


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_setting_is_documented(generate: ModuleType) -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    for kind in (Settings, Environment):
        names = [field.name for field in fields(kind)]
        assert list(generate.described(kind.__doc__ or "")) == names
        assert [name for name in names if name not in page] == []


def test_an_undocumented_setting_is_seen(generate: ModuleType) -> None:
    text = "All.\n\n    first: a thing\n        in two lines.\n    second: another.\n    "
    assert generate.described(text) == {"first": "a thing in two lines.", "second": "another."}


def test_generated_blocks_are_fresh(generate: ModuleType) -> None:
    stale = [
        page
        for page in generate.PAGES
        if generate.fresh(page, (ROOT / page).read_text()) != (ROOT / page).read_text()
    ]
    assert stale == [], "run `make docs`"


def test_a_stale_block_is_seen(generate: ModuleType) -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    assert generate.fresh("docs/settings.md", text.replace("| `margin` |", "| `mragin` |")) == text


def test_a_page_without_its_markers_is_refused(generate: ModuleType) -> None:
    with pytest.raises(ValueError, match="there must be one"):
        generate.fresh("docs/settings.md", "# Settings\n")


def test_the_journey_lists_the_real_folders() -> None:
    listed = rules.folders_in((ROOT / "docs" / "journey.md").read_text())
    assert sorted(listed) == sorted(rules.real_folders(PACKAGE))


def test_the_list_of_folders_is_read() -> None:
    assert rules.folders_in("## `core/` values\n- `tuner/` the loop\nsee `cli/`") == [
        "core",
        "tuner",
    ]


@pytest.mark.parametrize("folder", FAMILIES, ids=lambda folder: folder.name)
def test_a_family_has_the_shape_of_all(folder: Path) -> None:
    assert rules.missing_from_shape(path.name for path in folder.iterdir()) == set()
    assert "FAMILY" in (folder / "__init__.py").read_text()


def test_a_misshapen_family_is_seen() -> None:
    assert rules.missing_from_shape(rules.FAMILY_SHAPE - {"find.py"}) == {"find.py"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_names_no_machine_and_no_registry(path: Path) -> None:
    assert rules.foreign(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "see /" + "work/main",
        "cd /" + "root",
        "--index-" + "url x",
        "https://py" + "pi.org/simple",
        ".." + "/shared/x",
        "as shared/" + "design.md says",
    ],
)
def test_what_is_foreign_is_seen(text: str) -> None:
    assert rules.foreign(text)


def test_what_is_ours_is_not_foreign() -> None:
    assert rules.foreign("bench/workloads, 3/work of it, shared_by, a/root.py, /workers") == []
