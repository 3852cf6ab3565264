"""Writes the generated blocks of README and docs, or says with --check which are stale.

A block stands between `<!-- name -->` and `<!-- /name -->`; what is written there by hand is lost.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from typer.main import get_command

from grainshift.bench.readme import figures_block, headlines, replace_block, stored
from grainshift.cli import app
from grainshift.core.settings import Settings
from grainshift.environment import Environment

ROOT = Path(__file__).resolve().parents[1]


def figures(root: Path) -> str:
    """The figures that the README shows."""
    return figures_block(headlines(stored(root / "results")))


def all_figures(root: Path) -> str:
    """The figures of every stored Report."""
    return figures_block(stored(root / "results"))


def settings(root: Path) -> str:
    """Every setting, its default, and what it does."""
    says = described(Settings.__doc__ or "")
    rows = (
        f"| `{field.name}` | `{field.default!r}` | {says.get(field.name, '')} |"
        for field in fields(Settings)
    )
    return "\n".join(["| setting | default | what it does |", "|---|---|---|", *rows])


def environment(root: Path) -> str:
    """What the environment can say."""
    return "\n".join(
        f"- {name}: {text}" for name, text in described(Environment.__doc__ or "").items()
    )


def commands(root: Path) -> str:
    """Every command with its arguments and options."""
    group: Any = get_command(app)
    return "\n\n".join(_command(name, group.commands[name]) for name in sorted(group.commands))


def _command(name: str, command: Any) -> str:
    lines = [f"### grainshift {name}", "", (command.help or "").strip()]
    rows = [row for parameter in command.params if (row := _parameter(parameter))]
    return "\n".join([*lines, "", *rows] if rows else lines)


def _parameter(parameter: Any) -> str:
    shown = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    name = f"`{parameter.name.upper()}`" if parameter.param_type_name == "argument" else shown
    return f"- {name}: {getattr(parameter, 'help', None) or ''}"


def described(docstring: str) -> dict[str, str]:
    """The entries `name: what it is` of a docstring, each with its indented further lines."""
    found: dict[str, str] = {}
    name = ""
    for line in docstring.splitlines():
        if entry := re.match(r" {4}(\w+): (.+)", line):
            name = entry.group(1)
            found[name] = entry.group(2)
        elif name and line.startswith(" " * 8):
            found[name] += " " + line.strip()
        else:
            name = ""
    return found


Block = Callable[[Path], str]
PAGES: dict[str, dict[str, Block]] = {
    "docs/settings.md": {"settings": settings, "environment": environment},
    "docs/commands.md": {"commands": commands},
    "docs/figures.md": {"all_figures": all_figures},
    "README.md": {"figures": figures},
}


def fresh(page: str, text: str, root: Path = ROOT) -> str:
    """A page with each of its blocks written anew."""
    try:
        for name, block in PAGES[page].items():
            text = replace_block(text, name, block(root))
    except ValueError as fault:
        raise ValueError(f"{page}: {fault}") from fault
    return text


def main(check: bool) -> int:
    """Write every page that is stale, or only name it; answers how many there were to name."""
    stale = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        if (written := fresh(page, text)) != text:
            stale.append(page)
            if not check:
                path.write_text(written, encoding="utf-8")
    for page in stale:
        print(f"{page} {'is stale: run make docs' if check else 'is written anew'}")
    return len(stale) if check else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
