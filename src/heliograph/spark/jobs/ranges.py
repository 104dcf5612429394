"""The ranges of a channel's history that a job has not read yet, batch by batch.

    with Plan("data", "air.tracks", events_at_once=1_000_000).ranges() as ranges:
        ranges.pin()                                     what comes later is not read in this pass
        while (batch := ranges.after(positions)) is not None:
            frame = batch.frame(spark)
            positions = batch.positions                  to be committed together with the result

Positions are those of Spark streams (`heliograph.spark.source.stream`), with the epoch of each partition, so
a folder that was replaced by an older copy is found out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from heliograph.spark.jobs.arguments import at_least
from heliograph.spark.source.option_values import path_text
from heliograph.spark.source.options import parse_options
from heliograph.spark.source.partitions import ChannelPartitions, Key
from heliograph.spark.source.stream import SourceStream, from_json

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from heliograph.model.formats import Format


class RangePlan(NamedTuple):
    """Which history a job reads, and how much of it at once."""

    folder: str | os.PathLike[str]
    channel: str
    events_at_once: int
    fail_on_data_loss: bool = True

    def ranges(self) -> Ranges:
        """NoHistory when there is none."""
        at_least("events_at_once", self.events_at_once, 1)
        return Ranges(
            path_text("folder", self.folder),
            self.channel,
            max_events=self.events_at_once,
            fail_on_data_loss=self.fail_on_data_loss,
        )


class BatchRange(NamedTuple):
    """One batch: for each partition of a channel the offsets from `start` up to `until`."""

    folder: str
    channel: str
    start: dict[str, int]
    until: dict[str, int]
    positions: dict[str, Any]
    """Where a job is that has read this batch."""

    @property
    def offsets(self) -> int:
        """How many offsets there are in it: events, tombstones, and what compaction has removed."""
        return sum(self.until.values()) - sum(self.start.values())

    def frame(self, spark: SparkSession, **options: Any) -> DataFrame:
        """The events of the batch, as `heliograph.spark.read` gives them."""
        from heliograph.spark.source.read import read  # noqa: PLC0415 - jobs are checked without Spark

        return read(spark, self.folder, self.channel, start=self.start, until=self.until, **options)


class Ranges:
    """Opens a channel's history for a job; NoHistory when there is none."""

    def __init__(
        self, folder: str, channel: str, *, max_events: int | None = None, fail_on_data_loss: bool = True
    ) -> None:
        options = {
            "path": folder,
            "channel": channel,
            "startingOffsets": "earliest",
            "failOnDataLoss": "true" if fail_on_data_loss else "false",
        }
        if max_events is not None:
            options["maxEventsPerTrigger"] = str(max_events)
        parsed = parse_options(options, stream=True)
        self.folder = parsed.path
        self.channel = channel
        self._watch = ChannelPartitions(parsed)
        self._stream = SourceStream(parsed, self._watch)

    def partitions(self) -> list[Key]:
        return list(self._watch.readers(now=True))

    def formats(self) -> tuple[Format, ...]:
        """Those of everything that is kept, then those of the classes that the channel carries."""
        return self._watch.learned()

    def pin(self) -> None:
        """What becomes durable from now on is not read before this is called again."""
        self._stream.stop_at_now()

    def behind(self, positions: Mapping[str, Any] | None) -> int:
        """How many offsets lie between these positions and the durable ends."""
        done = from_json(positions or {})
        return sum(
            max(0, reader.watermark - (done[key].offset if key in done else reader.earliest))
            for key, reader in self._watch.readers(now=True).items()
        )

    def after(self, positions: Mapping[str, Any] | None) -> BatchRange | None:
        """The next batch after these positions (None: from the beginning); None when nothing is left.

        Raises HistoryDamaged when the history is not the one that the positions are of.
        """
        before = self._stream.initial() if positions is None else dict(positions)
        end = self._stream.latest(before, limited=True)
        if end is before or end == before:
            return None
        return self.planned(end)

    def planned(self, end: Mapping[str, Any]) -> BatchRange:
        """The batch that ends at these positions, which `after` has given: they say where it begins."""
        places = from_json(end)
        start = {key.partition: at.start for key, at in places.items() if at.start < at.offset}
        until = {key.partition: at.offset for key, at in places.items() if at.start < at.offset}
        return BatchRange(self.folder, self.channel, start, until, dict(end))

    def bytes_of(self, batch: BatchRange) -> int:
        """About how much the events of a batch take in files, closely where they are sealed."""
        return sum(
            size
            for key, reader in self._watch.readers().items()
            if key.partition in batch.start
            for _, _, size in reader.sizes(batch.start[key.partition], batch.until[key.partition])
        )

    @property
    def is_whole(self) -> bool:
        """Whether nothing has been removed from the beginning of any partition."""
        return all(reader.earliest == 0 for reader in self._watch.readers(now=True).values())

    @property
    def kept(self) -> int:
        """How many events were ever kept: offsets are dense and never used again."""
        return sum(reader.watermark for reader in self._watch.readers(now=True).values())

    def close(self) -> None:
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
