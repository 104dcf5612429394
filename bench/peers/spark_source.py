"""Spark reading channels: against a source that only hands over ready batches, Parquet, and Spark's files.

All cases of one benchmark share a session, a folder and its events; figures are per event, on the wall.
`--events` says how many there are: one million, ten, fifty. They are sealed, as all but the last minutes of a
channel are; what the head costs is a case of its own.
"""

from __future__ import annotations

import enum
import shutil
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import heliograph as hg
import heliograph.spark
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from heliograph.journal.format.folder import StationFolder
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PERSISTENT = hg.QoS(durability="persistent")
AT_ONCE = 10_000
MOST_IN_HEAD = 500_000
"""Events in the head that is measured by itself; with a million it would be rotated and sealed."""
MOST_AS_TUPLES = 100_000
"""Events that a source hands over row by row; it takes ten times as long for each."""
MICRO_BATCH = 200
FIELDS = ("id", "lat", "lon", "speed", "heading", "height", "region", "callsign")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    lat: float
    lon: float
    speed: float
    heading: float
    height: int
    region: str
    callsign: str


def track(n: int) -> Track:
    return Track(
        n,
        n * 0.1,
        n * 0.2,
        n % 900 * 1.0,
        n % 360 * 1.0,
        n % 12_000,
        "north" if n % 2 else "south",
        f"c{n % 997}",
    )


def fill(
    folder: str, channel: str, events: int, *, sealed: bool, events_of: Any = None, first: int = 0
) -> None:
    """A channel with events from the first up to so many; one that is there already is only gone on with."""
    if not first and Path(folder).exists() and channel in StationFolder(folder).channels():
        return
    cls, make = events_of or (Track, track)
    with hg.Station(folder) as station:
        opened = station.channel(channel, cls, qos=PERSISTENT)
        for start in range(first, events, AT_ONCE):
            opened.push_many([make(n) for n in range(start, min(start + AT_ONCE, events))])
        if sealed:
            opened._journal.store._writer.seal()  # type: ignore[union-attr]  # noqa: SLF001 - nobody else seals on request


def sealed_files(folder: str, channel: str) -> list[str]:
    """The files that are its history now; what they were merged from still lies beside them, in its grace."""
    from heliograph.spark.source.plan import plan_read

    return [file.path for file in plan_read(folder, channel, None, None, fail_on_data_loss=True).files]


def ready_batch(folder: str, channel: str) -> tuple[Any, pa.RecordBatch]:
    """The schema of the channel and some of its rows, exactly as `format("heliograph")` gives them."""
    import pyarrow as pa

    from heliograph.spark.source.source import HeliographSource

    source = HeliographSource({"path": folder, "channel": channel})
    schema = source.schema()
    reader = source.reader(schema)
    first: Any = next(iter(reader.read(reader.partitions()[0])))
    return schema, first.take(pa.array(range(min(AT_ONCE, first.num_rows))))


def bare_source(schema: Any, batch: Any, events: int, *, per_trigger: int | None = None) -> Any:
    """A Python data source that gives the same ready batch again and again: the least that Spark can do."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    size = 200_000

    def rows(wanted: int) -> Iterator[Any]:
        while wanted > 0:
            yield batch.slice(0, min(wanted, batch.num_rows))
            wanted -= batch.num_rows

    def tuples(wanted: int) -> Iterator[Any]:
        few = [
            (tuple(row.pop("header").values()), *row.values()) for row in batch.slice(0, 1_000).to_pylist()
        ]
        yield from islice(cycle(few), wanted)

    class Reader(DataSourceReader):
        def __init__(self, events: int, *, row_by_row: bool) -> None:
            self.events = events
            self.row_by_row = row_by_row

        def partitions(self) -> list[InputPartition]:
            events = self.events
            return [InputPartition(min(size, events - first)) for first in range(0, events, size)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            yield from (tuples if self.row_by_row else rows)(partition.value)

    class SourceStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"offset": 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"offset": min(events, start["offset"] + (per_trigger or events))}

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            pass

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(end["offset"] - start["offset"])]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            yield from rows(partition.value)

    class Bare(DataSource):
        @classmethod
        def name(cls) -> str:
            return "bare"

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> Reader:
            row_by_row = self.options.get("tuples") == "true"
            return Reader(int(self.options.get("events", events)), row_by_row=row_by_row)

        def streamReader(self, schema: Any) -> SourceStream:  # noqa: N802 - Spark's name
            return SourceStream()

    return Bare


def to_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def started(stack: ExitStack) -> tuple[str, SparkSession]:
    from pyspark.sql import SparkSession

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    was_running = SparkSession.getActiveSession() is not None
    spark = heliograph.spark.session(master="local[2]", config={"spark.driver.memory": "2g"})
    if not was_running:
        stack.callback(spark.stop)
    return folder, spark


@benchmark("spark-read", "A sealed channel in Spark: through Python, by Parquet, and filtered; per event")
def reading(size: Size) -> Benchmark:
    stack = ExitStack()
    folder, spark = started(stack)
    events = size.scaled(size.events)
    data = str(size.histories / str(events)) if size.histories else f"{folder}/data"
    in_head = min(events, MOST_IN_HEAD)
    fill(data, "sealed", events, sealed=True)
    fill(data, "head", in_head, sealed=False)
    spark.dataSource.register(bare_source(*ready_batch(data, "sealed"), events))
    files = sealed_files(data, "sealed")

    as_tuples = min(events, MOST_AS_TUPLES)

    def bare(count: int, *, tuples: bool = False) -> DataFrame:
        return spark.read.format("bare").options(events=count, tuples=str(tuples).lower()).load()

    def source(channel: str, **options: str) -> DataFrame:
        return spark.read.format("heliograph").options(path=data, channel=channel, **options).load()

    def read(**options: Any) -> DataFrame:
        return heliograph.spark.read(spark, data, "sealed", **options)

    def case(name: str, function: Any, of: int = events) -> Case:
        return Case(name, function, ((),), wall=True, events=of)

    return Benchmark(
        cases=(
            case("bare batches", lambda: to_nothing(bare(events))),
            case("bare batches, as in the head", lambda: to_nothing(bare(in_head)), in_head),
            case("bare tuples", lambda: to_nothing(bare(as_tuples, tuples=True)), as_tuples),
            case("format", lambda: to_nothing(source("sealed"))),
            case("format, head", lambda: to_nothing(source("head")), in_head),
            case("parquet", lambda: to_nothing(spark.read.parquet(*files).select(*FIELDS))),
            case("read", lambda: to_nothing(read().select(*FIELDS))),
            case("1 % in the text of read", lambda: read(where=f"id < {events // 100}").count()),
            case(
                "1 % by the filter option", lambda: source("sealed", filter=f"id < {events // 100}").count()
            ),
            case("1 % by Spark's filter", lambda: source("sealed").filter(f"id < {events // 100}").count()),
        ),
        baseline="bare batches",
        targets=(
            # At least 0.8 of the rate: at most 1.25 of the time.
            Target("format against bare batches, time", "format", "at most", 1.25, "bare batches"),
            Target("format, at least 200,000 events a second: µs for one", "format", "at most", 5.0),
            Target("the head, time", "format, head", "at most", 1.25, "bare batches, as in the head"),
            Target("read against spark.read.parquet, time", "read", "at most", 1.25, "parquet"),
            Target(
                "1 % of a sorted column, by the filter option",
                "1 % by the filter option",
                "at most",
                0.4,
                "1 % by Spark's filter",
            ),
        ),
        rounds=size.fewer(7),
        close=stack.close,
        note=f"{events:,} events of eight fields, {in_head:,} in the head; all columns with the header, "
        "about 240 bytes for each event, but for Parquet and read, which take the eight fields. Bare tuples "
        f"are {as_tuples:,} of the same rows, handed over one by one.",
    )


class Mode(enum.Enum):
    CLIMB = "climb"
    CRUISE = "cruise"


class Position(hg.Event, name="air.position"):
    lat: float
    lon: float


class Report(hg.Event, name="air.report", key="id"):
    """An event whose fields are not only numbers and text."""

    id: int
    at: datetime
    mode: Mode
    position: Position
    speed: float
    legs: list[int]
    note: str | None = None


def report(n: int) -> Report:
    position = Position(n * 0.1, n * 0.2)
    mode = Mode.CLIMB if n % 2 else Mode.CRUISE
    note = None if n % 3 else f"n{n % 97}"
    return Report(n, ft.EPOCH + timedelta(milliseconds=n), mode, position, n % 900, [n % 7, n % 5], note)


FRESH = 0.07
"""The part of a history that is not sealed yet."""
SELECTED: dict[str, tuple[Any, Any, dict[str, tuple[str, ...]]]] = {
    "tracks": (Track, track, {"count": (), "one number": ("id",), "text": ("region",), "all": FIELDS}),
    "reports": (
        Report,
        report,
        {"count": (), "a time": ("at",), "an enum": ("mode",), "nested": ("position.lat",),
         "all": ("id", "at", "mode", "position", "speed", "legs", "note")},
    ),
}  # fmt: skip


@benchmark("spark-head", "A history of which 7 % is not sealed yet, by `read` and by Parquet; per event")
def fresh(size: Size) -> Benchmark:
    from heliograph.spark.source import head_copies

    stack = ExitStack()
    folder, spark = started(stack)
    events = size.scaled(3_000_000)
    sealed = round(events * (1 - FRESH))
    cases: list[Case] = []
    targets: list[Target] = []
    for channel, (cls, make, selections) in SELECTED.items():
        fill(f"{folder}/data", channel, sealed, sealed=True, events_of=(cls, make))
        fill(f"{folder}/data", channel, events, sealed=False, events_of=(cls, make), first=sealed)
        files = sealed_files(f"{folder}/data", channel)

        def go(frame: DataFrame, columns: tuple[str, ...]) -> None:
            if columns:
                to_nothing(frame.select(*columns))
            else:
                frame.count()

        def plain(columns: tuple[str, ...], files: list[str] = files) -> None:
            go(spark.read.parquet(*files), columns)

        def ours(columns: tuple[str, ...], channel: str = channel) -> None:
            go(heliograph.spark.read(spark, f"{folder}/data", channel), columns)

        def first(columns: tuple[str, ...], channel: str = channel) -> None:
            head_copies._of_process.clear()  # noqa: SLF001 - as in a process that has read nothing yet
            ours(columns, channel)

        for name, columns in selections.items():
            of = f"{channel}, {name}"
            cases += (
                Case(f"parquet: {of}", partial(plain, columns), ((),), wall=True, events=sealed),
                Case(f"read: {of}", partial(ours, columns), ((),), wall=True, events=events),
            )
            targets.append(Target(f"{of}, time", f"read: {of}", "at most", 1.5, f"parquet: {of}"))
        cases.append(
            Case(
                f"first read: {channel}, all",
                partial(first, selections["all"]),
                ((),),
                wall=True,
                events=events,
            )
        )
    return Benchmark(
        cases=tuple(cases),
        baseline="parquet: tracks, all",
        targets=tuple(targets),
        rounds=size.fewer(7),
        close=stack.close,
        note=f"{events:,} events in each channel, {events - sealed:,} of them in the head; Parquet reads "
        "the sealed files only. A first read copies the head; later ones use the copy.",
    )


STREAMING = (
    Target("200 rows, time", "heliograph, 200 each", "at most", 1.5, "constant rows, 200 each"),
    # At least 0.4 of the rate. Spark tells the file source which columns are wanted, and a Python
    # source not: only a schema does.
    Target(
        "to Parquet, columns named in a schema, time",
        "heliograph to Parquet, columns named",
        "at most",
        2.5,
        "files to Parquet",
    ),
    Target(
        "to Parquet, columns selected later, time",
        "heliograph to Parquet",
        "at most",
        2.5,
        "files to Parquet",
    ),
)


@benchmark("spark-stream", "Streams that end when they have all: small batches, and into Parquet; per event")
def streaming(size: Size) -> Benchmark:
    stack = ExitStack()
    folder, spark = started(stack)
    events = size.scaled(size.events)
    data = str(size.histories / str(events)) if size.histories else f"{folder}/data"
    small = MICRO_BATCH * (3 if size.quick else 20)
    fill(data, "sealed", events, sealed=True)
    fill(data, "small", small, sealed=False)
    spark.dataSource.register(bare_source(*ready_batch(data, "small"), small, per_trigger=MICRO_BATCH))
    sealed = Path(folder, "files")
    sealed.mkdir()
    for file in map(Path, sealed_files(data, "sealed")):
        (sealed / file.name).hardlink_to(file)
    of_file = spark.read.parquet(str(sealed)).schema
    numbers = count()

    def drained(frame: DataFrame, sink: str) -> None:
        place = f"{folder}/out-{next(numbers)}"
        writer = frame.writeStream.format(sink).option("checkpointLocation", f"{place}/checkpoint")
        writer.option("path", f"{place}/rows").trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(place)

    def ours(channel: str, **options: Any) -> DataFrame:
        said = {"path": data, "channel": channel, "startingOffsets": "earliest", **options}
        return spark.readStream.format("heliograph").options(**said).load()

    def named(channel: str) -> DataFrame:
        columns = ", ".join(f"{name} {kind}" for name, kind in ours(channel).select(*FIELDS).dtypes)
        said = {"path": data, "channel": channel, "startingOffsets": "earliest"}
        return spark.readStream.format("heliograph").schema(columns).options(**said).load()

    def case(name: str, frame: Any, sink: str, of: int) -> Case:
        return Case(name, lambda: drained(frame(), sink), ((),), wall=True, events=of)

    lag, within = _lag(spark, folder, size)
    return Benchmark(
        cases=(
            case("constant rows, 200 each", lambda: spark.readStream.format("bare").load(), "noop", small),
            case(
                "heliograph, 200 each", partial(ours, "small", maxEventsPerTrigger=MICRO_BATCH), "noop", small
            ),
            case(
                "files to Parquet",
                lambda: spark.readStream.schema(of_file).parquet(str(sealed)).select(*FIELDS),
                "parquet",
                events,
            ),
            case("heliograph to Parquet", lambda: ours("sealed").select(*FIELDS), "parquet", events),
            case("heliograph to Parquet, columns named", lambda: named("sealed"), "parquet", events),
        ),
        baseline="constant rows, 200 each",
        targets=STREAMING,
        rounds=size.fewer(5),
        close=stack.close,
        facts=within,
        note=f"{events:,} events; {small // MICRO_BATCH} batches of {MICRO_BATCH}. {lag}",
    )


LAGS = ((49, "p50", 600), (98, "p99", 2_000))
"""Milliseconds from push to a batch at 1,000 events a second, at most."""


def _lag(spark: SparkSession, folder: str, size: Size) -> tuple[str, tuple[Fact, ...]]:
    """From push to a batch of a running stream, at a fixed rate; and whether it is soon enough."""
    rate, seconds = 1000, 3 if size.quick else 30
    waited: list[float] = []

    def note(frame: DataFrame, _: int) -> None:
        now = time.time_ns()
        waited.extend((now - row[0]) / 1e6 for row in frame.select("header.append_ns").collect())

    with hg.Station(f"{folder}/live") as station:
        live = station.channel("live", Track, qos=PERSISTENT)
        live.push(track(0))
        frame = spark.readStream.format("heliograph").options(path=f"{folder}/live", channel="live").load()
        writer = frame.writeStream.foreachBatch(note).option(
            "checkpointLocation", f"{folder}/live-checkpoint"
        )
        query = writer.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        start = time.perf_counter()
        for tick in range(seconds * 100):
            live.push_many([track(n) for n in range(rate // 100)])
            time.sleep(max(0.0, start + (tick + 1) / 100 - time.perf_counter()))
        query.processAllAvailable()
        query.stop()
    cuts = quantiles(waited, n=100, method="inclusive")
    later = f"{cuts[49]:.0f} ms later (p50), {cuts[98]:.0f} ms (p99)"
    # A quick run says nothing about speed.
    facts = (
        ()
        if size.quick
        else tuple(
            Fact(
                f"{name} of the lag at {rate} events a second at most {most} ms: {cuts[at]:.0f} ms",
                cuts[at] <= most,
            )
            for at, name, most in LAGS
        )
    )
    return f"At {rate} events a second a running stream has an event {later}.", facts


@benchmark(
    "spark-offsets", "Asking 1, 100 and 10,000 channels how far they are, and planning a batch of them"
)
def offsets(size: Size) -> Benchmark:
    from heliograph.spark.source.options import parse_options
    from heliograph.spark.source.partitions import ChannelPartitions
    from heliograph.spark.source.stream import SourceStream

    stack = ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    fill(f"{folder}/one", "c0", 10, sealed=False)
    cases = []
    for channels in dict.fromkeys((1, 100, size.scaled(10_000))):
        data = Path(f"{folder}/{channels}")
        shutil.copytree(f"{folder}/one", data, dirs_exist_ok=True)
        for n in range(1, channels):
            shutil.copytree(data / "channels" / "c0", data / "channels" / f"c{n}")
        said = {"path": str(data), "subscribePattern": "c.*", "startingOffsets": "earliest"}
        options = parse_options(said, stream=True)
        stream = SourceStream(options, ChannelPartitions(options))
        start = stream.initial()
        assert sum(map(len, start.values())) == len(StationFolder(data).channels()) == channels

        def plan(stream: SourceStream = stream, start: Any = start) -> None:
            stream.slices(start, stream.latest(start, limited=True))

        cases.append(Case(f"{channels:,} channels", plan, ((),)))
    return Benchmark(
        cases=tuple(cases),
        baseline=cases[0].name,
        close=stack.close,
        note="`latestOffset` and `partitions` of one batch, every channel with new events; once a second "
        "new partitions are looked for, too, or as often as that takes a tenth of the time.",
    )
