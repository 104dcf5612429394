"""What all commands share: printing tables and JSON, and failing with a sentence."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

JsonFlag: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
"""The `--json` that every command takes."""


class CommandFailed(Exception):
    """A command cannot be carried out; the message is for the user."""


def show_help_without_command(context: typer.Context) -> None:
    """For groups: `helio formats` alone explains itself."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def print_json(document: Any) -> None:
    """One JSON document, indented."""
    import msgspec  # noqa: PLC0415 - `helio --help` needs none

    typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_line(text: str) -> None:
    typer.echo(printable(text))


def print_problem(text: str) -> None:
    """On standard error, as what fails a command is, where the command goes on."""
    typer.echo(f"helio: {printable(text)}", err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table: drawn on a terminal, plain columns that never wrap where another program reads along."""
    cells = [[printable("" if cell is None else str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_drawn(columns, cells)
    else:
        _print_plain(columns, cells)


def printable(text: str) -> str:
    """The text without control characters: names in formats come from outside and could steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _print_drawn(columns: Sequence[str], rows: list[list[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only terminals need it
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(*columns)
    for row in rows:
        # As Text, because square brackets in a plain cell would be markup.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _print_plain(columns: Sequence[str], rows: list[list[str]]) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def header_document(said: Any, **known: Any) -> dict[str, Any]:
    """A header as it is printed: of an event, or of a row together with what only its place tells."""
    fact = {name: known[name] if name in known else getattr(said, name) for name in _HEADER}
    return {
        **fact,
        "source_ts": time_text(said.source_ts),
        "append_ts": None if fact["append_ts"] is None else time_text(fact["append_ts"]),
        "user": said.headers,
        "format_id": said.format_id.hex(),
    }


_HEADER: Final = (
    *("channel", "type", "supplier", "epoch", "sequence", "source_ts", "append_ts", "station_seq"),
    *("partition", "offset", "priority", "lifetime_ns", "hops", "correlation_id"),
)


def time_text(nanoseconds: int) -> str | int:
    """Nanoseconds since 1970 as text; as they are where no calendar reaches."""
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return nanoseconds
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond:06d}{nanoseconds % 1000:03d}Z"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
