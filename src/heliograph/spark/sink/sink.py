"""Writes data frames into a channel: each row of a committed batch becomes one event, once.

    df.writeStream.format("heliograph").option("path", "data").option("channel", "air.totals") \
        .option("writerId", "totals").option("checkpointLocation", "...").start()
    df.write.format("heliograph").mode("append").option("path", "data").option("channel", "air.totals") \
        .option("runId", "2026-11-05").save()

The steps of a batch, numbered in the code:

    1 (tasks) rows become events, which are staged in files of their own
    2 (driver) all tasks have succeeded: the batch is handed over by one manifest
    3 (whoever keeps the folder) rows and mark enter the journal together, and consumers receive them
    4 (driver) waits for that, or not, as `adopt` says; Spark writes down that the batch is committed

A batch that Spark repeats after a crash has the same number under the same checkpoint, and the mark of step 3
knows it. Spark tells a writer no id of its query, but every task knows it; it is kept in the checkpoint, so
that another checkpoint under the same `writerId` is noticed.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from heliograph.errors import InvalidOption, NotPossible
from heliograph.journal.format.records import RecordRun
from heliograph.journal.inbox import staging
from heliograph.journal.inbox.staging import StagedBatch, StageWriter, key_of, make_inbox
from heliograph.journal.station_folder import wait_until_taken_in
from heliograph.model.formats import Format
from heliograph.runtime.ports import LocalDisk, Ports, SystemClock, SystemRandom, ThreadTasks
from heliograph.spark.sink.header_columns import CHANNEL, header_runs
from heliograph.spark.sink.options import parse_sink_options
from heliograph.spark.sink.rows import RowTarget, body_maker, sink_target
from heliograph.spark.source.tracebacks import told_shortly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from heliograph.journal.inbox.staging import StagedFile
    from heliograph.spark.sink.options import SinkOptions

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Under which names a task knows what it belongs to."""

FRAME_BYTES: Final = 1 << 20
"""Bytes of bodies that are staged at once."""


class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, nonce: str, files: dict[str, StagedFile]) -> None:
        self.nonce = nonce
        self.files = files
        """By the channel that their rows are for."""


class Handing:
    """What streams and batch writes share; goes from the driver to its tasks."""

    def __init__(self, options: SinkOptions, targets: Mapping[str, RowTarget], writer: str) -> None:
        self._options = options
        self._targets = {
            channel: (target.format.description, target.defaults) for channel, target in targets.items()
        }
        self._writer = writer

    def stage(self, nonce: str, number: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Step 1, in a task. One that has no rows leaves no file."""
        task = TaskContext.get()
        assert task is not None, "Spark calls this in tasks only"
        attempt = f"p{task.partitionId()}-a{task.attemptNumber()}-t{task.taskAttemptId()}"
        ports = _ports(self._options.path)
        writing: dict[str, _Writing] = {}
        with ExitStack() as opened:
            for channel, batch in self._by_channel(batches):
                if channel not in writing:
                    key = key_of(channel, self._writer, nonce)
                    stage = opened.enter_context(StageWriter(ports, key, number, attempt))
                    description, defaults = self._targets[channel]
                    target = RowTarget(Format.from_description(description), defaults)
                    writing[channel] = _Writing(stage, target, self._options.priority)
                writing[channel].add(batch, ports.clock.time_ns())
            return Staged(nonce, {channel: one.stage.finish() for channel, one in writing.items()})  # 1

    def _by_channel(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows for each channel; in the order in which they come."""
        for batch in batches:
            if not batch.num_rows:
                continue
            if not self._options.channels:
                yield self._options.channel, batch
                continue
            named = batch.column(CHANNEL)
            for channel in named.unique().to_pylist():
                if channel not in self._targets:
                    there = ", ".join(self._targets)
                    raise InvalidOption("channels", there, f"also {channel!r}, which {CHANNEL} has in a row")
                yield channel, batch.filter(pc.equal(named, channel))

    def commit(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        """Steps 2 and 4, beside the driver. Each channel has a batch of its own."""
        batches = self._batches(messages, number)
        ports = _ports(self._options.path)
        for batch in batches:
            staging.hand_over(ports, batch)  # 2
        if self._options.adopt == "wait":
            for batch in batches:
                wait_until_taken_in(ports, batch, self._options.timeout)  # 4

    def abort(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        """Some task has failed: the files of the others are of no use.

        Spark aborts after a commit that raised, too; what it handed over will be taken in all the same.
        """
        disk = _ports(self._options.path).disk
        assert disk is not None
        for batch in self._batches(messages, number):
            staging.withdraw(disk, batch)

    def _batches(self, messages: Sequence[WriterCommitMessage | None], number: int) -> list[StagedBatch]:
        """What the tasks have staged; none when there are no rows at all."""
        staged = [message for message in messages if isinstance(message, Staged) and message.files]
        return [
            StagedBatch(
                channel=channel,
                writer=self._writer,
                nonce=staged[0].nonce,
                number=number,
                files=files,
                once=self._options.writer is None,
                accepts_new=self._options.accepts_new,
                creates=self._options.creates,
            )
            for channel in self._targets
            if (files := tuple(one.files[channel] for one in staged if channel in one.files))
        ]


class _Writing:
    """Rows of one channel on their way into a staged file."""

    def __init__(self, stage: StageWriter, target: RowTarget, priority: int) -> None:
        self.stage = stage
        self._format = target.format
        self._make = body_maker(target)
        self._priority = priority

    def add(self, batch: pa.RecordBatch, now: int) -> None:
        bodies = self._make(batch)
        name = self._format.name
        runs: list[RecordRun] = []
        size = first = 0
        for facts in header_runs(name, batch, priority=self._priority, now=now):
            for part in _portions(bodies[first : first + facts.rows]):
                run = RecordRun("", 0, 0, facts.source_ts, self._format.id, part, facts.priority)
                if facts.correlation_id is not None or facts.headers is not None:
                    more = {"correlation_id": facts.correlation_id, "headers": facts.headers}
                    run = msgspec.structs.replace(run, **more)
                runs.append(run)
                size += sum(map(len, part))
                if size >= FRAME_BYTES:
                    self.stage.add_runs(self._format, runs)
                    runs, size = [], 0
            first += facts.rows
        if runs:
            self.stage.add_runs(self._format, runs)


class StreamSink(DataSourceStreamArrowWriter):
    """`writeStream.format("heliograph")`."""

    def __init__(self, handing: Handing) -> None:
        self._handing = handing

    @told_shortly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = TaskContext.get()
        assert task is not None, "Spark calls this in tasks only"
        query, number = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or number is None:
            raise NotPossible(
                "writeStream", "this Spark does not tell tasks which query and batch they are of"
            )
        return self._handing.stage(query, int(number), iterator)

    @told_shortly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._handing.commit(messages, batchId)

    @told_shortly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._handing.abort(messages, batchId)


class RunSink(DataSourceArrowWriter):
    """`write.format("heliograph")`: one batch, whole or not at all, and once for each run."""

    def __init__(self, handing: Handing, run: str) -> None:
        self._handing = handing
        self._run = run

    @told_shortly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._handing.stage(self._run, 0, iterator)

    @told_shortly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._handing.commit(messages, 0)

    @told_shortly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._handing.abort(messages, 0)


def stream_sink(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamSink:
    """The writer of a stream. Spark asks for it at every batch, where it plans and where it commits."""
    if overwrite:
        raise InvalidOption("outputMode", "complete", "append: events are not taken back")
    options = parse_sink_options(given, stream=True)
    assert options.writer is not None
    return StreamSink(_prepared(options, schema, options.writer))


def run_sink(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> RunSink:
    """The writer of a batch. Without a `runId` nobody can know that it comes again."""
    if overwrite:
        raise InvalidOption("mode", "overwrite", "append: events are not taken back")
    options = parse_sink_options(given, stream=False)
    run = options.run or f"once-{uuid4()}"
    return RunSink(_prepared(options, schema, f"run/{run}"), run)


def _prepared(options: SinkOptions, schema: StructType, writer: str) -> Handing:
    if options.channels and CHANNEL not in schema.fieldNames():
        raise InvalidOption(
            "channels", ", ".join(options.channels), f"channel, or a column {CHANNEL} in the rows"
        )
    if CHANNEL in schema.fieldNames() and not options.channels:
        raise InvalidOption("channels", None, f"the channels that the column {CHANNEL} may name, with commas")
    each = options.channels or (options.channel,)
    targets = {
        channel: sink_target(msgspec.structs.replace(options, channel=channel), schema) for channel in each
    }
    disk = _ports(options.path, create=options.creates).disk
    assert disk is not None
    make_inbox(disk)
    return Handing(options, targets, writer)


def _ports(folder: str, *, create: bool = False) -> Ports:
    return Ports(SystemClock(), ThreadTasks(), SystemRandom(), LocalDisk(folder, create=create))


def _portions(bodies: list[bytes]) -> Iterator[list[bytes]]:
    """The bodies in lists of about FRAME_BYTES."""
    start = size = 0
    for place, body in enumerate(bodies):
        if place > start and size + len(body) > FRAME_BYTES:
            yield bodies[start:place]
            start, size = place, 0
        size += len(body)
    yield bodies[start:]
