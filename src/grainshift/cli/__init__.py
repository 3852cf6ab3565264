"""The command line: one small file for each command, wired here. Decides nothing."""

from typing import Annotated

import typer

from grainshift.cli.bench import bench as bench_command
from grainshift.cli.demo import demo as demo_command
from grainshift.cli.doctor import doctor as doctor_command
from grainshift.cli.pretrain import pretrain as pretrain_command
from grainshift.cli.probe import probe as probe_command
from grainshift.cli.replay import replay as replay_command
from grainshift.cli.report import report as report_command
from grainshift.cli.story import story as story_command
from grainshift.core.errors import GrainshiftError
from grainshift.environment import versions

COMMANDS = (
    bench_command,
    demo_command,
    doctor_command,
    pretrain_command,
    probe_command,
    replay_command,
    report_command,
    story_command,
)

app = typer.Typer(
    name="grainshift",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Makes a PyTorch model retune its own execution while it runs.",
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command line; what Grainshift refuses is one sentence and exit status 2."""
    try:
        app()
    except GrainshiftError as refusal:
        typer.echo(f"grainshift: {refusal}", err=True)
        raise SystemExit(2) from None


def _version(asked: bool) -> None:
    if asked:
        typer.echo("\n".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the versions."),
    ] = False,
) -> None:
    pass
