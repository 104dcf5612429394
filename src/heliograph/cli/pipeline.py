"""`helio pipeline`: jobs over the history of channels, on Spark.

    helio pipeline archive data air.tracks tables/tracks --format delta
    helio pipeline archive data air.tracks tables/tracks --follow --every 10
    helio pipeline snapshot data air.tracks tables/latest
    helio pipeline correlate data storms tables/storms
    helio pipeline register data air.tracks tables/sealed --format iceberg
    helio pipeline align data tables/train --channel imu=robot.imu --channel gps=robot.gps --grid 0.01
    helio pipeline cutouts data air.tracks tables/alarms --when "speed > 900" --before 10 --after 5
    helio pipeline report data report.html
    helio pipeline quality data air.tracks --expect "speed BETWEEN 0 AND 1200" --expect "fail: id > 0"

What a job is asked is checked before Spark starts. While it runs, how far it is stands on standard error
where that is a terminal; what it did is printed at the end. With --follow it goes on with what comes until it
gets Ctrl-C or SIGTERM, finishes the batch in hand, and says what it did.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli.job_command import (
    After,
    AllowLoss,
    Before,
    ChannelName,
    Checkpoint,
    Command,
    Folder,
    Remote,
    Table,
    TableFormat,
    TimeOf,
    When,
    Where,
    Window,
    runs_job,
    runs_job_here,
    runs_job_once,
)
from heliograph.cli.output import JsonFlag, counted, print_json, print_line, show_help_without_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from heliograph.spark import jobs

app = typer.Typer(help="Jobs over the history of channels, on Spark.", no_args_is_help=False)


@app.callback(invoke_without_command=True)
def _pipeline(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command()
@runs_job
def archive(
    folder: Folder,
    channel: ChannelName,
    to: Table,
    *,
    table_format: TableFormat = "parquet",
    by: Annotated[str, typer.Option(help="A partition per day or per hour, in UTC.")] = "day",
    time: TimeOf = "append",
    where: Where = None,
    file_size: Annotated[str, typer.Option(help="What files grow to, by joining small ones.")] = "256m",
    compact_after: Annotated[
        int, typer.Option(help="So many small files of a partition are joined; 0: never.", min=0)
    ] = 8,
    events_per_commit: Annotated[int, typer.Option(help="At most.", min=1)] = 10_000_000,
    allow_loss: AllowLoss = False,
) -> Command:
    """Write the events of a channel into a table of typed columns, each once; go on where it ended."""
    from heliograph.spark.jobs.archive import ArchiveJob  # noqa: PLC0415 - commands import what they need when they run

    job = ArchiveJob(
        folder=folder,
        channel=channel,
        to=to,
        format=table_format,
        by=by,
        time=time,
        where=where,
        file_size=file_size,
        compact_after=compact_after,
        events_per_commit=events_per_commit,
        fail_on_data_loss=not allow_loss,
    )

    def shows(done: jobs.Archived) -> tuple[int, int, str]:
        return done.offsets, done.left, counted(done.commits, "commit")

    return Command(f"archive {channel}", job.run, shows, _archived)


def _archived(done: jobs.Archived) -> Iterator[str]:
    yield (
        f"{counted(done.events, 'event')} of {done.channel} written to {done.table} ({done.format}) in "
        f"{counted(done.commits, 'commit')} and {done.seconds:.1f} s"
    )
    yield f"  {counted(done.files, 'file')}, {done.bytes:,} bytes; {done.late} events were late"
    if done.joined:
        yield f"  {done.joined} small files became {done.joined_into}"
    if done.new_columns:
        yield f"  new columns: {', '.join(done.new_columns)}"


@app.command()
@runs_job
def quality(
    folder: Folder,
    channel: ChannelName,
    *,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            help="A filter that every event should pass; in front what to do about others: count:, "
            "quarantine: or fail:. May be given several times.",
            show_default=False,
        ),
    ] = None,
    window: Window = 60.0,
    late: Annotated[
        float, typer.Option(help="Seconds behind its source time that make an event late.")
    ] = 5.0,
    to: Annotated[
        str | None,
        typer.Option(help="The channel of the results. [default: quality.CHANNEL]", show_default=False),
    ] = None,
    quarantine: Annotated[
        str | None,
        typer.Option(
            help="The channel of events set aside. [default: quarantine.CHANNEL]", show_default=False
        ),
    ] = None,
    checkpoint: Checkpoint = None,
) -> Command:
    """Measure losses, repeats, latencies and expectations; results are events of quality.CHANNEL.

    Exit code 1: an event breaks an expectation with `fail:`; nothing was written.
    """
    from heliograph.spark.jobs.quality import QualityJob  # noqa: PLC0415 - as above

    job = QualityJob(
        folder=folder,
        channel=channel,
        expect=expect or (),
        window=window,
        late=late,
        to=to,
        quarantine=quarantine,
        checkpoint=checkpoint,
    )

    def shows(found: jobs.Quality) -> tuple[int, int, str]:
        return found.events, found.left, f"{found.batches} batches"

    return Command(
        f"quality of {channel}", job.run, shows, lambda found: _measured(found, job.quarantine_channel)
    )


def _measured(found: jobs.Quality, quarantine: str) -> Iterator[str]:
    yield (
        f"{counted(found.events, 'event')} of {found.channel}: {found.lost} lost, {found.repeated} repeated, "
        f"{found.late} late; {found.seconds:.1f} s"
    )
    for where, broken in found.violations.items():
        yield f"  {broken} not as expected: {where}"
    if found.quarantined:
        yield f"  {found.quarantined} copied to {quarantine}"
    misses = counted(found.missed_deadlines, "missed deadline")
    yield f"  {found.deliveries} deliveries on record, {misses}"
    for one in found.latencies:
        times = ((part, getattr(one, part) * 1e3) for part in ("p50", "p95", "p99", "max"))
        told = ", ".join(f"{part} {ms:.3f} ms" for part, ms in times)
        yield f"    {one.scope} {one.name or found.channel}: {told} (n {one.n}, rate {one.rate:g})"
    if found.ledger_difference is not None:
        unbalanced = f"{found.unbalanced} rows out of balance"
        yield f"  ledger: pushed less kept {found.ledger_difference}, {unbalanced}"


@app.command()
@runs_job
def snapshot(
    folder: Folder, channel: ChannelName, to: Table, *, table_format: TableFormat = "parquet"
) -> Command:
    """Bring a table with the latest event of each key up to what is kept now."""
    from heliograph.spark.jobs.snapshot import SnapshotJob  # noqa: PLC0415 - as above

    job = SnapshotJob(folder=folder, channel=channel, to=to, format=table_format)

    def shows(done: jobs.JobSnapshot) -> tuple[int, int, str]:
        return done.events, done.left, counted(done.keys, "key")

    def says(done: jobs.JobSnapshot) -> Iterator[str]:
        yield (
            f"{counted(done.keys, 'key')} of {channel} in {to} ({done.format}), "
            f"{counted(done.events, 'event')} since the state before; {done.seconds:.1f} s"
        )

    return Command(f"snapshot of {channel}", job.run, shows, says)


@app.command()
@runs_job
def correlate(
    folder: Folder,
    name: Annotated[
        str,
        typer.Argument(
            help="What the pattern was subscribed under, with replayable=True.", show_default=False
        ),
    ],
    to: Table,
    *,
    table_format: TableFormat = "parquet",
) -> Command:
    """Write the matches that a pattern has found live into a table, found again by its own state machine."""
    from heliograph.spark.jobs.correlate import CorrelateJob  # noqa: PLC0415 - as above

    job = CorrelateJob(folder=folder, name=name, to=to, format=table_format)

    def shows(done: jobs.Correlated) -> tuple[int, int, str]:
        return done.inputs, done.left, f"{done.matches} matches"

    def says(done: jobs.Correlated) -> Iterator[str]:
        yield (
            f"{done.matches} matches of {name} written to {to} ({done.format}), of "
            f"{counted(done.inputs, 'input')} since the last run; {done.seconds:.1f} s"
        )

    return Command(f"correlate {name}", job.run, shows, says)


@app.command()
@runs_job
def align(
    folder: Folder,
    to: Table,
    *,
    channel: Annotated[
        list[str],
        typer.Option(
            help="A channel, or NAME=CHANNEL: its columns begin with NAME_. Given once for each.",
            show_default=False,
        ),
    ],
    grid: Annotated[float | None, typer.Option(help="Seconds between two rows.", show_default=False)] = None,
    lead: Annotated[
        str | None,
        typer.Option(help="Or the channel whose events give the rows.", show_default=False),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="A field that all channels have: each value has rows of its own.", show_default=False
        ),
    ] = None,
    time: TimeOf = "append",
    tolerance: Annotated[
        float | None,
        typer.Option(help="Seconds after which a value is too old. [default: never]", show_default=False),
    ] = None,
    linear: Annotated[
        list[str] | None,
        typer.Option(help="A channel whose numbers are interpolated.", show_default=False),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="NAME:FILTER, only events for which this is true.", show_default=False),
    ] = None,
    test_from: Annotated[
        str | None,
        typer.Option(help="Rows from this time on are the test part: 2026-11-18T12:00Z.", show_default=False),
    ] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option(help="Or this last part of the time, such as 0.2.", show_default=False),
    ] = None,
    embargo: Annotated[
        float, typer.Option(help="Rows so many seconds on both sides of it are left out.")
    ] = 0.0,
    late: Annotated[
        float, typer.Option(help="With --follow: seconds that an event may come behind the latest.")
    ] = 5.0,
    table_format: TableFormat = "parquet",
) -> Command:
    """Write what several channels said at the same instants into one table, for training."""
    from heliograph.spark.jobs.align import AlignJob  # noqa: PLC0415 - as above

    job = AlignJob(
        folder=folder,
        channels=_by_name(channel),
        to=to,
        grid=grid,
        lead=lead,
        by=by or (),
        time=time,
        tolerance=tolerance,
        linear=linear or (),
        where=dict(_filters(where or ())),
        test_from=_instant("test-from", test_from),
        test_fraction=test_fraction,
        embargo=embargo,
        late=late,
        format=table_format,
    )

    def shows(done: jobs.Aligned) -> tuple[int, int, str]:
        return done.events, done.left, counted(done.rows, "row")

    return Command(f"align {', '.join(channel)}", job.run, shows, _aligned)


def _by_name(given: list[str]) -> dict[str, str]:
    """Channels by the names that their columns begin with."""
    from heliograph.errors import InvalidOption  # noqa: PLC0415 - as above

    found: dict[str, str] = {}
    for one in given:
        name, equals, channel = one.partition("=")
        alias = name if equals else re.sub(r"\W", "_", one)
        if alias in found:
            raise InvalidOption("channel", one, f"another name in front of it: {alias} is taken")
        found[alias] = channel if equals else one
    return found


def _filters(given: Iterable[str]) -> Iterator[tuple[str, str]]:
    from heliograph.errors import InvalidOption  # noqa: PLC0415 - as above

    for one in given:
        name, colon, text = one.partition(":")
        if not colon:
            raise InvalidOption("where", one, "NAME:FILTER, such as imu:valid")
        yield name.strip(), text.strip()


def _instant(option: str, text: str | None) -> datetime | None:
    from datetime import datetime  # noqa: PLC0415 - as above

    from heliograph.cli.journal import point  # noqa: PLC0415 - as above
    from heliograph.errors import InvalidOption  # noqa: PLC0415 - as above

    found = point(text)
    if found is None or isinstance(found, datetime):
        return found
    raise InvalidOption(option, str(text), "a time such as 2026-11-18T12:00Z")


def _aligned(done: jobs.Aligned) -> Iterator[str]:
    yield (
        f"{counted(done.rows, 'row')} of {', '.join(done.channels)} written to {done.table} "
        f"({done.format}) in {counted(done.commits, 'commit')} and {done.seconds:.1f} s"
    )
    if done.test_from_ns is not None:
        yield f"  {done.train} to train with, {done.test} to test with"
    gaps = ", ".join(f"{alias} in {count}" for alias, count in done.gaps.items())
    yield f"  no value: {gaps}; {done.late} events came too late to be seen"


@app.command()
@runs_job
def cutouts(
    folder: Folder,
    channel: ChannelName,
    to: Table,
    *,
    when: When = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Or the name of a replayable pattern: a match is one.", show_default=False),
    ] = None,
    before: Before = 10.0,
    after: After = 5.0,
    by: Annotated[
        list[str] | None,
        typer.Option(help="A field: a trigger is about events with the same value only.", show_default=False),
    ] = None,
    time: TimeOf = "append",
    thin: Annotated[
        float | None,
        typer.Option(
            help="Keep the first event in each stretch of so many seconds elsewhere. [default: none]",
            show_default=False,
        ),
    ] = None,
    table_format: TableFormat = "parquet",
) -> Command:
    """Write what was around each trigger into a table, in full; the rest thinned, or not at all."""
    from heliograph.spark.jobs.cutouts import CutOutJob  # noqa: PLC0415 - as above

    job = CutOutJob(
        folder=folder,
        channel=channel,
        to=to,
        when=when,
        pattern=pattern,
        before=before,
        after=after,
        by=by or (),
        time=time,
        thin=thin,
        format=table_format,
    )

    def shows(done: jobs.CutOuts) -> tuple[int, int, str]:
        return done.events, done.left, counted(done.rows, "row")

    def says(done: jobs.CutOuts) -> Iterator[str]:
        yield (
            f"{counted(done.rows, 'row')} of {channel} in {counted(done.cuts, 'cut-out')} written to {to} "
            f"({done.format}), of {counted(done.events, 'event')} since the last run; {done.seconds:.1f} s"
        )

    return Command(f"cut-outs of {channel}", job.run, shows, says)


@app.command()
@runs_job_here
def register(
    folder: Folder,
    channel: ChannelName,
    to: Table,
    *,
    table_format: Annotated[str, typer.Option("--format", help="delta or iceberg.")] = "delta",
    grace: Annotated[
        float,
        typer.Option(
            help="Seconds for which files stay that the history no longer has, for readers of old versions.",
            min=0,
        ),
    ] = 600.0,
    allow_loss: AllowLoss = False,
) -> Command:
    """Make the sealed files of a channel a table, without a copy; needs no Spark."""
    from heliograph.spark.jobs.register import RegisterJob  # noqa: PLC0415 - as above

    job = RegisterJob(
        folder=folder,
        channel=channel,
        to=to,
        format=table_format,
        grace=grace,
        fail_on_data_loss=not allow_loss,
    )

    def shows(done: jobs.Registered) -> tuple[int, int, str]:
        return done.added, done.left, counted(done.files, "file")

    return Command(f"register {channel}", job.run, shows, _registered)


def _registered(done: jobs.Registered) -> Iterator[str]:
    yield (
        f"{counted(done.files, 'sealed file')} of {done.channel} with {counted(done.events, 'row')} are the "
        f"table {done.table} ({done.format}): {done.added} added, {done.removed} removed in "
        f"{counted(done.commits, 'commit')} and {done.seconds:.1f} s"
    )
    if done.new_columns:
        yield f"  new columns: {', '.join(done.new_columns)}"
    if done.unsealed:
        yield f"  {counted(done.unsealed, 'event')} not sealed yet"
    if done.waiting:
        waiting = f"{counted(done.waiting, 'file')} that the history no longer has"
        yield f"  {waiting} for readers of older versions, {done.held_bytes:,} bytes only here"


@app.command()
@runs_job_once
def report(
    folder: Folder,
    to: Annotated[str, typer.Argument(help="The HTML file.", show_default=False)],
    *,
    channel: Annotated[
        list[str] | None,
        typer.Option(help="Only this one; may be given several times.", show_default=False),
    ] = None,
    window: Window = 10.0,
) -> Command:
    """Write one HTML page about the channels of a station, with everything that it needs inside."""
    from heliograph.spark.jobs.report import ReportJob  # noqa: PLC0415 - as above

    job = ReportJob(folder=folder, to=to, channels=channel or (), window=window)

    def says(made: jobs.JobReport) -> Iterator[str]:
        events = counted(sum(one.events for one in made.channels), "event")
        yield f"{counted(len(made.channels), 'channel')} with {events} in {to}, {made.bytes:,} bytes"

    return Command("report", job.run, lambda done, of: (done, of - done, "channels"), says)


@app.command()
def init(
    project: Annotated[str, typer.Argument(help="The folder of the project, which is made.")],
    folder: Folder,
    channel: ChannelName,
    *,
    expect: Annotated[
        str | None,
        typer.Option(
            help="A filter that every event should pass; the others go into CHANNEL.quarantine.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a project of Spark Declarative Pipelines whose tables come from a channel."""
    from heliograph.spark.declarative.project import write_project  # noqa: PLC0415 - helio --help needs none

    written = write_project(project, folder, channel, expect=expect)
    if as_json:
        files = [str(file) for file in written.files]
        print_json({"files": files, "table": written.table, "quarantine": written.quarantine})
        return
    for file in written.files:
        print_line(str(file))
    print_line(f"run it: helio pipeline run {project}")


@app.command()
def run(
    project: Annotated[str, typer.Argument(help="A folder with a spark-pipeline.yml, or that file.")],
    *,
    dry: Annotated[bool, typer.Option("--dry", help="Only check the definitions.")] = False,
    refresh: Annotated[
        list[str] | None, typer.Option(help="A table that is emptied and computed anew; may be repeated.")
    ] = None,
    remote: Remote = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a project of Spark Declarative Pipelines, with Spark's log on standard error."""
    from heliograph.spark.declarative.runner import run_project  # noqa: PLC0415 - as above
    from heliograph.spark.jobs.connecting import check_session  # noqa: PLC0415 - as above

    check_session(None, remote)
    code = run_project(project, dry=dry, remote=remote, refresh=refresh or ())
    if as_json:
        print_json({"project": project, "exit_code": code})
    if code:
        raise typer.Exit(code)
