"""`cutouts`: a flight recorder over a history: what was around each trigger in full, the rest thinned or not.

    jobs.cutouts(spark, "data", "air.tracks", "tables/alarms", when="speed > 900", before=10, after=5)

Triggers are the events for which a filter is true, or the matches of a recorded pattern. Windows around them
that overlap are one cut-out. The table is the checkpoint: a run writes the events that are new, and of those
before it the ones that only a new trigger has brought into a cut-out, so every event is in the table at most
once. `heliograph.flight_recorder` does the same live, for channels that keep no history.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Unpack

from heliograph.errors import InvalidOption, NoHistory, TableMismatch
from heliograph.patterns.recording import INPUTS
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.arguments import at_least, insist_on_filter, is_datetime, one_of
from heliograph.spark.jobs.following import Passes, RunOptions
from heliograph.spark.jobs.ranges import Ranges
from heliograph.spark.jobs.table_job import TableTarget
from heliograph.spark.session.session import insist_on_session

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from heliograph.filters.params import Params
    from heliograph.spark.jobs.table_job import OpenTable

CUT: Final = "cut"
"""The column that tells cut-outs apart: nanoseconds of the first trigger; NULL: a thinned row."""
FILES: Final = 10_000
"""More than Spark ever has tasks for a pass."""


@dataclass
class CutOuts:
    """What a run did so far."""

    channel: str
    table: str
    format: str
    cuts: int = 0
    """Cut-outs that got rows in this run."""
    rows: int = 0
    """Written, with thinned ones."""
    events: int = 0
    """Offsets that were new."""
    left: int = 0
    commits: int = 0
    seconds: float = 0.0


class _Part(NamedTuple):
    """What is read in a pass: how far the table goes, how far it is going to, and whether anything is new."""

    before: dict[str, Any]
    ends: dict[str, Any]
    offsets: int


@dataclass(frozen=True, kw_only=True)
class CutOutJob:
    """Cut-outs that have been asked for. InvalidOption, NoHistory, ... when they cannot be made."""

    folder: str | os.PathLike[str]
    channel: str
    to: str | os.PathLike[str]
    when: str | None = None
    pattern: str | None = None
    params: Params | None = None
    before: float = 10.0
    after: float = 5.0
    by: str | Sequence[str] = ()
    time: str = "append"
    thin: float | None = None
    format: str = "parquet"

    def __post_init__(self) -> None:
        TableTarget(self.to, self.format).insist()
        at_least("before", self.before, 0)
        at_least("after", self.after, 0)
        if self.thin is not None:
            at_least("thin", self.thin, 1e-6)
        if (self.when is None) == (self.pattern is None):
            allowed = "a filter, or pattern, the name of a recorded one: one of both"
            raise InvalidOption("when", self.when, allowed)
        with Ranges(os.fspath(self.folder), self.channel) as ranges:
            formats = ranges.formats()
        insist_on_filter(self.when, self.params, formats)
        names = {one.name: one for fmt in formats for one in fmt.fields}
        times = sorted(name for name, one in names.items() if is_datetime(one))
        one_of("time", self.time, ("append", "source", *times))
        for key in self._keys():
            one_of("by", key, names)
        if CUT in {name.lower() for name in names}:
            raise InvalidOption("channel", self.channel, f"channels without a field {CUT}")
        if self.pattern is not None:
            self._insist_on_pattern()

    def _insist_on_pattern(self) -> None:
        from heliograph.spark.patterns.recording import no_record  # noqa: PLC0415 - Spark and Arrow load with it

        if self.time != "append" or self._keys():
            allowed = "time='append' and no by: a match has the time at which its last event was appended"
            raise InvalidOption("pattern", self.pattern, allowed)
        assert self.pattern is not None
        try:
            Ranges(os.fspath(self.folder), INPUTS + self.pattern).close()
        except NoHistory as error:
            raise no_record(self.pattern, error) from error

    def run(self, spark: SparkSession, **options: Unpack[RunOptions[CutOuts]]) -> CutOuts:
        """Cut out what is there now; with `follow` again and again until `stop` is set."""
        insist_on_session(spark)
        done = CutOuts(self.channel, os.fspath(self.to), self.format)
        passes = Passes(done, **options)
        names = [self.channel] if self.pattern is None else [self.channel, INPUTS + self.pattern]
        opened = [Ranges(os.fspath(self.folder), name) for name in names]
        try:
            with TableTarget(self.to, self.format).opened() as table:
                for _ in passes:
                    part = self._part(table, opened)
                    if part is not None:
                        self._write(spark, table, part, done)
                    passes.tell(0)
        finally:
            for one in opened:
                one.close()
        return done

    def _keys(self) -> list[str]:
        return [self.by] if isinstance(self.by, str) else list(self.by)

    def _part(self, table: OpenTable, opened: list[Ranges]) -> _Part | None:
        """What is to be done; None: nothing has come."""
        positions = table.table.positions([key for one in opened for key in one.partitions()])
        names = {one.channel for one in opened}
        if positions is not None and not set(positions) <= names:
            held = f"it holds events of {', '.join(sorted(positions))}"
            raise TableMismatch(table.place.table.as_posix(), held)
        before = positions or {}
        ends, offsets = dict(before), 0
        for one in opened:
            one.pin()
        for one in opened:
            own = {one.channel: before[one.channel]} if one.channel in before else None
            batch = one.after(own)
            if batch is not None:
                ends |= batch.positions
                offsets += batch.offsets
        return _Part(before, ends, offsets) if offsets else None

    def _write(self, spark: SparkSession, target: OpenTable, part: _Part, done: CutOuts) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark loads with it

        frame = self._rows(spark, part)
        staged = target.stage(spark, frame, files=FILES)
        cuts = 0
        if staged:
            files = [str(target.place.table / file.path) for file in staged]
            cuts = spark.read.parquet(*files).select(CUT).distinct().filter(f"{CUT} IS NOT NULL").count()
        target.table.commit(staged, to_arrow_schema(frame.schema, timezone="UTC"), (), part.ends)
        done.commits += 1
        done.rows += sum(file.rows for file in staged)
        done.events += part.offsets
        done.cuts += cuts

    def _rows(self, spark: SparkSession, part: _Part) -> DataFrame:
        """The events that the table lacks, each with its cut-out."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        events = self._events(spark, part.ends)
        columns = [f"`{name}`" for name in events.columns]
        events = events.select(
            *columns, self._time(f).alias("_t"), f.expr(_is_new(part.before.get(self.channel))).alias("_new")
        ).filter("_t IS NOT NULL")
        (first,) = events.filter("_new").agg(f.min("_t")).collect()[0]
        if first is not None and part.before and self.pattern is None:
            # What is before all that is new, and before all that a new trigger reaches, stays as it is.
            events = events.filter(f.col("_t") >= first - _ns(max(self.before, self.thin or 0.0)))
        cut_now = self._cuts(self._triggers(spark, part.ends, None))
        found = self._within(events, cut_now, "_cut")
        if part.before:
            cut_then = self._cuts(self._triggers(spark, part.before, part.before.get(self.channel)))
            found = self._within(found, cut_then, "_then")
        else:
            found = found.withColumn("_then", f.lit(None).cast("bigint"))
        found = found.withColumn("_thin", self._thinned(f))
        come_late = "NOT _new AND _cut IS NOT NULL AND _then IS NULL AND NOT _thin"
        wanted = f"(_new AND (_cut IS NOT NULL OR _thin)) OR ({come_late})"
        return found.filter(wanted).select(*columns, f.col("_cut").alias(CUT))

    def _events(self, spark: SparkSession, ends: dict[str, Any], where: str | None = None) -> DataFrame:
        from heliograph.spark.source.read import read  # noqa: PLC0415 - as above

        until = {partition: at["offset"] for partition, at in ends.get(self.channel, {}).items()}
        params = None if where is None else self.params
        return read(spark, os.fspath(self.folder), self.channel, until=until, where=where, params=params)

    def _time(self, f: Any) -> Column:
        if self.time in ("append", "source"):
            column: Column = f.col(f"header.{self.time}_ns")
            return column
        micros: Column = f.unix_micros(f.col(f"`{self.time}`"))
        return micros * 1000

    def _triggers(self, spark: SparkSession, ends: dict[str, Any], below: Any) -> DataFrame:
        """When it was triggered, by key; with `below`, only by events before those offsets."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        if self.pattern is not None:
            return self._matches(spark, ends)
        found = self._events(spark, ends, self.when)
        if below is not None:
            found = found.filter(f"NOT ({_is_new(below)})")
        return found.select(*(f"`{key}`" for key in self._keys()), self._time(f).alias("_t")).filter(
            "_t IS NOT NULL"
        )

    def _matches(self, spark: SparkSession, ends: dict[str, Any]) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        from heliograph.spark.patterns.recording import StoredRecording  # noqa: PLC0415 - as above

        assert self.pattern is not None
        places = ends.get(INPUTS + self.pattern, {})
        if not places:
            return spark.createDataFrame([], "_t bigint")
        until = {partition: at["offset"] for partition, at in places.items()}
        record = StoredRecording(spark, os.fspath(self.folder), self.pattern, until)
        return record.matches(None).select(f.col("at_ns").alias("_t"))

    def _cuts(self, triggers: DataFrame) -> DataFrame:
        """The cut-outs: the keys, the first trigger, and from when to when."""
        from pyspark.sql import Window  # noqa: PLC0415 - as above
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        own = [f.col(f"`{key}`") for key in self._keys()]
        width = self._width
        # Triggers nearer to each other than a window is long belong together, so few rows are left to sort.
        near = triggers.groupBy(*own, f.expr(_stretch("_t", width)).alias("_near")).agg(
            f.min("_t").alias("_first"), f.max("_t").alias("_last")
        )
        order = Window.partitionBy(*(own or [f.lit(0)])).orderBy("_first")
        gap = f.col("_first") - f.lag("_last").over(order) > _ns(self.before) + _ns(self.after)
        numbered = near.withColumn("_gap", f.coalesce(gap, f.lit(True))).withColumn(
            "_number", f.sum(f.col("_gap").cast("int")).over(order)
        )
        return numbered.groupBy(*own, "_number").agg(
            f.min("_first").alias("_first"),
            (f.min("_first") - _ns(self.before)).alias("_from"),
            (f.max("_last") + _ns(self.after)).alias("_until"),
        )

    def _within(self, events: DataFrame, cuts: DataFrame, name: str) -> DataFrame:
        """Events with the cut-out in which they are, by an equal join over stretches of time."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        own = [f"_k{number}" for number, _ in enumerate(self._keys())]
        low, high, at = (_stretch(time, self._width) for time in ("_from", "_until", "_t"))
        sides = cuts.select(
            *(f.col(f"`{key}`").alias(mine) for key, mine in zip(self._keys(), own, strict=True)),
            f.col("_first").alias(name),
            "_from",
            "_until",
            f.expr(f"explode(sequence({low}, {high}))").alias("_at"),
        )
        same = f.expr(f"{at} = _at AND _t BETWEEN _from AND _until")
        for key, mine in zip(self._keys(), own, strict=True):
            same &= f.col(f"`{key}`").eqNullSafe(f.col(mine))
        return events.join(sides, same, "left").drop("_from", "_until", "_at", *own)

    @property
    def _width(self) -> int:
        return max(1, _ns(self.before) + _ns(self.after))

    def _thinned(self, f: Any) -> Column:
        """Whether an event is the first of its partition and key in a stretch of so many seconds."""
        from pyspark.sql import Window  # noqa: PLC0415 - as above

        if self.thin is None:
            never: Column = f.lit(False)
            return never
        stretch = f.expr(_stretch("_t", _ns(self.thin)))
        own = [f.col(f"`{key}`") for key in self._keys()]
        order = Window.partitionBy("header.partition", *own, stretch).orderBy("header.offset")
        first: Column = f.row_number().over(order) == 1
        return first


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _stretch(time: str, width: int) -> str:
    """The number of the stretch of time, as SQL; times before 1970 are negative, and DIV rounds to 0."""
    return f"({time} - pmod({time}, {width}L)) DIV {width}L"


def _is_new(places: dict[str, Any] | None) -> str:
    """Whether a row is not below these positions, as SQL."""
    if not places:
        return "true"
    # Names of partitions are made here, of digits and letters.
    cases = " ".join(f"WHEN '{name}' THEN header.offset >= {at['offset']}L" for name, at in places.items())
    return f"CASE header.partition {cases} ELSE true END"


@names_options
def cutouts(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    channel: str,
    to: str | os.PathLike[str],
    *,
    when: str | None = None,
    pattern: str | None = None,
    params: Params | None = None,
    before: float = 10.0,
    after: float = 5.0,
    by: str | Sequence[str] = (),
    time: str = "append",
    thin: float | None = None,
    format: Literal["parquet", "delta", "iceberg"] = "parquet",  # noqa: A002 - as Spark calls it
    follow: bool = False,
    every: float = 5.0,
    progress: Callable[[CutOuts], object] | None = None,
    stop: threading.Event | None = None,
) -> CutOuts:
    """Write what was around each trigger into a table; go on where its last run ended.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that keeps the channel; it may be running.
        channel: its name.
        to: the folder of the table, which driver and executors see; made if it is not there.
        when: a filter: each event for which it is true is a trigger.
        pattern: or the name of a pattern that was subscribed to with `replayable=True`: each match is one.
        params: values for `:name` and `%0` in the filter.
        before: seconds that are kept before a trigger.
        after: seconds that are kept after it; cut-outs that overlap are one.
        by: fields: a trigger is about events with the same values only.
        time: of what: "append", "source", or a field that is a datetime.
        thin: outside of cut-outs, keep the first event in each stretch of so many seconds; None: none.
        format: "parquet", "delta" or "iceberg".
        follow: go on with what comes, every so many seconds, until `stop` is set.
        every: those seconds.
        progress: called with what was done so far, after each pass.
        stop: ends `follow` after the pass in hand.
    """
    job = CutOutJob(
        folder=folder, channel=channel, to=to, when=when, pattern=pattern, params=params, before=before,
        after=after, by=by, time=time, thin=thin, format=format,
    )  # fmt: skip
    return job.run(spark, follow=follow, every=every, progress=progress, stop=stop)
