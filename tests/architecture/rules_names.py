"""Names, docstrings and exports: pure functions over source text."""

import ast
import re
from collections.abc import Iterator

from rules_tree import Module

SYNONYMS = frozenset(
    {
        *("manage", "manages", "manager", "managed", "managing"),
        *("handle", "handles", "handler", "handled", "handling"),
        *("util", "utils", "utility", "utilities", "helper", "helpers"),
    }
)
AS_VERBS = frozenset({"process", "processes", "processing"})
Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def words(name: str) -> list[str]:
    """The words of a name, in lower case: `RunEach`, `run_each` → run, each."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def synonyms(module: Module) -> list[str]:
    """Names of files, functions and classes that use a word the vocabulary has another for."""
    found = [(name, False) for name in module.parts[1:]]
    found += [
        (node.name, not isinstance(node, ast.ClassDef))
        for node in ast.walk(module.tree)
        if isinstance(node, Named)
    ]
    return [f"{module.name}: {name}" for name, is_def in found if _is_synonym(name, is_def)]


def _is_synonym(name: str, is_def: bool) -> bool:
    parts = words(name)
    return bool(SYNONYMS & {*parts}) or (is_def and parts[:1] != [] and parts[0] in AS_VERBS)


def undocumented(module: Module) -> list[str]:
    """Public files, classes, functions and methods without a docstring."""
    missing = [] if ast.get_docstring(module.tree) else [f"{module.name} itself"]
    for path, node in _public(module.tree):
        if not ast.get_docstring(node):
            missing.append(f"{module.name}: {path}")
    return missing


def _public(tree: ast.Module | ast.ClassDef, owner: str = "") -> Iterator[tuple[str, Named]]:
    for node in tree.body:
        if not isinstance(node, Named) or node.name.startswith("_"):
            continue
        yield f"{owner}{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from _public(node, f"{node.name}.")


def exports(module: Module) -> list[str] | None:
    """What `__all__` names, or None where there is none."""
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return None


def wrong_exports(module: Module) -> list[str]:
    """What is wrong with `__all__`: unsorted, private, or named twice."""
    names = exports(module)
    if names is None:
        return []
    wrong = [f"{module.name} exports {name}" for name in names if _private(name)]
    if names != sorted({*names}, key=_rank):
        wrong.append(f"{module.name}: __all__ should be {sorted({*names}, key=_rank)}")
    return wrong


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions: the order that ruff keeps as well."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name
