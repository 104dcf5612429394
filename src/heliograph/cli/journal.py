"""`helio journal`: look into the histories that a station keeps, also while it runs.

    helio journal ls data                                      which channels, how much of each
    helio journal cat data air.tracks --where "speed > 300"    events as lines of JSON, no class needed
    helio journal verify data                                  in a cron job: can every event be read?

Nothing is locked or changed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

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
    from collections.abc import Iterator

    from heliograph.formats import Format
    from heliograph.journal.folder import StationFolder
    from heliograph.journal.inspection import Report
    from heliograph.journal.records import Record, Rows
    from heliograph.spark.shape import Shape

DAMAGED = 1
AT_ONCE = 4096
"""Rows that are read, and filtered, together."""

app = typer.Typer(help="List, print and verify the histories that a station keeps.")

Folder: TypeAlias = Annotated[str, typer.Argument(help="The folder of a station.", show_default=False)]
_POINT_HELP = "'earliest', 'now', an offset, or a time such as 2026-11-05T10:00:00Z."
Point: TypeAlias = Annotated[str | None, typer.Option(help=_POINT_HELP, show_default=False)]


@app.callback(invoke_without_command=True)
def _journal(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command()
def ls(folder: Folder, *, as_json: JsonFlag = False) -> None:
    """List channels and partitions: their offsets, events, bytes and files.

    Retired files are no longer part of the history, and stay on disk for who planned to read them.
    """
    from heliograph.journal import inspection  # noqa: PLC0415 - commands import what they need when they run
    from heliograph.journal.folder import StationFolder, partition_folder  # noqa: PLC0415 - as above

    station = StationFolder(folder)
    rows = []
    for channel in station.channels():
        for partition in station.partitions(channel):
            with station.reader(channel, partition) as reader:
                earliest, watermark = reader.earliest, reader.watermark
                compacted = sum(s.next - s.first - s.events for s in reader.manifest.segments)
            files = inspection.ls(station.disk, partition_folder(channel, partition))
            rows.append(
                {
                    "channel": channel,
                    "partition": partition,
                    "earliest": earliest,
                    "watermark": watermark,
                    "events": watermark - earliest - compacted,
                    "bytes": sum(file.size for file in files if file.kind != "retired"),
                    "files": sum(file.kind != "retired" for file in files),
                    "sealed": sum(file.kind == "segment" for file in files),
                    "retired": sum(file.kind == "retired" for file in files),
                }
            )
    if as_json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        print_line("no history yet")


@app.command()
def cat(
    folder: Folder,
    channel: Annotated[str, typer.Argument(help="The name of a channel.", show_default=False)],
    *,
    where: Annotated[
        str | None, typer.Option(help="Only events for which this is true.", show_default=False)
    ] = None,
    start: Point = None,
    until: Point = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many.", show_default=False)] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print events, one JSON object per line, in the order in which they were appended."""
    rows = islice(_History(folder, channel, _point(start), _point(until), where).rows(), limit)
    shown = (_shown(channel, row, headers=headers) for row in rows)
    if as_json:
        print_json(list(shown))
        return
    import msgspec  # noqa: PLC0415 - as above

    for document in shown:
        typer.echo(msgspec.json.encode(document))


@app.command()
def verify(
    folder: Folder,
    channel: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    *,
    as_json: JsonFlag = False,
) -> None:
    """Read every byte of every history. Exit code 1: some events cannot be read; says which."""
    from heliograph.journal.folder import StationFolder  # noqa: PLC0415 - as above

    station = StationFolder(folder)
    channels = station.channels() if channel is None else (channel,)
    verdicts = [
        _verdict(station, name, partition) for name in channels for partition in station.partitions(name)
    ]
    if as_json:
        print_json({"sound": all(v["sound"] for v in verdicts), "partitions": verdicts})
    else:
        for verdict in verdicts:
            _print_verdict(verdict)
    if not all(verdict["sound"] for verdict in verdicts):
        raise typer.Exit(DAMAGED)


def _verdict(station: StationFolder, channel: str, partition: str) -> dict[str, Any]:
    from heliograph.errors import BadJournalFile, DiskError  # noqa: PLC0415 - as above
    from heliograph.journal import inspection  # noqa: PLC0415 - as above
    from heliograph.journal.folder import partition_folder  # noqa: PLC0415 - as above

    name = {"channel": channel, "partition": partition}
    try:
        report = inspection.verify(station.disk, partition_folder(channel, partition))
    except (BadJournalFile, DiskError) as error:
        return {**name, "sound": False, "problem": str(error), "damaged": []}
    return {**name, "sound": report.sound, **_facts(report)}


def _facts(report: Report) -> dict[str, Any]:
    return {
        "earliest": report.earliest,
        "watermark": report.watermark,
        "events": report.events,
        "compacted": report.compacted,
        "files": report.files,
        "damaged": [
            {"first": found.first, "last": found.next - 1, "reason": found.reason} for found in report.damaged
        ],
        "remarks": report.remarks,
        "unlisted": report.unlisted,
    }


def _print_verdict(verdict: dict[str, Any]) -> None:
    name = f"{verdict['channel']}/{verdict['partition']}"
    if "problem" in verdict:
        print_line(f"{name}  CANNOT be read: {verdict['problem']}")
        return
    word = "sound" if verdict["sound"] else "DAMAGED"
    print_line(
        f"{name}  {word}  {_counted(verdict['events'], 'event')} in {_counted(verdict['files'], 'file')}, "
        f"offsets {verdict['earliest']} to {verdict['watermark'] - 1}"
    )
    for found in verdict["damaged"]:
        print_line(f"  offsets {found['first']} to {found['last']}: {found['reason']}")
    for remark in verdict["remarks"]:
        print_line(f"  {remark}")
    for file in verdict["unlisted"]:
        print_line(f"  not listed: {file}")


def _point(text: str | None) -> str | int | datetime | None:
    """A place in a history as it is written on a command line."""
    if text is None or text in ("earliest", "now", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(f"{text!r} is no place in a history: {_POINT_HELP}") from None
    if time.tzinfo is None:
        raise CommandFailed(f"{text!r} has no time zone: write {text}Z if it is in UTC")
    return time


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class _Row(NamedTuple):
    """An event to be printed. Rows compare by when they were appended, then by where."""

    append_ts: int
    partition: str
    offset: int
    record: Record
    format: Format


class _History:
    """The events of a channel between two points that pass a filter, in the order of their appending."""

    def __init__(self, folder: str, channel: str, start: Any, until: Any, where: str | None) -> None:
        from heliograph.formats import FormatRegistry  # noqa: PLC0415 - as above
        from heliograph.journal.folder import StationFolder  # noqa: PLC0415 - as above
        from heliograph.spark.planning import plan_read  # noqa: PLC0415 - as above

        self._station = StationFolder(folder)
        self._channel = channel
        self._formats = FormatRegistry()
        plan = plan_read(folder, channel, start, until, fail_on_data_loss=True)
        for fmt in plan.formats:
            self._formats.register(fmt)
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for part in (*(part for file in plan.files for part in file.slices()), *plan.slices):
            self._ranges.setdefault(part.partition, []).append((part.first, part.next))
        self._shapes = None if where is None else self._filters(where)

    def rows(self) -> Iterator[_Row]:
        return merge(*map(self._rows_of, self._ranges))

    def _filters(self, where: str) -> dict[str, Shape]:
        """For each event type that the filter fits, what takes its offsets out of batches."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        from heliograph.expr.parser import parse  # noqa: PLC0415 - as above
        from heliograph.spark.filtering import conditions  # noqa: PLC0415 - as above
        from heliograph.spark.planning import chosen_types  # noqa: PLC0415 - as above
        from heliograph.spark.shape import Shape  # noqa: PLC0415 - as above

        tree = parse(where)
        offsets = pa.schema([("header", pa.struct([("offset", pa.int64())]))])
        found = conditions(tree, chosen_types(self._channel, self._formats.formats(), None))
        return {name: Shape(offsets, one.format, {name: [one.format]}, [tree]) for name, one in found.items()}

    def _rows_of(self, partition: str) -> Iterator[_Row]:
        from heliograph.journal.records import EVENT  # noqa: PLC0415 - as above

        with self._station.reader(self._channel, partition, self._formats) as reader:
            for first, end in sorted(self._ranges[partition]):
                position = first
                while position < end:
                    runs, position = reader.read_on(position, AT_ONCE, below=end)
                    passing = self._passing(partition, runs)
                    for rows in runs:
                        for offset, record in enumerate(rows.records, rows.first):
                            if record.kind == EVENT and (passing is None or offset in passing):
                                fmt = self._formats[record.format_id]
                                yield _Row(rows.append_ts, partition, offset, record, fmt)

    def _passing(self, partition: str, runs: list[Rows]) -> set[int] | None:
        """The offsets that pass the filter; None without one."""
        if self._shapes is None or not runs:
            return None
        from heliograph.spark.rows import BatchMaker, Place  # noqa: PLC0415 - as above

        passing: set[int] = set()
        for name, shape in self._shapes.items():
            maker = BatchMaker(
                Place(self._channel, partition, ""),
                shape,
                types=frozenset({name}),
                formats=self._formats,
                evolving=None,
                bad_records="null",
            )
            found = shape.finish(maker.batch(runs)).column("header").field("offset")
            passing.update(found.to_pylist())
        return passing


def _shown(channel: str, row: _Row, *, headers: bool) -> Any:
    """What is printed of an event; of one whose body is no event, where it is and what is wrong."""
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.codec import mapping_decoder  # noqa: PLC0415 - as above
    from heliograph.errors import DecodeError  # noqa: PLC0415 - as above
    from heliograph.reflect import mapping_to_json  # noqa: PLC0415 - as above

    try:
        body = mapping_to_json(row.format, mapping_decoder(row.format)(row.record.body))
    except DecodeError as error:
        return {"problem": str(error), "header": _header(channel, row)}
    event = msgspec.Raw(body)
    return {"header": _header(channel, row), "event": event} if headers else event


def _header(channel: str, row: _Row) -> dict[str, Any]:
    record = row.record
    return {
        "channel": channel,
        "type": row.format.name,
        "supplier": record.supplier,
        "epoch": record.epoch,
        "sequence": record.sequence,
        "source_ts": _time(record.source_ts),
        "append_ts": _time(row.append_ts),
        "station_seq": record.station_seq,
        "partition": row.partition,
        "offset": row.offset,
        "priority": record.priority,
        "lifetime_ns": record.lifetime_ns,
        "hops": record.hops,
        "correlation_id": record.correlation_id,
        "user": record.headers,
        "format_id": record.format_id.hex(),
    }


def _time(nanoseconds: int) -> str | int:
    """Nanoseconds since 1970 as text; as they are where no calendar reaches."""
    from heliograph.fieldtypes import EPOCH  # noqa: PLC0415 - starting the command line loads nothing heavy

    try:
        time = EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return nanoseconds
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond:06d}{nanoseconds % 1000:03d}Z"
