"""Where the sources are, and how they are read for the rules."""

import ast
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "grainshift"


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text and its tree."""

    name: str
    text: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))


def modules(package: Path = PACKAGE) -> list[Module]:
    """Every source file of the package."""
    return [_module(path, package.parent) for path in sorted(package.rglob("*.py"))]


def _module(path: Path, source: Path) -> Module:
    parts = path.relative_to(source).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, path.read_text(encoding="utf-8"), is_package)


def kept_files(root: Path = ROOT) -> list[Path]:
    """Every file of the repository that is kept: what git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(root / name for name in set(listed.split("\0")) if (root / name).is_file())


def dotted(node: ast.AST) -> str:
    """`a.b.c` for the attribute that names it, and nothing for what is no plain name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""
