"""What documentation must say: pure functions over texts and names."""

import re
from collections.abc import Iterable
from pathlib import Path

FAMILY_SHAPE = frozenset(
    {"__init__.py", "README.md", "build.py", "choice.py", "find.py", "forecast.py", "offer.py"}
)

# Put together here, so that this file does not name them itself.
FOREIGN = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w.-])/" + r"work(?!\w)",
        r"(?<![\w.-])/" + r"root(?!\w)",
        r"(?<![\w.-])/opt/" + r"(pypi|wheels)",
        r"\.\./" + r"shared\b",
        r"\bshared/" + r"(design|style|evidence|seeds|tools|hooks)\b",
        r"pypi\." + r"(org|python\.org)",
        r"python" + r"hosted\.org",
        r"download\.py" + r"torch\.org",
        r"\b(ana" + r"conda\.(org|com))",
        r"--(extra-)?index-" + r"url",
    )
)


def foreign(text: str) -> list[str]:
    """What a text names of one machine or of a package registry."""
    return [found.group(0) for pattern in FOREIGN for found in pattern.finditer(text)]


def missing_from_shape(files: Iterable[str]) -> set[str]:
    """The files that a family's folder lacks."""
    return set(FAMILY_SHAPE - {*files})


def folders_in(text: str) -> list[str]:
    """The folders that a page lists, each as a heading or list entry that begins with `name/`."""
    return re.findall(r"^(?:#+|[-*]|\d+\.)\s+`([a-z_]+)/`", text, flags=re.MULTILINE)


def real_folders(package: Path) -> set[str]:
    """The folders of the package that hold sources."""
    return {path.parent.name for path in package.glob("*/*.py")}
