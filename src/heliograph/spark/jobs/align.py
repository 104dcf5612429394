"""`align`: several channels of different rates as one training table, with a row for each instant.

    jobs.align(spark, "data", {"imu": "robot.imu", "gps": "robot.gps"}, "tables/train",
               grid=0.01, tolerance=0.5, linear=["imu"], test_fraction=0.2)

The instants are those of a grid, or of the events of a leading channel. At each, every channel has the last
event at or before it, or numbers between that one and the next; where there is none within the tolerance the
row says so. `heliograph.spark.jobs.asof` has how it is computed.

The table is the checkpoint: it says with each commit how far it goes in time, and which events were there.
A run takes what is behind that. Rows are never changed, so an event that comes later with a time that the
table has passed already is counted as late; it is still the last value for rows to come.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Unpack

from heliograph.delivery.records import RESERVED
from heliograph.errors import InvalidOption, TableMismatch
from heliograph.model.field_types import EPOCH
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.arguments import at_least, insist_on_filter, is_datetime, one_of, size
from heliograph.spark.jobs.following import Passes, RunOptions
from heliograph.spark.jobs.ranges import Ranges
from heliograph.spark.jobs.table_job import TableTarget
from heliograph.spark.session.session import insist_on_session
from heliograph.spark.source.partitions import Key

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from heliograph.model.formats import Format
    from heliograph.spark.jobs.asof import Series, Stretches
    from heliograph.spark.jobs.table_job import OpenTable

OWN: Final = f"{RESERVED}align"
"""Under this name the positions of a table say how far it goes in time; it is no channel."""
SPLIT: Final = "split"
TIME_COLUMNS: Final = ("time_ns", "time", SPLIT)
FILE_SIZE: Final = "256m"
COMPACT_AFTER: Final = 8
EVENTS_PER_STRETCH: Final = 1_000_000
FILES: Final = 10_000
"""More than Spark ever has tasks for a pass: it chooses their number by size."""
LATE: Final = 5.0
BEGINNING: Final = -(1 << 62)
"""Before all times that an event can have."""


@dataclass
class Aligned:
    """What a run did so far."""

    channels: list[str]
    table: str
    format: str
    rows: int = 0
    """Written."""
    train: int = 0
    test: int = 0
    gaps: dict[str, int] = field(default_factory=dict)
    """For each channel, rows in which it has no value."""
    events: int = 0
    """Offsets that were new."""
    late: int = 0
    """Events that were new, and older than what the table had reached: its rows stayed as they were."""
    until_ns: int | None = None
    """Rows up to this instant are in the table."""
    test_from_ns: int | None = None
    left: int = 0
    commits: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0


class _Reached(NamedTuple):
    """What a table's positions say of it."""

    until: int
    seen: int
    """The last time of an event that was there: with `follow`, later than `until`."""
    test_from: int | None
    positions: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class AlignJob:
    """An alignment that has been asked for. InvalidOption, NoHistory, ... when it cannot be done."""

    folder: str | os.PathLike[str]
    channels: Mapping[str, str] | Sequence[str]
    to: str | os.PathLike[str]
    grid: float | None = None
    lead: str | None = None
    by: str | Sequence[str] = ()
    time: str = "append"
    tolerance: float | None = None
    linear: Sequence[str] = ()
    where: Mapping[str, str] | None = None
    test_from: datetime | None = None
    test_fraction: float | None = None
    embargo: float = 0.0
    late: float = LATE
    format: str = "parquet"
    file_size: str | int = FILE_SIZE
    compact_after: int = COMPACT_AFTER
    events_per_stretch: int = EVENTS_PER_STRETCH

    def __post_init__(self) -> None:
        TableTarget(self.to, self.format).insist()
        size("file_size", self.file_size)
        at_least("compact_after", self.compact_after, 0)
        at_least("late", self.late, 0)
        at_least("embargo", self.embargo, 0)
        at_least("events_per_stretch", self.events_per_stretch, 1)
        if self.tolerance is not None:
            at_least("tolerance", self.tolerance, 0)
        self._insist_on_instants()
        self._insist_on_split()
        with ExitStack() as stack:
            ranges = self._opened(stack)
            self._insist_on_columns({alias: one.formats() for alias, one in ranges.items()})

    def run(self, spark: SparkSession, **options: Unpack[RunOptions[Aligned]]) -> Aligned:
        """Align what is there now; with `follow` again and again until `stop` is set, or Ctrl-C."""
        follow = options.get("follow", False)
        if follow and self.test_fraction is not None:
            raise InvalidOption(
                "test_fraction",
                str(self.test_fraction),
                "a table without follow; with it give test_from, a time",
            )
        if follow and self.linear and self.tolerance is None:
            raise InvalidOption(
                "tolerance", None, "seconds, with linear and follow: how long to wait for the next value"
            )
        insist_on_session(spark)
        done = Aligned(list(self._named().values()), os.fspath(self.to), self.format)
        done.gaps = dict.fromkeys(self._sides(), 0)
        passes = Passes(done, **options)
        with ExitStack() as stack:
            ranges = self._opened(stack)
            table = stack.enter_context(TableTarget(self.to, self.format).opened())
            for _ in passes:
                left = self._pass(spark, table, ranges, done, follow=follow)
                passes.tell(left)
        return done

    # What was asked

    def _named(self) -> dict[str, str]:
        """The channels by the names that their columns begin with."""
        if isinstance(self.channels, str):
            raise InvalidOption("channels", self.channels, f"a list of names, such as [{self.channels!r}]")
        if isinstance(self.channels, Mapping):
            return dict(self.channels)
        return {re.sub(r"\W", "_", name): name for name in self.channels}

    def _lead(self) -> str | None:
        """The alias of the leading channel, which may be named either way."""
        if self.lead is None:
            return None
        named = self._named()
        found = [alias for alias, name in named.items() if self.lead in (alias, name)]
        if not found:
            raise InvalidOption("lead", self.lead, f"one of the channels: {', '.join(named)}")
        return found[0]

    def _sides(self) -> list[str]:
        return [alias for alias in self._named() if alias != self._lead()]

    def _keys(self) -> list[str]:
        return [self.by] if isinstance(self.by, str) else list(self.by)

    def _insist_on_instants(self) -> None:
        named = self._named()
        if (self.grid is None) == (self.lead is None):
            raise InvalidOption(
                "grid", str(self.grid), "seconds between two rows, or lead, a channel: one of both"
            )
        if self.grid is not None:
            at_least("grid", self.grid, 1e-6)
        if not self._sides():
            raise InvalidOption("channels", ", ".join(named), "at least one besides the leading channel")
        if not isinstance(self.channels, str) and len(set(named.values())) < len(self.channels):
            raise InvalidOption("channels", ", ".join(named.values()), "each channel once")
        for alias in named:
            if not re.fullmatch(r"[A-Za-z]\w*", alias):
                raise InvalidOption("channels", alias, "names of letters, digits and _ for columns")
        for option, aliases in (("linear", self.linear), ("where", self.where or ())):
            for alias in [aliases] if isinstance(aliases, str) else aliases:
                allowed = self._sides() if option == "linear" else list(named)
                one_of(option, alias, allowed)

    def _insist_on_split(self) -> None:
        if self.test_from is not None and self.test_fraction is not None:
            raise InvalidOption(
                "test_fraction", str(self.test_fraction), "a fraction, or test_from: one of both"
            )
        if self.test_from is not None and self.test_from.tzinfo is None:
            raise InvalidOption("test_from", str(self.test_from), "a datetime with a time zone")
        if self.test_fraction is not None and not 0 < self.test_fraction < 1:
            raise InvalidOption("test_fraction", str(self.test_fraction), "a number between 0 and 1")
        if self.embargo and self.test_from is None and self.test_fraction is None:
            raise InvalidOption("embargo", str(self.embargo), "0 without test_from or test_fraction")

    def _insist_on_columns(self, formats: Mapping[str, Sequence[Format]]) -> None:
        keys, names = self._keys(), [*TIME_COLUMNS, *self._keys()]
        kinds: dict[str, str] = {}
        for alias, of_one in formats.items():
            insist_on_filter((self.where or {}).get(alias), None, of_one)
            fields = {one.name: str(one.type).removesuffix(" | None") for fmt in of_one for one in fmt.fields}
            for key in keys:
                if key not in fields:
                    allowed = f"fields that all channels have; {alias} has {', '.join(fields) or 'no events'}"
                    raise InvalidOption("by", key, allowed)
                if kinds.setdefault(key, fields[key]) != fields[key]:
                    raise InvalidOption("by", key, f"a field of one type; {alias} has {fields[key]} there")
            times = [one.name for fmt in of_one for one in fmt.fields if is_datetime(one)]
            one_of("time", self.time, ("append", "source", *times))
            names += [f"{alias}_{name}" for name in fields if name not in keys]
            names += [] if alias == self._lead() else [f"{alias}_gap", f"{alias}_age"]
        twice = {name for name in names if [one.lower() for one in names].count(name.lower()) > 1}
        if twice:
            raise InvalidOption(
                "channels",
                ", ".join(self._named()),
                f"names that keep columns apart: {', '.join(sorted(twice))}",
            )

    @property
    def _asked(self) -> int:
        """A number that is the same for jobs whose rows may stand in one table."""
        facts = (
            sorted(self._named().items()), self.grid, self._lead(), self._keys(), self.time, self.tolerance,
            sorted([self.linear] if isinstance(self.linear, str) else self.linear),
            sorted((self.where or {}).items()), self.embargo,
        )  # fmt: skip
        return int.from_bytes(hashlib.sha256(repr(facts).encode()).digest()[:7], "big")

    # What is done

    def _opened(self, stack: ExitStack) -> dict[str, Ranges]:
        return {
            alias: stack.enter_context(Ranges(os.fspath(self.folder), name))
            for alias, name in self._named().items()
        }

    def _pass(
        self, spark: SparkSession, table: OpenTable, ranges: dict[str, Ranges], done: Aligned, *, follow: bool
    ) -> int:
        """Write what has come; returns how many offsets are left, which with `follow` have to wait."""
        reached = self._reached(table, ranges)
        ends: dict[str, Any] = {}
        news = []
        for one in ranges.values():
            one.pin()
        for alias, one in ranges.items():
            own = {name: at for name, at in reached.positions.items() if name == one.channel} or None
            batch = one.after(own)
            ends |= {one.channel: {}} if own is None and batch is None else (own or {})
            if batch is not None:
                news.append((alias, batch))
                ends |= batch.positions
        if not news and (follow or reached.seen <= reached.until):
            return 0
        frames = {alias: self._frame(spark, alias, one, ends) for alias, one in ranges.items()}
        span = self._span(frames)
        if span is None:
            return 0
        until = span.last
        if follow:
            until -= _ns(self.late) + (_ns(self.tolerance or 0.0) if self.linear else 0)
        if until <= reached.until:
            return sum(batch.offsets for _, batch in news)
        late = sum(self._late(spark, alias, batch, reached.until) for alias, batch in news)
        boundary = self._boundary(reached, span, until)
        self._write(spark, table, frames, span, reached, until, boundary, ends, done)
        done.events += sum(batch.offsets for _, batch in news)
        done.late += late
        done.until_ns, done.test_from_ns = until, boundary
        return 0

    def _reached(self, table: OpenTable, ranges: dict[str, Ranges]) -> _Reached:
        """How far the table goes; TableMismatch when another job has made it."""
        keys = [key for one in ranges.values() for key in one.partitions()]
        own = [Key(OWN, name) for name in ("until", "seen", "asked", "test")]
        positions = table.table.positions([*keys, *own])
        if positions is None:
            return _Reached(BEGINNING, BEGINNING, None, {})
        mine = positions.pop(OWN, None)
        place = table.place.table.as_posix()
        if mine is None:
            raise TableMismatch(place, f"it holds events of {', '.join(sorted(positions))}")
        if mine["asked"]["offset"] != self._asked:
            other = "channels, grid, lead, by, time, tolerance, linear, where or embargo"
            raise TableMismatch(place, f"it was aligned with other {other}; choose another folder")
        test = mine.get("test")
        return _Reached(
            mine["until"]["offset"],
            mine["seen"]["offset"],
            None if test is None else test["offset"],
            positions,
        )

    def _frame(self, spark: SparkSession, alias: str, ranges: Ranges, ends: Mapping[str, Any]) -> DataFrame:
        """The events of a channel up to what is durable now, as a series."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - Spark loads with it

        from heliograph.spark.jobs.asof import PLACE, TIME  # noqa: PLC0415 - as above
        from heliograph.spark.source.read import read  # noqa: PLC0415 - as above

        until = {partition: at["offset"] for partition, at in ends[ranges.channel].items()}
        frame = read(spark, ranges.folder, ranges.channel, until=until, where=(self.where or {}).get(alias))
        return frame.select(
            self._nanoseconds().alias(TIME),
            f.col("header.partition").alias(PLACE[0]),
            f.col("header.offset").alias(PLACE[1]),
            *(f"`{name}`" for name in frame.columns if name != "header"),
        ).filter(f"{TIME} IS NOT NULL")

    def _nanoseconds(self) -> Column:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        if self.time in ("append", "source"):
            return f.col(f"header.{self.time}_ns")
        return f.unix_micros(f.col(f"`{self.time}`")) * 1000

    def _span(self, frames: Mapping[str, DataFrame]) -> _Span | None:
        """First and last time of all events, and how many there are; None: there are none."""
        from functools import reduce  # noqa: PLC0415 - as above

        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        from heliograph.spark.jobs.asof import TIME  # noqa: PLC0415 - as above

        lead = self._lead()
        times = reduce(
            lambda a, b: a.union(b),
            [
                frame.select(TIME, f.lit(lead in (None, alias)).alias("_leads"))
                for alias, frame in frames.items()
            ],
        )
        leads = f.when(f.col("_leads"), f.col(TIME))
        (row,) = times.agg(f.min(TIME), f.max(TIME), f.count("*"), f.min(leads), f.max(leads)).collect()
        return None if row[0] is None else _Span(*row)

    def _late(self, spark: SparkSession, alias: str, batch: Any, until: int) -> int:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        if until == BEGINNING:
            return 0
        frame = batch.frame(spark, where=(self.where or {}).get(alias))
        return int(frame.filter(self._nanoseconds() <= f.lit(until)).count())

    def _boundary(self, reached: _Reached, span: _Span, until: int) -> int | None:
        """The first instant of the test part; what the first run has found stays."""
        if self.test_from is not None:
            return (self.test_from - EPOCH) // timedelta(microseconds=1) * 1000
        if self.test_fraction is None or reached.test_from is not None:
            return reached.test_from
        first = span.first if span.rows_first is None else span.rows_first
        last = until if span.rows_last is None else min(until, span.rows_last)
        return last - round((last - first) * self.test_fraction)

    def _write(  # noqa: PLR0917 - what a pass consists of
        self,
        spark: SparkSession,
        target: OpenTable,
        frames: dict[str, DataFrame],
        span: _Span,
        reached: _Reached,
        until: int,
        boundary: int | None,
        ends: dict[str, Any],
        done: Aligned,
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - as above

        from heliograph.spark.jobs.tables.rewrite import RewritePolicy  # noqa: PLC0415 - Arrow loads with it

        table = target.table
        frame = self._rows(frames, span, reached.until, until, boundary)
        name = f"_{SPLIT}" if table.keeps_partition_columns else SPLIT
        written = frame if name == SPLIT else frame.withColumn(name, frame[SPLIT])
        staged = target.stage(spark, written, files=FILES, by=[name])
        gaps = self._gaps([target.place.table / file.path for file in staged])
        own: dict[str, Any] = {"until": until, "seen": span.last, "asked": self._asked}
        if boundary is not None:
            own["test"] = boundary
        positions = {**ends, OWN: {what: {"epoch": 0, "offset": at} for what, at in own.items()}}
        table.commit(staged, to_arrow_schema(frame.schema, timezone="UTC"), [SPLIT], positions)
        table.compact(RewritePolicy(size("file_size", self.file_size), self.compact_after))
        done.commits += 1
        done.files += len(staged)
        done.bytes += sum(file.bytes for file in staged)
        done.rows += sum(file.rows for file in staged)
        done.train += sum(file.rows for file in staged if file.partition[SPLIT] == "train")
        done.test += sum(file.rows for file in staged if file.partition[SPLIT] == "test")
        for alias, count in gaps.items():
            done.gaps[alias] += count

    def _rows(
        self, frames: dict[str, DataFrame], span: _Span, after: int, until: int, boundary: int | None
    ) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        from heliograph.spark.jobs.asof import TIME, Instants, Series, as_of  # noqa: PLC0415 - as above

        keys, lead = self._keys(), self._lead()
        own = (TIME, "_p", "_o", *keys)
        after = max(after, span.first - 1)
        tolerance = None if self.tolerance is None else _ns(self.tolerance)
        if tolerance is not None:
            # Nothing before this can be seen from a row that is wanted, and files without more are not read.
            low = after - tolerance
            frames = {alias: frame.filter(f"{TIME} >= {low}L") for alias, frame in frames.items()}
        every: dict[str, Series] = {
            alias: Series(
                alias,
                frame,
                [name for name in frame.columns if name not in own],
                "linear" if alias in self.linear else "last",
            )
            for alias, frame in frames.items()
        }
        step = None if self.grid is None else _ns(self.grid)
        onto = Instants(after, until, step, None if lead is None else every[lead])
        found = as_of(
            [every[alias] for alias in self._sides()],
            onto,
            keys=keys,
            tolerance=tolerance,
            stretches=self._stretches(span, step),
        )
        split = f.lit("train")
        if boundary is not None:
            split = f.when(f.col(TIME) < boundary, "train").otherwise("test")
            if self.embargo:
                found = found.filter(f.abs(f.col(TIME) - f.lit(boundary)) >= _ns(self.embargo))
        rest = [f"`{name}`" for name in found.columns if name != TIME]
        return found.select(
            f.col(TIME).alias("time_ns"),
            f.expr(f"timestamp_micros({TIME} DIV 1000)").alias("time"),
            *rest,
            split.alias(SPLIT),
        )

    def _stretches(self, span: _Span, step: int | None) -> Stretches:
        from heliograph.spark.jobs.asof import Stretches  # noqa: PLC0415 - as above

        return Stretches.over(span.first, span.last, -(-span.events // self.events_per_stretch), step)

    def _gaps(self, files: list[Any]) -> dict[str, int]:
        """Rows without a value of each channel, from the footers: those of its age that are NULL."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        found = dict.fromkeys(self._sides(), 0)
        for path in files:
            footer = pq.read_metadata(path)
            at = {footer.row_group(0).column(n).path_in_schema: n for n in range(footer.num_columns)}
            for alias in found:
                for number in range(footer.num_row_groups):
                    column = footer.row_group(number).column(at[f"{alias}_age"])
                    found[alias] += column.statistics.null_count
        return found


class _Span(NamedTuple):
    """The times of all events that were read."""

    first: int
    last: int
    events: int
    rows_first: int | None
    rows_last: int | None
    """Of the leading channel; without one, of all."""


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


@names_options
def align(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    channels: Mapping[str, str] | Sequence[str],
    to: str | os.PathLike[str],
    *,
    grid: float | None = None,
    lead: str | None = None,
    by: str | Sequence[str] = (),
    time: str = "append",
    tolerance: float | None = None,
    linear: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    test_from: datetime | None = None,
    test_fraction: float | None = None,
    embargo: float = 0.0,
    late: float = LATE,
    format: Literal["parquet", "delta", "iceberg"] = "parquet",  # noqa: A002 - as Spark calls it
    file_size: str | int = FILE_SIZE,
    compact_after: int = COMPACT_AFTER,
    events_per_stretch: int = EVENTS_PER_STRETCH,
    follow: bool = False,
    every: float = 5.0,
    progress: Callable[[Aligned], object] | None = None,
    stop: threading.Event | None = None,
) -> Aligned:
    """Write what several channels said at the same instants into a table; go on where its last run ended.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that keeps the channels; it may be running.
        channels: their names, or a mapping of short names, with which columns begin, to them.
        to: the folder of the table, which driver and executors see; made if it is not there.
        grid: seconds between two rows, which are at multiples of it since 1970.
        lead: or the channel whose events give the rows.
        by: fields that all channels have, such as the robot: each value has rows of its own.
        time: of what: "append", "source", or a field that is a datetime in all channels.
        tolerance: seconds after which a value is too old; None: never.
        linear: channels whose numbers are interpolated between the last and the next event.
        where: filters for events, by the short name of the channel.
        test_from: rows from this time on are the test part, in the column `split`.
        test_fraction: or the last part of the time of the first run; where it began stays in later runs.
        embargo: rows nearer to that than so many seconds, on both sides, are left out.
        late: with `follow`, how many seconds an event may come behind the latest and still be seen.
        format: "parquet", "delta" or "iceberg".
        file_size: what files grow to, by joining.
        compact_after: so many small files of a part are joined; 0: never.
        events_per_stretch: time is divided so that a task holds about so many events of one key.
        follow: go on with what comes, every so many seconds, until `stop` is set.
        every: those seconds.
        progress: called with what was done so far, after each pass.
        stop: ends `follow` after the pass in hand.
    """
    job = AlignJob(
        folder=folder, channels=channels, to=to, grid=grid, lead=lead, by=by, time=time, tolerance=tolerance,
        linear=linear, where=where, test_from=test_from, test_fraction=test_fraction, embargo=embargo,
        late=late, format=format, file_size=file_size, compact_after=compact_after,
        events_per_stretch=events_per_stretch,
    )  # fmt: skip
    return job.run(spark, follow=follow, every=every, progress=progress, stop=stop)
