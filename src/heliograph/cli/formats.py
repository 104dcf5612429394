"""`helio formats`: look at wire formats and check that a change to an event class is compatible.

    helio formats show air:Track                      its fields
    helio formats export air:Track -o track.hgf       its description, to be committed
    helio formats export air:Track -o track.json --json-schema
    helio formats check track.hgf air:Track           in CI: can events of then be read by the class of now?

A target is `module:Class`, imported from the current folder, or a file with a format description (`*.hgf`).
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import typer

from heliograph.cli.output import (
    CommandFailed,
    JsonFlag,
    print_json,
    print_line,
    print_table,
    show_help_without_command,
)

if TYPE_CHECKING:
    from heliograph.model.compatibility import FormatComparison
    from heliograph.model.formats import Format

INCOMPATIBLE = 1

app = typer.Typer(help="Show, check and export the formats of events.")

_TARGET_HELP = "module:Class, or a *.hgf file."
Target: TypeAlias = Annotated[str, typer.Argument(help=_TARGET_HELP, show_default=False)]


class Loaded(NamedTuple):
    """What a target stands for."""

    format: Format
    has_default: frozenset[str]
    """Empty for a file: a description does not say which fields have defaults."""


@app.callback(invoke_without_command=True)
def _formats(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command()
def show(target: Target, *, as_json: JsonFlag = False) -> None:
    """List the fields of a format, also of records inside it."""
    from heliograph.codec.dynamic.reflect import describe  # noqa: PLC0415 - commands import what they need when they run

    fmt = load(target).format
    rows = describe(fmt)
    if as_json:
        print_json({**_summary(fmt), "fields": [row._asdict() for row in rows]})
        return
    print_line(f"{fmt.name}  id {fmt.id.hex()}  {_body_text(fmt)}")
    print_table(
        ["field", "type", "key", "offset"],
        [(row.path, row.type, "key" if row.key else "", row.offset) for row in rows],
    )


@app.command()
def check(
    old: Target,
    new: Target,
    *,
    missing: Annotated[
        Literal["default", "refuse"],
        typer.Option(help="Fields the reader alone has take their default, or are refused."),
    ] = "default",
    both: Annotated[
        bool, typer.Option("--both", help="Check also that NEW events can be read as OLD.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check that events written as OLD can be read as NEW. Exit code 1: they cannot."""
    from heliograph.model.compatibility import compare  # noqa: PLC0415 - as above

    first, second = load(old), load(new)
    directions = [(old, new, first, second)]
    if both:
        directions.append((new, old, second, first))
    results = [
        (
            writer,
            reader,
            compare(sent.format, wanted.format, has_default=wanted.has_default, missing=missing),
        )
        for writer, reader, sent, wanted in directions
    ]
    compatible = all(comparison.compatible for _, _, comparison in results)
    if as_json:
        print_json(
            {"compatible": compatible, "directions": [_comparison_json(*result) for result in results]}
        )
    else:
        for result in results:
            _print_comparison(*result)
    if not compatible:
        raise typer.Exit(INCOMPATIBLE)


@app.command()
def export(
    target: Target,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write, such as track.hgf.", show_default=False)
    ],
    *,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Write the JSON Schema of its events instead.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write the description of a format to a file, for `check` to compare with later, or as JSON Schema."""
    fmt, has_default = load(target)
    data = fmt.description
    if json_schema:
        import msgspec  # noqa: PLC0415 - as above

        from heliograph.interchange.json_schema import schema_of  # noqa: PLC0415 - as above

        data = msgspec.json.format(msgspec.json.encode(schema_of(fmt, has_default)), indent=2)
    try:
        output.write_bytes(data)
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error.strerror}") from None
    if as_json:
        print_json({**_summary(fmt), "file": str(output)})
    else:
        print_line(f"{output}: {fmt.name}  id {fmt.id.hex()}")


def load(target: str) -> Loaded:
    """The format a target names; CommandFailed says what is wrong with it."""
    if target.endswith(".hgf") or Path(target).is_file():
        return Loaded(_read_file(Path(target)), frozenset())
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise CommandFailed(f"{target!r} is no target: write module:Class, or the name of a *.hgf file")
    from heliograph.model.compatibility import defaults_of  # noqa: PLC0415 - as above
    from heliograph.model.event import info_of  # noqa: PLC0415 - as above

    cls = import_class(module, name)
    return Loaded(info_of(cls).format, defaults_of(cls))


def _read_file(path: Path) -> Format:
    from heliograph.errors import FormatError  # noqa: PLC0415 - as above
    from heliograph.model.formats import MAX_DESCRIPTION, Format  # noqa: PLC0415 - as above

    try:
        with path.open("rb") as file:
            data = file.read(MAX_DESCRIPTION + 1)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    try:
        return Format.from_description(data)
    except FormatError as error:
        raise CommandFailed(f"{path} holds no format description: {error}") from None


def import_class(module: str, name: str) -> Any:
    """What a module has under a name; CommandFailed when it has none, or cannot be loaded."""
    # As `python -m` does it: programs lie in the folder the user stands in.
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as above
    try:
        # What the module prints must not get between the lines of `--json`.
        with redirect_stdout(sys.stderr):
            found: Any = import_module(module)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise CommandFailed(f"cannot import {module}: {type(error).__name__}: {reason}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise CommandFailed(f"{module} has no {name}")
        found = getattr(found, part)
    return found


def _summary(fmt: Format) -> dict[str, Any]:
    return {
        "name": fmt.name,
        "id": fmt.id.hex(),
        "body": fmt.body,
        "byte_order": fmt.byte_order,
        "size": fmt.size,
        "key": fmt.key,
    }


def _body_text(fmt: Format) -> str:
    if fmt.body == "packed":
        return "packed"
    order = "little" if fmt.byte_order == "<" else "big"
    return f"native, {order}-endian, {fmt.size} bytes and what they refer to"


def _comparison_json(writer: str, reader: str, comparison: FormatComparison) -> dict[str, Any]:
    return {
        "writer": writer,
        "reader": reader,
        "compatible": comparison.compatible,
        "problems": comparison.problems,
        "ignored": comparison.ignored,
        "defaulted": comparison.defaulted,
        "widened": [widening._asdict() for widening in comparison.widened],
    }


def _print_comparison(writer: str, reader: str, comparison: FormatComparison) -> None:
    verdict = "can be read as" if comparison.compatible else "CANNOT be read as"
    print_line(f"{writer} {verdict} {reader}")
    for problem in comparison.problems:
        print_line(f"  problem    {problem}")
    for path in comparison.ignored:
        print_line(f"  ignored    {path}")
    for path in comparison.defaulted:
        print_line(f"  default    {path}")
    for widening in comparison.widened:
        print_line(f"  widened    {widening.path}: {widening.writer} to {widening.reader}")
