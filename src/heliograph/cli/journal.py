"""`helio journal`: look into the histories that a station keeps, also while it runs.

    helio journal ls data                                      which channels, how much of each
    helio journal files data air.tracks                        the files that are its history right now
    helio journal consumers data                               how far behind each durable consumer is
    helio journal cat data air.tracks --where "speed > 300"    events as lines of JSON, no class needed
    helio journal verify data                                  in a cron job: can every event be read?
    helio journal export data air.tracks tracks.parquet        all events that can be read, for elsewhere
    helio journal export data air.tracks tracks.mcap           for Foxglove and PlotJuggler
    helio journal import data drive.mcap                       and back, each topic as a channel
    helio journal asyncapi data asyncapi.json                  all channels as an AsyncAPI document
    helio journal seal data                                    what is not sealed yet, into Parquet files
    helio journal repair data --dry-run                        what would be done about damage

Nothing is locked or changed, except by `import`, `seal` and `repair`.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path  # noqa: TC003 - typer looks at the annotation
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from heliograph.cli.output import (
    CommandFailed,
    JsonFlag,
    age_text,
    counted,
    print_json,
    print_json_line,
    print_line,
    print_problem,
    print_table,
    show_help_without_command,
    size_text,
    time_text,
)
from heliograph.errors.sentences import station_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.errors import HistoryDamaged
    from heliograph.journal.consumers.lag import ConsumerLag
    from heliograph.journal.format.folder import StationFolder
    from heliograph.journal.tools.inspection import VerifiedRange, VerifyReport
    from heliograph.runtime.ports import Ports

DAMAGED = 1

app = typer.Typer(
    help="List, print, verify, export, seal and repair the histories of a station, and their consumers."
)

Folder: TypeAlias = Annotated[str, typer.Argument(help="The folder of a station.", show_default=False)]
_POINT_HELP = "'earliest', 'now', an offset, or a time such as 2026-11-05T10:00:00Z."
Point: TypeAlias = Annotated[str | None, typer.Option(help=_POINT_HELP, show_default=False)]


@app.callback(invoke_without_command=True)
def _journal(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command()
def ls(folder: Folder, *, as_json: JsonFlag = False) -> None:
    """List channels and partitions: their offsets, events, bytes and files.

    Retired files are no longer part of the history and stay on disk for readers that have begun. Exit code 1:
    some cannot be listed; says which, and lists the others.
    """
    from heliograph.errors import HeliographError  # noqa: PLC0415 - commands import what they need when they run
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above

    station = StationFolder(folder)
    rows, bad = [], []
    for channel in station.channels():
        for partition in station.partitions(channel):
            try:
                rows.append(_listed(station, channel, partition))
            except HeliographError as error:
                bad.append({"channel": channel, "partition": partition, "problem": str(error)})
    if as_json:
        print_json([*rows, *bad])
    elif rows:
        _print_histories(rows)
    elif not bad:
        print_line("no history yet")
    for one in bad:
        print_problem(f"{one['channel']}/{one['partition']} cannot be listed: {one['problem']}")
    if bad:
        raise typer.Exit(DAMAGED)


def _print_histories(rows: list[dict[str, Any]]) -> None:
    """Each partition once, and below it its channels: most folders have one partition."""
    rows = sorted(rows, key=lambda row: str(row["partition"]))
    for number, (partition, of_one) in enumerate(groupby(rows, lambda row: row["partition"])):
        print_line(("\n" if number else "") + f"partition {partition}")
        print_table(
            ("channel", "events", "offsets", "size", "files", "sealed", "retired"), map(_cells, of_one)
        )


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    first, after = row["earliest"], row["watermark"]
    offsets = f"{first}..{after - 1}" if first < after else f"next {after}"
    size = size_text(row["bytes"])
    return row["channel"], row["events"], offsets, size, row["files"], row["sealed"], row["retired"]


def _listed(station: StationFolder, channel: str, partition: str) -> dict[str, Any]:
    from heliograph.journal.format.folder import partition_folder  # noqa: PLC0415 - as above
    from heliograph.journal.tools import inspection  # noqa: PLC0415 - as above

    with station.reader(channel, partition) as reader:
        earliest, watermark = reader.earliest, reader.watermark
        compacted = sum(s.next - s.first - s.events for s in reader.manifest.segments)
    files = inspection.ls(station.disk, partition_folder(channel, partition))
    return {
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


@app.command()
def files(
    folder: Folder,
    channel: Annotated[str, typer.Argument(help="A channel.", show_default=False)],
    *,
    paths: Annotated[
        bool, typer.Option("--paths", help="Only the paths of sealed files, one per line.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the files that are a channel's history right now, in the order of their offsets.

    Other files in the folder `sealed` hold rows that these have, too, or that retention has dropped, and
    disappear soon: a pattern over the folder would count them twice.
    """
    from heliograph.journal.format.folder import StationFolder, partition_folder  # noqa: PLC0415 - as above
    from heliograph.journal.tools import inspection  # noqa: PLC0415 - as above

    station = StationFolder(folder)
    rows = [
        {
            "kind": "sealed" if file.kind == "segment" else "head",
            "partition": partition,
            "first": file.first,
            "next": file.next,
            "bytes": file.size,
            "path": f"{station.path}/{partition_folder(channel, partition)}/{file.name}",
        }
        for partition in station.partitions(channel)
        for file in inspection.ls(station.disk, partition_folder(channel, partition))
        if file.kind != "retired"
    ]
    if paths:
        for row in rows:
            if row["kind"] == "sealed":
                print_line(str(row["path"]))
    elif as_json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        print_line("no history yet")


@app.command()
def consumers(
    folder: Folder,
    channel: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    *,
    as_json: JsonFlag = False,
) -> None:
    """List durable consumers and groups: how far each is in each partition, and how many events behind.

    Listed is what is kept on disk; what is being acknowledged right now comes a little later.

    acked: events below this offset are acknowledged. lag: events from there to the end. oldest: how long ago
    the first of them was appended. tries: how often it was handed out. seen: how long ago the consumer kept
    its cursor. Exit code 1: the cursors of some channels cannot be read; says which, and lists the others.
    """
    from heliograph.errors import BadJournalFile, DiskError  # noqa: PLC0415 - as above
    from heliograph.journal.consumers.lag import lag  # noqa: PLC0415 - as above
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above

    places: list[ConsumerLag] = []
    bad = []
    for name in StationFolder(folder).channels() if channel is None else (channel,):
        try:
            places += lag(folder, name)
        except (BadJournalFile, DiskError) as error:
            bad.append({"channel": name, "problem": str(error)})
    if as_json:
        print_json([*map(_lagging, places), *bad])
    elif places:
        _print_lags(places)
    elif not bad:
        print_line("no durable consumers yet")
    for one in bad:
        print_problem(f"the consumers of {one['channel']} cannot be listed: {one['problem']}")
    if bad:
        raise typer.Exit(DAMAGED)


def _print_lags(places: list[ConsumerLag]) -> None:
    """The channel and partition once, and below them its consumers: a line with all of it is too wide."""
    now = time.time_ns()
    places = sorted(places, key=lambda place: (place.channel, place.partition))
    for number, ((channel, partition), lags) in enumerate(
        groupby(places, lambda place: (place.channel, place.partition))
    ):
        print_line(("\n" if number else "") + f"{channel}, partition {partition}")
        print_table(
            ("consumer", "acked", "lag", "oldest", "tries", "seen", "owner"),
            [
                (
                    f"group {place.consumer}" if place.is_group else place.consumer,
                    place.acknowledged,
                    place.events,
                    None if place.since_ts is None else age_text(place.since_ts, now),
                    place.attempts,
                    age_text(place.seen_ts, now),
                    station_name(place.owner),
                )
                for place in lags
            ],
        )


def _lagging(place: ConsumerLag) -> dict[str, Any]:
    return {
        "channel": place.channel,
        "consumer": place.consumer,
        "kind": "group" if place.is_group else "consumer",
        "partition": place.partition,
        "acknowledged": place.acknowledged,
        "end": place.end,
        "lag": place.events,
        "since": None if place.since_ts is None else time_text(place.since_ts),
        "attempts": place.attempts,
        "seen": time_text(place.seen_ts),
        "owner": place.owner,
    }


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
    from heliograph.cli.history import shown  # noqa: PLC0415 - as above
    from heliograph.history_rows import HistoryRows  # noqa: PLC0415 - as above

    rows = islice(HistoryRows(folder, channel, point(start), point(until), where).rows(), limit)
    documents = (shown(channel, row, headers=headers) for row in rows)
    if as_json:
        print_json(list(documents))
        return
    for document in documents:
        print_json_line(document)


@app.command()
def verify(
    folder: Folder,
    channel: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    *,
    as_json: JsonFlag = False,
) -> None:
    """Read every byte of every history, of its delayed events, and of the cursors of its durable consumers.

    Exit code 1: some events, or some cursors, cannot be read, or the name of the folder's partition does not
    fit its histories; says which.
    """
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above
    from heliograph.journal.format.identity import inspect_identity  # noqa: PLC0415 - as above

    station = StationFolder(folder)
    channels = station.channels() if channel is None else (channel,)
    verdicts = [_verdict(station, place) for name in channels for place in _places(station, name)]
    cursors = [found for name in channels if (found := _cursor_verdict(station, name)) is not None]
    identity = inspect_identity(station.disk)
    sound = identity.sound and all(verdict["sound"] for verdict in (*verdicts, *cursors))
    if as_json:
        own = {"sound": identity.sound, "partition": identity.name, "problem": identity.problem}
        print_json({"sound": sound, "identity": own, "partitions": verdicts, "cursors": cursors})
    else:
        if identity.problem is not None:
            print_line(f"the file 'partition'  DAMAGED: {identity.problem}")
        for verdict in verdicts:
            _print_verdict(verdict)
        for verdict in cursors:
            if not verdict["sound"]:
                print_line(f"{verdict['channel']} consumers  DAMAGED: {verdict['problem']}")
    if not sound:
        raise typer.Exit(DAMAGED)


@app.command()
def seal(
    folder: Folder,
    channel: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    *,
    as_json: JsonFlag = False,
) -> None:
    """Seal all that is not sealed yet into Parquet files; no station may have the folder.

    Small histories, and those that only Spark writes, are then read as fast as any Parquet file.
    """
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above
    from heliograph.journal.format.manifest import load  # noqa: PLC0415 - as above
    from heliograph.journal.station_folder import KEEP_ALL  # noqa: PLC0415 - as above
    from heliograph.journal.tools.repair import folder_lock  # noqa: PLC0415 - as above
    from heliograph.journal.writing.group_commit import PartitionWriter  # noqa: PLC0415 - as above
    from heliograph.model.formats import FormatRegistry  # noqa: PLC0415 - as above
    from heliograph.runtime.ports import system_ports  # noqa: PLC0415 - as above

    station, ports = StationFolder(folder), system_ports(folder)
    sealed = []
    with folder_lock(ports):
        for name in station.channels() if channel is None else (channel,):
            for place in _places(station, name):
                before = len(load(station.disk, place.folder).segments)
                with PartitionWriter(
                    ports, place.folder, FormatRegistry(), limits=KEEP_ALL, rewriter=None, note="to seal it"
                ) as writer:
                    writer.seal()
                    stats = writer.stats()
                made = stats.segments - before  # its own maintenance may have been faster
                sealed.append({**place.facts(), "segments": made, "heads": stats.heads})
    if as_json:
        print_json(sealed)
        return
    for one in sealed:
        left = f", {counted(one['heads'], 'head')} left" if one["heads"] else ""
        print_line(f"{_title(one)}  {counted(one['segments'], 'file')} sealed{left}")


@app.command()
def publish(
    folder: Folder,
    store: Annotated[
        str,
        typer.Argument(help="A folder, or a URL such as s3://bucket/path.", show_default=False),
    ],
    channel: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    *,
    keep_seconds: Annotated[
        float | None,
        typer.Option(help="What the folder has dropped stays in the store until it is so old."),
    ] = 0.0,
    as_json: JsonFlag = False,
) -> None:
    """Put all sealed files into a store, where readers see them that do not see the folder.

    A station that has the folder does that itself, with `helio station --store`; none
    may have it now. What is not sealed stays here: `helio journal seal` first.
    """
    from heliograph.journal.format.folder import StationFolder, partition_folder  # noqa: PLC0415 - as above
    from heliograph.journal.format.manifest import load  # noqa: PLC0415 - as above
    from heliograph.journal.published.publication import Store  # noqa: PLC0415 - as above
    from heliograph.journal.published.publisher import SegmentPublisher  # noqa: PLC0415 - as above
    from heliograph.journal.tools.repair import folder_lock  # noqa: PLC0415 - as above
    from heliograph.runtime.ports import system_ports  # noqa: PLC0415 - as above

    station, ports = StationFolder(folder), system_ports(folder)
    published: list[dict[str, Any]] = []
    with folder_lock(ports):
        publisher = SegmentPublisher(ports, Store(store, keep_seconds=keep_seconds))
        for name in station.channels() if channel is None else (channel,):
            for partition in station.partitions(name):
                place = partition_folder(name, partition)
                manifest = load(station.disk, place)
                uploaded = publisher.publish(station.disk, place, manifest)
                unsealed = manifest.next - publisher.held_from(place, manifest)
                facts = {"channel": name, "partition": partition, "uploaded": uploaded}
                published.append({**facts, "unsealed": unsealed})
        publisher.write_domain()
        publisher.close()
    if as_json:
        print_json(published)
        return
    for one in published:
        left = f", {counted(one['unsealed'], 'event')} not sealed yet" if one["unsealed"] else ""
        print_line(f"{one['channel']} {one['partition']}  {counted(one['uploaded'], 'file')} uploaded{left}")


@app.command()
def repair(
    folder: Folder,
    channel: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put damaged histories in order, and what waits beside them; no station may have the folder.

    What can be read of a damaged file is written anew, what is replaced is kept aside in a folder beside it,
    and what is lost is named; of durable consumers whose cursor was damaged, where they go on. Exit code 1:
    there is something to be done, and this was a dry run.
    """
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above
    from heliograph.journal.format.identity import inspect_identity, repair_identity  # noqa: PLC0415 - as above
    from heliograph.journal.tools.repair import folder_lock, plan_repair  # noqa: PLC0415 - as above
    from heliograph.journal.tools.repair import repair as put_in_order  # noqa: PLC0415 - as above
    from heliograph.runtime.ports import system_ports  # noqa: PLC0415 - as above

    station, ports = StationFolder(folder), system_ports(folder)
    channels = station.channels() if channel is None else (channel,)
    repairs = []
    with nullcontext() if dry_run else folder_lock(ports):
        identity = (inspect_identity if dry_run else repair_identity)(station.disk)
        for name in channels:
            for place in _places(station, name):
                plan = (
                    plan_repair(station.disk, place.folder, ports.random)
                    if dry_run
                    else put_in_order(ports, place.folder)
                )
                repairs.append({**place.facts(), "steps": plan.steps, "lost": _ranges(plan.lost)})
        cursors = [_repaired_cursors(station, ports, name, dry_run=dry_run) for name in channels]
    cursors = [one for one in cursors if one["steps"]]
    if as_json:
        own = {"steps": identity.steps}
        print_json({"dry_run": dry_run, "identity": own, "partitions": repairs, "cursors": cursors})
    else:
        if identity.steps:
            _print_repair("the file 'partition'", {"steps": identity.steps, "lost": []}, dry_run=dry_run)
        for one in repairs:
            _print_repair(_title(one), one, dry_run=dry_run)
        for one in cursors:
            _print_repair(f"{one['channel']} consumers", one, dry_run=dry_run)
    if dry_run and (identity.steps or any(one["steps"] for one in (*repairs, *cursors))):
        raise typer.Exit(DAMAGED)


def _repaired_cursors(station: StationFolder, ports: Ports, channel: str, *, dry_run: bool) -> dict[str, Any]:
    from heliograph.journal.consumers.cursor_repair import inspect_cursors, repair_cursors  # noqa: PLC0415 - as above
    from heliograph.journal.format.folder import cursor_folder  # noqa: PLC0415 - as above

    folder, watermarks = cursor_folder(channel), station.watermarks(channel)
    report = inspect_cursors(station.disk, folder) if dry_run else repair_cursors(ports, folder, watermarks)
    return {"channel": channel, "steps": [] if report is None else report.steps(watermarks), "lost": []}


def _print_repair(name: str, found: dict[str, Any], *, dry_run: bool) -> None:
    word = "to be repaired" if dry_run else "repaired"
    print_line(f"{name}  {word if found['steps'] else 'nothing to repair'}")
    for step in found["steps"]:
        print_line(f"  {step}")
    for lost in found["lost"]:
        print_line(f"  LOST: offsets {lost['first']} to {lost['last']}")


@app.command()
def export(
    folder: Folder,
    channel: Annotated[str, typer.Argument(help="The name of a channel.", show_default=False)],
    file: Annotated[
        Path,
        typer.Argument(
            help="New: .jsonl for lines of JSON, .parquet for a folder of such files, .mcap for Foxglove.",
            show_default=False,
        ),
    ],
    *,
    where: Annotated[
        str | None, typer.Option(help="Only events for which this is true.", show_default=False)
    ] = None,
    start: Point = None,
    until: Point = None,
    as_json: JsonFlag = False,
) -> None:
    """Write all events that can be read, with their headers. Exit code 1: some could not be; says which."""
    from heliograph.cli.history import write_json_lines, write_parquet  # noqa: PLC0415 - as above
    from heliograph.history_rows import HistoryRows  # noqa: PLC0415 - as above
    from heliograph.interchange import mcap  # noqa: PLC0415 - as above

    writers = {".jsonl": write_json_lines, ".parquet": write_parquet, ".mcap": mcap.write}
    write = writers.get(file.suffix)
    if write is None:
        raise CommandFailed(f"{file.name!r} ends in none of {', '.join(writers)}, which say what to write")
    if file.exists():
        raise CommandFailed(f"{str(file)!r} is there already; name a new file")
    history = HistoryRows(folder, channel, point(start), point(until), where, skip_damage=True)
    events = write(history, channel, file)
    if as_json:
        print_json(
            {"file": str(file), "events": events, "skipped": [_skipped(*gap) for gap in history.skipped]}
        )
    else:
        print_line(f"{counted(events, 'event')} written to {file}")
        for partition, gap in history.skipped:
            last = gap.next_available - 1
            print_line(f"  {partition}: offsets {gap.first} to {last} cannot be read: {gap.reason}")
    if history.skipped:
        raise typer.Exit(DAMAGED)


@app.command("import")
def import_(
    folder: Annotated[
        str, typer.Argument(help="The folder of a station that does not run; made if it is new.")
    ],
    file: Annotated[Path, typer.Argument(help="An .mcap file with JSON messages.", show_default=False)],
    *,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this one; may be repeated.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Push the messages of a file into persistent channels that are named as its topics."""
    from heliograph.interchange import mcap  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    if not file.is_file():
        raise CommandFailed(f"there is no file {str(file)!r}")
    with Station(folder) as station:
        pushed = mcap.read(file, station, topics)
    if as_json:
        print_json({"folder": folder, "channels": pushed})
        return
    for channel, events in sorted(pushed.items()):
        print_line(f"{counted(events, 'event')} pushed into {channel}")
    if not pushed:
        print_line(f"{file} has no messages{' of these topics' if topics else ''}")


@app.command()
def asyncapi(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(help="The file to write, such as asyncapi.json.", show_default=False)
    ],
    *,
    title: Annotated[str, typer.Option(help="What the document calls itself.")] = "Heliograph",
    as_json: JsonFlag = False,
) -> None:
    """Write the AsyncAPI document of all channels of a folder."""
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.history_rows import formats_of  # noqa: PLC0415 - as above
    from heliograph.interchange.asyncapi import document  # noqa: PLC0415 - as above
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above

    channels = {channel: formats_of(folder, channel) for channel in StationFolder(folder).channels()}
    described = msgspec.json.format(msgspec.json.encode(document(channels, title=title)), indent=2)
    try:
        file.write_bytes(described)
    except OSError as error:
        raise CommandFailed(f"cannot write {file}: {error.strerror}") from None
    if as_json:
        print_json({"file": str(file), "channels": sorted(channels)})
    else:
        print_line(f"{file}: {counted(len(channels), 'channel')}")


def _skipped(partition: str, gap: HistoryDamaged) -> dict[str, Any]:
    return {"partition": partition, "first": gap.first, "next": gap.next_available, "reason": gap.reason}


class _Place(NamedTuple):
    """A journal of a channel: its history, or what waits beside it to be delivered later."""

    channel: str
    partition: str
    folder: str
    is_delayed: bool

    def facts(self) -> dict[str, Any]:
        return {"channel": self.channel, "partition": self.partition, "delayed": self.is_delayed}


def _places(station: StationFolder, channel: str) -> list[_Place]:
    from heliograph.journal.format.folder import delayed_folder, partition_folder  # noqa: PLC0415 - as above

    return [
        *(_Place(channel, p, partition_folder(channel, p), False) for p in station.partitions(channel)),
        *(_Place(channel, p, delayed_folder(channel, p), True) for p in station.delayed(channel)),
    ]


def _title(found: dict[str, Any]) -> str:
    return f"{found['channel']}/{found['partition']}{'  delayed' if found['delayed'] else ''}"


def _verdict(station: StationFolder, place: _Place) -> dict[str, Any]:
    from heliograph.errors import BadJournalFile, DiskError  # noqa: PLC0415 - as above
    from heliograph.journal.tools import inspection  # noqa: PLC0415 - as above

    try:
        report = inspection.verify(station.disk, place.folder)
    except (BadJournalFile, DiskError) as error:
        return {**place.facts(), "sound": False, "problem": str(error), "damaged": []}
    return {**place.facts(), "sound": report.sound, **_facts(report)}


def _cursor_verdict(station: StationFolder, channel: str) -> dict[str, Any] | None:
    """None for a channel that never had a durable consumer."""
    from heliograph.errors import BadJournalFile, DiskError  # noqa: PLC0415 - as above
    from heliograph.journal.consumers.cursor_repair import inspect_cursors  # noqa: PLC0415 - as above
    from heliograph.journal.format.folder import cursor_folder  # noqa: PLC0415 - as above

    try:
        report = inspect_cursors(station.disk, cursor_folder(channel))
    except (BadJournalFile, DiskError) as error:
        return {"channel": channel, "sound": False, "names": [], "problem": str(error)}
    if report is None:
        return None
    found = {"channel": channel, "sound": report.sound, "names": [kept.state.name for kept in report.places]}
    return found if report.sound else {**found, "problem": report.problem}


def _facts(report: VerifyReport) -> dict[str, Any]:
    return {
        "earliest": report.earliest,
        "watermark": report.watermark,
        "events": report.events,
        "compacted": report.compacted,
        "files": report.files,
        "damaged": _ranges(report.damaged),
        "lost": _ranges(report.lost),
        "remarks": report.remarks,
        "unlisted": report.unlisted,
    }


def _ranges(found: Iterable[VerifiedRange]) -> list[dict[str, Any]]:
    return [{"first": one.first, "last": one.next - 1, "reason": one.reason} for one in found]


def _print_verdict(verdict: dict[str, Any]) -> None:
    name = _title(verdict)
    if "problem" in verdict:
        print_line(f"{name}  CANNOT be read: {verdict['problem']}")
        return
    word = "sound" if verdict["sound"] else "DAMAGED"
    first, after = verdict["earliest"], verdict["watermark"]
    offsets = f"offsets {first} to {after - 1}" if first < after else f"the next offset is {after}"
    print_line(
        f"{name}  {word}  {counted(verdict['events'], 'event')} in {counted(verdict['files'], 'file')}, "
        f"{offsets}"
    )
    for found in verdict["damaged"]:
        print_line(f"  offsets {found['first']} to {found['last']}: {found['reason']}")
    for found in verdict["lost"]:
        print_line(f"  lost before, and accepted: offsets {found['first']} to {found['last']}")
    for remark in verdict["remarks"]:
        print_line(f"  {remark}")
    for file in verdict["unlisted"]:
        print_line(f"  not listed: {file}")


def point(text: str | None) -> str | int | datetime | None:
    """A position in a history as it is written on a command line."""
    if text is None or text in ("earliest", "now", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(f"{text!r} is no position in a history: {_POINT_HELP}") from None
    if time.tzinfo is None:
        raise CommandFailed(f"{text!r} has no time zone: write {text}Z if it is in UTC")
    return time
