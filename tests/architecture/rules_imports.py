"""Which way imports point: pure functions over source text."""

import ast
from collections.abc import Iterable, Mapping

from rules_tree import Module, dotted

INSIDE = frozenset({"core", "machine", "graph", "policies", "guards", "runtime", "journal"})
EVERYTHING = INSIDE | {"families", "tuner", "tuner.driver", "environment"}

# What each part of the package may import of ours, beside itself.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "core": frozenset(),
    "environment": frozenset({"core"}),
    **{part: frozenset({"core"}) for part in INSIDE - {"core"}},
    "families": frozenset({"core", "graph", "machine", "runtime"}),
    "tuner": frozenset({"core"}),
    "tuner.driver": frozenset({"core", "tuner", "runtime", "machine", "journal"}),
    "api": EVERYTHING,
    "": frozenset({"api", "core"}),
    "studio": frozenset({"core", "journal", "environment"}),
    "bench": EVERYTHING | {"", "api"},
    "cli": EVERYTHING | {"", "api", "bench", "studio"},
}

# Parts that decide: what they would need for an effect, they must not import.
PURE = ("core", "tuner", "guards")
# The files of tuner that perform; one part, tuner.driver.
ACTING = frozenset({"driver", "pulse", "ports", "orders"})
EFFECTS = frozenset(
    {
        *("torch", "time", "os", "random", "threading", "datetime", "pathlib", "sqlite3"),
        *("subprocess", "multiprocessing", "socket", "tempfile", "shutil", "secrets", "asyncio"),
        *("psutil", "ctypes", "concurrent", "queue", "signal", "logging"),
    }
)


def imported(module: Module) -> list[str]:
    """The dotted names that a file imports, wherever in it, those for types alone left out."""
    names: list[str] = []
    for node in _running(module.tree):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            names.extend(f"{base}.{alias.name}" for alias in node.names)
    return names


def _running(tree: ast.AST) -> Iterable[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from _running(node)


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    up = node.level - 1 if module.is_package else node.level
    parts = module.parts[: len(module.parts) - up]
    return ".".join([*parts, *([node.module] if node.module else [])])


def part_of(name: str) -> str:
    """The part of the package that a dotted name of ours belongs to; '' for the package itself."""
    parts = name.split(".")[1:]
    if parts[:1] == ["tuner"] and ACTING & {*parts[1:2]}:
        return "tuner.driver"
    return parts[0] if parts and parts[0] in MAY_IMPORT else ""


def wrong_ways(module: Module, known: frozenset[str]) -> list[str]:
    """The imports of a file that point the wrong way."""
    here = part_of(module.name)
    if here == "" and len(module.parts) > 1:
        return [f"{module.name}: no rule says what {module.parts[1]} may import"]
    wrong = []
    for target in sorted(resolved(module, known)):
        there = part_of(target)
        if target == module.name or not _allowed(here, there):
            wrong.append(f"{module.name} imports {target}")
        elif here == there == "families" and _family(module.name) != _family(target):
            wrong.append(f"{module.name} imports another family: {target}")
    return wrong


def _allowed(here: str, there: str) -> bool:
    return here == there or there in MAY_IMPORT[here]


def _family(name: str) -> str:
    """`families.x` belongs to family x; files beside the five folders belong to the whole."""
    return ".".join(name.split(".")[2:3])


def resolved(module: Module, known: frozenset[str]) -> set[str]:
    """The files of ours that a file imports: `a.b.name` is file a.b unless a.b.name is a file."""
    found = set()
    for name in imported(module):
        if name.split(".")[0] != "grainshift":
            continue
        while name not in known and "." in name:
            name = name.rpartition(".")[0]
        found.add(name)
    return found


def effects(module: Module) -> list[str]:
    """The imports by which a part that decides would act."""
    if part_of(module.name) not in PURE:
        return []
    tops = {name.split(".")[0] for name in imported(module)}
    return [f"{module.name} imports {top}" for top in sorted(tops & EFFECTS)]


def private_imports(module: Module) -> list[str]:
    """Imports from another file of ours of what begins with an underscore."""
    return [
        f"{module.name} imports {name}"
        for name in imported(module)
        if name.startswith("grainshift.") and name.rpartition(".")[2].startswith("_")
        if not name.rpartition(".")[2].startswith("__")
    ]


def cycles(modules: Iterable[Module]) -> list[tuple[str, ...]]:
    """The groups of files that import one another, directly or in a circle."""
    files = list(modules)
    known = frozenset(module.name for module in files)
    graph = {module.name: resolved(module, known) - {module.name} for module in files}
    reach = {name: _reachable(graph, name) for name in graph}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in graph
        if name in reach[name]
    }
    return sorted(groups)


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    front = set(graph[start])
    while front:
        seen |= front
        front = {after for name in front for after in graph.get(name, ())} - seen
    return seen


def environment_reads(module: Module) -> list[str]:
    """Reads or writes of environment variables."""
    if module.name == "grainshift.environment":
        return []
    names = {"os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv"}
    found = {dotted(node) for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
    return [f"{module.name} uses {name}" for name in sorted((found | {*imported(module)}) & names)]


def import_time_settings(module: Module) -> list[str]:
    """Settings of torch that take effect when a file is imported."""
    found = []
    for node in _at_import(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found.append(dotted(node.value.func))
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.extend(dotted(target) for target in targets)
    return [f"{module.name}: {name}" for name in found if name.startswith("torch.")]


def _at_import(tree: ast.AST) -> Iterable[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield node
        yield from _at_import(node)
