from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test, so that none reads or writes the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GRAINSHIFT_CACHE", str(folder))
    return folder
