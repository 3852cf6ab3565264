"""The one file that reads the environment."""

from pathlib import Path

import pytest
import torch

from grainshift.environment import child_variables, environment, versions


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"GRAINSHIFT_CACHE": "/a/b", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/grainshift"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/grainshift"),
        ({"GRAINSHIFT_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/grainshift"),
    ],
)
def test_the_cache_folder_follows_the_variables(variables: dict[str, str], folder: str) -> None:
    found = environment(variables)
    assert found.cache_folder == Path(folder)
    assert found.journal_file.parent == found.rates_folder.parent == Path(folder)


def test_an_account_without_a_home_still_has_a_cache_folder() -> None:
    assert environment({}).cache_folder.is_absolute()


def test_a_relative_folder_stays_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = environment({"GRAINSHIFT_CACHE": "here/cache"})
    assert found.cache_folder == tmp_path / "here/cache"


def test_a_folder_that_cannot_be_told_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nobody = environment({"GRAINSHIFT_CACHE": "~no-such-user-here/cache"})
    assert nobody.cache_folder == tmp_path / "~no-such-user-here/cache"
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert environment({"GRAINSHIFT_CACHE": "cache"}).cache_folder == Path("cache")


def test_the_variables_of_this_process_are_read_by_default(monkeypatch) -> None:
    monkeypatch.setenv("GRAINSHIFT_CACHE", "/from/here")
    assert environment().cache_folder == Path("/from/here")
    assert child_variables(ADDED="1") | {"ADDED": "1"} == child_variables(ADDED="1")
    assert child_variables()["GRAINSHIFT_CACHE"] == "/from/here"


def test_versions_name_what_is_installed() -> None:
    found = versions()
    assert found["torch"] == torch.__version__
    assert {"python", "grainshift", "numpy"} <= found.keys()
