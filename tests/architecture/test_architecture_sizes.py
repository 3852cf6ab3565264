"""Sizes stay inside their budget."""

import rules_sizes as rules
from rules_tree import Module, modules

FILES = modules()


def test_functions_stay_short() -> None:
    lengths: dict[str, int] = {}
    for module in FILES:
        lengths.update(rules.function_lengths(module))
    assert rules.over_budget(lengths, rules.FUNCTIONS) == []


def test_files_stay_short() -> None:
    lengths = {module.name: rules.file_length(module) for module in FILES}
    assert rules.over_budget(lengths, rules.FILES) == []


def test_a_long_function_is_seen() -> None:
    body = "\n".join("    x = 1" for _ in range(80))
    lengths = rules.function_lengths(Module("grainshift.a", f"def f():\n{body}"))
    assert list(lengths.values()) == [81]
    assert len(rules.over_budget(lengths, rules.FUNCTIONS)) == 3
    assert rules.over_budget({"a": 8, "b": 9, "c": 40}, rules.FUNCTIONS)
    assert rules.over_budget({"a": 8, "b": 9, "c": 35}, rules.FUNCTIONS) == []


def test_a_long_file_is_seen() -> None:
    lengths = {"grainshift.a": rules.file_length(Module("grainshift.a", "\n" * 501))}
    assert rules.over_budget(lengths, rules.FILES)
