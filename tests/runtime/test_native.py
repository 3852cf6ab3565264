"""Libraries built with the user's compiler: what is kept, what is trusted, what is given up."""

import ctypes
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from grainshift.runtime import native as natives
from grainshift.runtime.native import Native, compile_here, recipe

GOOD = 'extern "C" int answer() { return 42; }\n'
BAD = "this is no C++\n"


@pytest.fixture
def library(tmp_path: Path) -> Native:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "good.cpp").write_text(GOOD)
    (sources / "bad.cpp").write_text(BAD)
    return Native("small", sources, "good.cpp", tmp_path / "kept")


def bad(library: Native, *, needed: bool) -> Native:
    return dataclasses.replace(library, name="bad", main="bad.cpp", needed=needed)


def test_built_once_and_kept(library: Native) -> None:
    path = library.build()
    assert path is not None
    assert ctypes.CDLL(str(path)).answer() == 42
    assert library.kept() == path
    assert recipe([library]) is None
    assert path.stat().st_mode & 0o077 == 0


def test_the_recipe_is_plain_data_and_leaves_what_keep_takes(
    library: Native, tmp_path: Path
) -> None:
    made = recipe([library, bad(library, needed=False)])
    assert made is not None
    arguments = json.loads(json.dumps(made.arguments))
    compile_here(arguments["compiler"], arguments["jobs"], str(tmp_path))
    assert library.keep(str(tmp_path)) == library.kept()
    assert library.kept() is not None
    assert bad(library, needed=False).keep(str(tmp_path)) is None


def test_whoever_compiles_in_another_process_needs_no_pytorch() -> None:
    told = "import sys, grainshift.runtime.native; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0


def test_what_is_not_needed_is_given_up_once(library: Native) -> None:
    broken = bad(library, needed=False)
    assert broken.is_possible
    assert broken.build() is None
    assert broken.is_given_up and not broken.is_possible
    assert recipe([broken]) is None


def test_what_is_needed_raises_what_the_compiler_said(library: Native) -> None:
    with pytest.raises(OSError, match=r"could not build bad\.cpp: .*error"):
        bad(library, needed=True).build()


@pytest.mark.parametrize("harm", ["content", "seal", "no seal", "mode", "folder", "link"])
def test_a_library_that_could_be_anybodys_is_not_loaded(
    library: Native, harm: str, tmp_path: Path
) -> None:
    path = library.build()
    assert path is not None
    seal = path.with_suffix(".sha256")
    if harm == "content":
        path.write_bytes(path.read_bytes() + b"x")
    elif harm == "seal":
        seal.write_text("0" * 64)
    elif harm == "no seal":
        seal.unlink()
    elif harm == "mode":
        path.chmod(0o620)
    elif harm == "folder":
        path.parent.chmod(0o770)
    else:
        real = tmp_path / "real.so"
        path.rename(real)
        path.symlink_to(real)
    assert library.kept() is None


def test_other_sources_and_flags_are_another_library(library: Native) -> None:
    other = dataclasses.replace(library, flags=("-DOTHER",))
    assert library.build() != other.build()


def test_what_cannot_be_loaded_is_not_kept(library: Native, tmp_path: Path) -> None:
    (tmp_path / "small.so").write_text("garbage")
    with pytest.raises(OSError, match="cannot be loaded"):
        library.keep(str(tmp_path))
    assert library.kept() is None and library.build() is not None
    spare = dataclasses.replace(library, name="spare", flags=("-DSPARE",), needed=False)
    (tmp_path / "spare.so").write_text("garbage")
    assert spare.keep(str(tmp_path)) is None and spare.is_given_up


def test_what_is_kept_needs_no_compiler_any_more(
    library: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library.build()
    monkeypatch.setattr(natives, "find_compiler", lambda: None)
    natives._key.cache_clear()
    assert library.kept() == path and library.is_possible


def test_without_a_compiler_nothing_is_possible(
    library: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(natives, "find_compiler", lambda: None)
    assert not library.is_possible
    assert recipe([library]) is None
    with pytest.raises(OSError, match="no C\\+\\+ compiler"):
        library.build()
