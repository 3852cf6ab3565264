"""Names keep to the vocabulary, and what is public is documented and sorted."""

import pytest
import rules_names as rules
from rules_tree import Module, modules

FILES = modules()


def bad(text: str, name: str = "grainshift.a") -> Module:
    return Module(name, f'"""A."""\n{text}')


@pytest.mark.parametrize("module", FILES, ids=lambda module: module.name)
def test_a_file_names_and_documents(module: Module) -> None:
    assert rules.synonyms(module) == []
    assert rules.undocumented(module) == []
    assert rules.wrong_exports(module) == []


@pytest.mark.parametrize("name", ["handle_it", "_manage", "SlotManager", "process_rows", "helper"])
def test_a_synonym_is_seen(name: str) -> None:
    kind = "class" if name[0].isupper() else "def"
    text = f"{kind} {name}{'' if kind == 'class' else '()'}:\n    '''A.'''"
    assert rules.synonyms(bad(text))


def test_a_synonym_in_a_file_name_is_seen() -> None:
    assert rules.synonyms(bad("", "grainshift.core.utils"))


def test_a_noun_is_no_synonym() -> None:
    assert rules.synonyms(bad("def child_process():\n    pass")) == []
    assert rules.synonyms(bad("class Processes:\n    pass")) == []


def test_a_missing_docstring_is_seen() -> None:
    text = "class A:\n    '''A.'''\n    def b(self):\n        pass\n    def _c(self): pass"
    assert rules.undocumented(bad(text)) == ["grainshift.a: A.b"]
    assert rules.undocumented(Module("grainshift.a", "")) == ["grainshift.a itself"]


def test_wrong_exports_are_seen() -> None:
    assert rules.wrong_exports(bad("__all__ = ['b', 'a']"))
    assert rules.wrong_exports(bad("__all__: list[str] = ['_a']"))
    assert rules.wrong_exports(bad("__all__ = ['A_B', 'Choice', 'plan']")) == []
