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

from itertools import chain
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from heliograph.errors import InvalidOption, NotPossible
from heliograph.journal.inbox import staging
from heliograph.journal.inbox.staging import Batch, Stage, key_of, make_inbox
from heliograph.journal.station_folder import wait_until_taken_in
from heliograph.model.formats import Format
from heliograph.runtime.ports import LocalDisk, Ports, SystemClock, SystemRandom, ThreadTasks
from heliograph.spark.sink.options import parse_sink_options
from heliograph.spark.sink.rows import Target, body_maker, sink_target
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

    def __init__(self, nonce: str, file: StagedFile | None) -> None:
        self.nonce = nonce
        self.file = file


class Handing:
    """What streams and batch writes share; goes from the driver to its tasks."""

    def __init__(self, options: SinkOptions, target: Target, writer: str) -> None:
        self._options = options
        self._description = target.format.description
        self._defaults = target.defaults
        self._writer = writer

    def stage(self, nonce: str, number: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Step 1, in a task. One that has no rows leaves no file."""
        task = TaskContext.get()
        assert task is not None, "Spark calls this in tasks only"
        fmt = Format.from_description(self._description)
        make = body_maker(Target(fmt, self._defaults))
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return Staged(nonce, None)
        key = key_of(self._options.channel, self._writer, nonce)
        attempt = f"p{task.partitionId()}-a{task.attemptNumber()}-t{task.taskAttemptId()}"
        with Stage(_ports(self._options.path), key, number, attempt) as stage:
            for batch in chain([first], batches):
                for bodies in _portions(make(batch)):
                    stage.add(fmt, bodies, self._options.priority)
            return Staged(nonce, stage.finish())  # 1

    def commit(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        """Steps 2 and 4, beside the driver."""
        batch = self._batch(messages, number)
        if batch is None:
            return
        ports = _ports(self._options.path)
        staging.hand_over(ports, batch)  # 2
        if self._options.adopt == "wait":
            wait_until_taken_in(ports, batch, self._options.timeout)  # 4

    def abort(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        """Some task has failed: the files of the others are of no use.

        Spark aborts after a commit that raised, too; what it handed over will be taken in all the same.
        """
        batch = self._batch(messages, number)
        disk = _ports(self._options.path).disk
        assert disk is not None
        if batch is not None:
            staging.withdraw(disk, batch)

    def _batch(self, messages: Sequence[WriterCommitMessage | None], number: int) -> Batch | None:
        """What the tasks have staged; None when there are no rows at all."""
        staged = [(m.nonce, m.file) for m in messages if isinstance(m, Staged) and m.file is not None]
        if not staged:
            return None
        return Batch(
            channel=self._options.channel,
            writer=self._writer,
            nonce=staged[0][0],
            number=number,
            files=tuple(file for _, file in staged),
            once=self._options.writer is None,
            accepts_new=self._options.accepts_new,
            creates=self._options.creates,
        )


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
    target = sink_target(options, schema)
    disk = _ports(options.path, create=options.creates).disk
    assert disk is not None
    make_inbox(disk)
    return Handing(options, target, writer)


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
