"""The classes that Spark calls: `format("heliograph")` for users, `heliograph_ranges` for our own `read`.

Spark pickles them by name, plans with them in a process beside the driver and hands each task its slice. What
they do is elsewhere: options in `options`, columns in `shape`, the way of a stream in `stream`, rows in
`slices`, writing in `sink`.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from heliograph.errors import HeliographError, HistoryGone
from heliograph.journal.consumers.outside_readers import note
from heliograph.journal.format.folder import partition_folder
from heliograph.model.formats import Format
from heliograph.runtime.ports import LocalDisk
from heliograph.spark.source.columns import full_schema, insist_on_columns
from heliograph.spark.source.filters import WORDS_OF_OPTIONS, joined_format
from heliograph.spark.source.options import parse_options
from heliograph.spark.source.partitions import ChannelPartitions
from heliograph.spark.source.plan import chosen_types, rows_per_task, slices_of
from heliograph.spark.source.pruning import pruned
from heliograph.spark.source.stream import SourceStream
from heliograph.spark.source.table_options import options_of, with_options, without_options
from heliograph.spark.source.tasks import Job, Slice, batches
from heliograph.spark.source.tracebacks import told_shortly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from heliograph.spark.sink.sink import RunSink, StreamSink
    from heliograph.spark.source.options import SourceOptions
    from heliograph.spark.source.partitions import Key

    Ranges: TypeAlias = dict[Key, tuple[int, int]]


log = logging.getLogger(__name__)


class SlicePartition(InputPartition):
    """A slice as Spark carries it; None when there is nothing to read."""

    def __init__(self, part: Slice | None) -> None:
        self.value = part


class HeliographSource(DataSource):
    """`format("heliograph")`, for `spark.read`, `spark.readStream`, `write` and `writeStream`."""

    _known: tuple[bytes, ...] | None = None
    """Descriptions of the formats that the columns were made for; None while the user chooses columns."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        # Spark makes this object when a frame is loaded and keeps a pickle of it. How often it then asks for
        # a reader depends on its settings and on the query, so what a batch read covers is decided here.
        self._ranges: Ranges | None = None
        with suppress(HeliographError, OSError):  # a write, or a mistake that `schema` or `reader` names
            parsed = parse_options(options, stream=False)
            with closing(ChannelPartitions(parsed)) as watch:
                self._ranges = ranges_of(parsed, watch)

    @classmethod
    def name(cls) -> str:
        return "heliograph"

    @told_shortly
    def schema(self) -> StructType:
        options = parse_options(self.options, stream=None)
        watch = ChannelPartitions(options)
        self._known = tuple(fmt.description for fmt in watch.learned())
        joined = self._joined(options)
        found = _columns(options, joined)
        self._planned(options, watch, joined).shape(found)  # a wrong filter is refused here already
        watch.close()
        return with_options(from_arrow_schema(found, prefer_timestamp_ntz=False), self.options)

    @told_shortly
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(options_of(schema, self.options), stream=False)
        watch = ChannelPartitions(options)
        job, wanted = self._job(options, watch, without_options(schema))
        ranges = ranges_of(options, watch) if self._ranges is None else self._ranges
        return HistoryReader(options, watch, job, wanted, ranges)

    @told_shortly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = parse_options(options_of(schema, self.options), stream=True)
        watch = ChannelPartitions(options)
        job, wanted = self._job(options, watch, without_options(schema))
        return ChannelStreamReader(options, watch, job, wanted)

    @told_shortly
    def writer(self, schema: StructType, overwrite: bool) -> RunSink:
        from heliograph.spark.sink.sink import run_sink  # noqa: PLC0415 - reading does not need it

        return run_sink(self.options, schema, overwrite=overwrite)

    @told_shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802 - Spark's name
        from heliograph.spark.sink.sink import stream_sink  # noqa: PLC0415 - as above

        return stream_sink(self.options, schema, overwrite=overwrite)

    def _job(
        self, options: SourceOptions, watch: ChannelPartitions, schema: StructType
    ) -> tuple[Job, pa.Schema]:
        explicit = self._known is None
        if self._known is None:
            self._known = tuple(fmt.description for fmt in watch.learned())
        joined = self._joined(options)
        wanted = to_arrow_schema(schema, timezone="UTC")
        insist_on_columns(wanted, _columns(options, joined, everything=True))
        job = self._planned(options, watch, joined, explicit=explicit)
        job.shape(wanted)  # refuses a filter that is wrong before anything runs
        return job, wanted

    def _planned(
        self,
        options: SourceOptions,
        watch: ChannelPartitions,
        joined: Format | None,
        *,
        explicit: bool = False,
    ) -> Job:
        assert self._known is not None
        return Job(
            folder=watch.folder.path,
            formats=self._known,
            joined=None if joined is None else joined.description,
            types=options.types,
            fail_on_data_loss=options.fail_on_data_loss,
            where=options.where,
            params=options.params,
            evolution=options.evolution,
            explicit=explicit,
            bad_records=options.bad_records,
        )

    def _joined(self, options: SourceOptions) -> Format | None:
        """The format for all events that are known; None for envelopes."""
        assert self._known is not None
        formats = [Format.from_description(description) for description in self._known]
        of = ", ".join(options.channels) or str(options.pattern)
        chosen = chosen_types(of, formats, options.types)
        return joined_format(chosen, WORDS_OF_OPTIONS) if options.mode == "typed" else None


def _columns(options: SourceOptions, joined: Format | None, *, everything: bool = False) -> pa.Schema:
    return full_schema(
        joined,
        include_headers=everything or options.include_headers,
        rescued=options.evolution == "rescue",
        bad=options.bad_records == "column",
    )


def ranges_of(options: SourceOptions, watch: ChannelPartitions) -> Ranges:
    """The offsets that a batch read covers now, from the first up to, not including, the second."""
    found: Ranges = {}
    for key, reader in watch.readers().items():
        end = min(options.ending.offset(reader, *key), reader.watermark)
        first = options.starting.offset(reader, *key)
        if options.fail_on_data_loss and first < min(reader.earliest, end):
            raise HistoryGone(partition_folder(*key), first, reader.earliest)
        found[key] = first, end
    return found


class HistoryReader(DataSourceReader):
    """The events of a batch read.

    It has no `pushFilters`: Spark keeps what that has planned for all uses of a frame, also for those with
    other filters or none (`docs/adr/0031-spark-filters-are-not-pushed.md`).
    """

    def __init__(
        self, options: SourceOptions, watch: ChannelPartitions, job: Job, wanted: pa.Schema, ranges: Ranges
    ) -> None:
        self._options = options
        self._watch: ChannelPartitions | None = watch
        self._job = job
        self._wanted = wanted
        self._ranges = ranges

    @told_shortly
    def partitions(self) -> Sequence[InputPartition]:
        assert self._watch is not None
        predicates = self._job.shape(self._wanted).predicates()
        known = frozenset(fmt.id for fmt in self._job.known())
        readers = self._watch.readers()
        ranges: list[tuple[Key, int, int]] = []
        for key, (first, end) in self._ranges.items():
            if key in readers:
                ranges += ((key, *span) for span in pruned(readers[key], first, end, known, predicates))
            else:  # it has gone since the frame was loaded: the task that reads it says so
                ranges.append((key, first, end))
        # With a local master tasks run on this very machine; a cluster has more, and minPartitions says so.
        cores = len(os.sched_getaffinity(0))
        rows = rows_per_task(sum(end - first for _, first, end in ranges), self._options, cores)
        parts: list[InputPartition] = []
        for key, first, end in ranges:
            segments = readers[key].manifest.segments if key in readers else ()
            parts += map(SlicePartition, slices_of(*key, first, end, segments, rows=rows))
        return parts or [SlicePartition(None)]

    @told_shortly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from batches(self._job, partition.value, self._wanted)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watch": None}


class ChannelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; its `read` runs in tasks, everything else on the driver."""

    def __init__(self, options: SourceOptions, watch: ChannelPartitions, job: Job, wanted: pa.Schema) -> None:
        self._options = options
        self._stream: SourceStream | None = SourceStream(options, watch)
        self._watch: ChannelPartitions | None = watch
        self._job = job
        self._wanted = wanted

    @property
    def _driver(self) -> SourceStream:
        assert self._stream is not None, "tasks only read"
        return self._stream

    @told_shortly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._driver.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Spark knows one limit at a time; `latestOffset` goes by all that were given."""
        if self._options.max_events is not None:
            return ReadMaxRows(self._options.max_events)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.min_events is not None:
            return ReadMinRows(self._options.min_events)
        return ReadAllAvailable()

    @told_shortly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._driver.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    @told_shortly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._driver.stop_at_now()

    @told_shortly
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._driver.report()

    @told_shortly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [SlicePartition(part) for part in self._driver.slices(start, end)]

    @told_shortly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from batches(self._job, partition.value, self._wanted)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before these offsets is processed; under the name that was given consumers list it."""
        if self._options.consumer is None:
            return
        disk = LocalDisk(self._options.path, create=False)
        for channel, partitions in end.items():
            positions = {partition: int(found["offset"]) for partition, found in partitions.items()}
            try:
                note(disk, channel, self._options.consumer, positions, time.time_ns())
            except HeliographError as error:  # the query does not depend on it
                log.warning("how far %s is cannot be told: %s", self._options.consumer, error)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None, "_watch": None}


class RangeReader(DataSourceReader):
    """One task per slice."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @told_shortly
    def partitions(self) -> Sequence[InputPartition]:
        return [SlicePartition(part) for part in self._job.slices]

    @told_shortly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from batches(self._job, partition.value)


class RangeSource(DataSource):
    """`spark.read.format("heliograph_ranges")`, with a `Job` as JSON in the option `job` and a schema."""

    @classmethod
    def name(cls) -> str:
        return "heliograph_ranges"

    @told_shortly
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark calls it by this name; the job says the same
        return RangeReader(msgspec.json.decode(self.options["job"], type=Job))
