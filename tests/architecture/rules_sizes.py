"""How long functions and files are: pure functions over source text."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from rules_tree import Module


@dataclass(frozen=True)
class Budget:
    """The most lines in the middle, at the 90 % mark and at the very most."""

    median: float
    p90: float
    most: int


FUNCTIONS = Budget(median=9, p90=35, most=80)
FILES = Budget(median=300, p90=300, most=500)


def function_lengths(module: Module) -> dict[str, int]:
    """The lines of each function, from `def` to its last; a function inside another counts too."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        f"{module.name}:{node.lineno} {node.name}": (node.end_lineno or node.lineno)
        - node.lineno
        + 1
        for node in ast.walk(module.tree)
        if isinstance(node, kinds)
    }


def file_length(module: Module) -> int:
    """The lines of a file."""
    return len(module.text.splitlines())


def over_budget(lengths: dict[str, int], budget: Budget) -> list[str]:
    """In what the lengths go beyond their budget."""
    values = sorted(lengths.values())
    if not values:
        return []
    wrong = [
        f"{name} has {length} lines; {budget.most} at the most"
        for name, length in lengths.items()
        if length > budget.most
    ]
    for share, limit in ((0.5, budget.median), (0.9, budget.p90)):
        if (found := quantile(values, share)) > limit:
            wrong.append(f"{found} lines at the {share:.0%} mark; {limit} at the most")
    return wrong


def quantile(ordered: Sequence[int], share: float) -> int:
    """The value that `share` of the ordered values do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
