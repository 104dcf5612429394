"""`helio`, the command line of Heliograph.

Every command takes `--json` and then prints exactly one JSON document. Exit codes:

    0   done, or the answer is yes
    1   the answer is no: formats are incompatible, events are damaged, ...
    2   the command could not be carried out; one line on standard error says why

Commands import what they need when they run, so that `helio --help` answers at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from heliograph._version import __version__
from heliograph.cli import (
    doctor,
    flight_recorder,
    formats,
    foxglove,
    gateway,
    journal,
    keys,
    operate,
    pipeline,
    pubsub,
    replay,
    spark,
    station,
    top,
    why,
)
from heliograph.cli.output import CommandFailed, printable, show_help_without_command
from heliograph.errors import HeliographError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 2
INTERRUPTED = 130

app = typer.Typer(
    name="helio",
    help="Heliograph: a real-time event service for Python.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.add_typer(formats.app, name="formats")
app.add_typer(journal.app, name="journal")
app.add_typer(keys.app, name="keys")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(spark.app, name="spark")
app.add_typer(operate.consumer, name="consumer")
for command in (
    station.station,
    station.ls,
    pubsub.pub,
    pubsub.sub,
    pubsub.ask,
    pubsub.state,
    operate.info,
    operate.monitor,
    operate.offers,
    operate.purge,
    operate.redrive,
    pubsub.explain,
    why.why,
    why.trace,
    top.top,
    top.metrics,
    doctor.doctor,
    replay.replay,
    flight_recorder.recorder,
    foxglove.foxglove,
    gateway.gateway,
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"helio {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _helio(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback has done all
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    show_help_without_command(context)


def run(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line and return its exit code; errors become one line on standard error."""
    try:
        code = app(arguments, standalone_mode=False)
    except TyperException as error:
        return _fail(error.format_message())
    except (CommandFailed, HeliographError) as error:
        return _fail(str(error))
    except typer.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _fail(message: str) -> int:
    typer.echo(f"helio: {printable(message)}", err=True)
    return FAILED


def main() -> None:
    """The entry point of the `helio` program."""
    sys.exit(run())
