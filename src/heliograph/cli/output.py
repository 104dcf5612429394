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

FRAME: Final = 3
"""Characters that a drawn table has around each cell."""
GAP: Final = 2
"""Spaces between two plain columns."""


class CommandFailed(Exception):
    """A command cannot be carried out; the message is for the user."""


def show_help_without_command(context: typer.Context) -> None:
    """For groups: `helio formats` alone explains itself."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def print_json(document: Any) -> None:
    """One JSON document, indented."""
    import msgspec  # noqa: PLC0415 - `helio --help` needs none

    typer.echo(_escaped(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()))


def print_json_line(document: Any) -> None:
    """One JSON document on a line of its own."""
    import msgspec  # noqa: PLC0415 - as above

    typer.echo(_escaped(msgspec.json.encode(document).decode()))


def _escaped(text: str) -> str:
    """JSON that means the same, without what a terminal would obey: values come from outside.

    Outside of its texts JSON has nothing but what can be printed and line ends, so JSON's own escapes do.
    """
    if text.isascii() and "\x7f" not in text:  # below space msgspec has escaped all
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def print_line(text: str) -> None:
    typer.echo(printable(text))


def print_problem(text: str) -> None:
    """On standard error, as what fails a command is, where the command goes on."""
    typer.echo(f"helio: {printable(text)}", err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table: drawn on a terminal, plain columns that never wrap where another program reads the output.

    A table that is too wide for the terminal when drawn is printed in plain columns, and one that is too wide
    for these row by row, each value behind the name of its column: cells that are folded in the middle of a
    name or number cannot be read or copied.
    """
    cells = [[printable("" if cell is None else str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_drawn(columns, cells)
    else:
        _print_plain(columns, cells)


def printable(text: str) -> str:
    """The text without control characters: names in formats come from outside and could steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _print_drawn(columns: Sequence[str], rows: list[list[str]]) -> None:
    from rich.cells import cell_len  # noqa: PLC0415 - only terminals need it
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    widths = [max(cell_len(line[at]) for line in (columns, *rows)) for at in range(len(columns))]
    console = Console()
    if sum(widths) + FRAME * len(columns) + 1 > console.width:
        is_plain = sum(widths) + GAP * (len(columns) - 1) <= console.width
        (_print_plain if is_plain else _print_stacked)(columns, rows)
        return
    table = Table(*columns)
    for row in rows:
        # As Text, because square brackets in a plain cell would be markup.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _print_stacked(columns: Sequence[str], rows: list[list[str]]) -> None:
    width = max(map(len, columns))
    for number, row in enumerate(rows):
        if number:
            typer.echo()
        for name, cell in zip(columns, row, strict=True):
            typer.echo(f"{name.rjust(width)}  {cell}".rstrip())


def _print_plain(columns: Sequence[str], rows: list[list[str]]) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        typer.echo(
            (" " * GAP).join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def header_document(said: Any, **known: Any) -> dict[str, Any]:
    """A header as it is printed: of an event, or of a row with its partition, offset and append time."""
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


def size_text(size: int) -> str:
    """A number of bytes, in the unit that makes it short."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def age_text(nanoseconds: int, now_ns: int) -> str:
    """How long ago an instant was, in its largest unit; a clock that went back is no reason for a minus."""
    seconds = max(0, now_ns - nanoseconds) // 1_000_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
