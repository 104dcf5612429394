"""`heliograph.spark.read` in a real Spark: every durable row once, and filters that mean what they mean."""

from __future__ import annotations

import enum
import io
import math
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use

import heliograph as hg
import heliograph.spark
from heliograph.errors import ExpressionError, FormatError, HistoryDamaged, NotPossible
from heliograph.spark.source.filters import filter_sql, parsed
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


def offsets(frame: DataFrame) -> list[int]:
    """The offsets of all rows, one by one, so that a row that came twice shows."""
    return sorted(row[0] for row in frame.select("header.offset").collect())


def events(frame: DataFrame) -> list[dict[str, Any]]:
    """The events without their headers, in the order of offsets."""
    rows = sorted(
        (row.asDict(recursive=True) for row in frame.collect()), key=lambda r: r["header"]["offset"]
    )
    return [{name: value for name, value in row.items() if name != "header"} for row in rows]


def test_spark_counts_what_the_journal_counts_before_and_after_sealing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        writer = tracks._journal.store._writer  # type: ignore[union-attr]  # nobody else seals on request
        planned: list[tuple[DataFrame, int]] = []

        def plan(total: int) -> DataFrame:
            planned.append((heliograph.spark.read(spark, tmp_path, "air.tracks"), total))
            return planned[-1][0]

        plan(0)
        tracks.push_many([Track(n, n * 0.5) for n in range(700)])
        assert plan(700).count() == 700
        assert writer.seal() == 1
        assert plan(700).count() == 700
        tracks.push_many([Track(n, n * 0.5) for n in range(700, 1000)])
        plan(1000)
        assert writer.seal() == 1
        assert plan(1000).agg({"id": "sum", "speed": "sum"}).collect()[0][0:2] == (499_500, 249_750.0)
        assert writer.stats().watermark == 1000
        again = [frame.select(F.lit(n), "header.offset") for n, (frame, _) in enumerate(planned)]
        found = sorted(map(tuple, reduce(lambda a, b: a.union(b), again).collect()))
        assert found == [(n, offset) for n, (_, total) in enumerate(planned) for offset in range(total)]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Place(hg.Event, name="place"):
    lat: float
    name: str | None = None


class Sample(hg.Event, name="sample", key="id"):
    id: int
    small: hg.i8
    large: hg.u64
    single: hg.f32
    ratio: float | None
    text: str | None
    data: bytes
    flag: bool
    at: datetime
    colour: Colour
    place: Place | None
    items: list[int]
    grid: NDArray[np.float64]


NUMBERS = (0.0, -0.0, 1.5, -1e300, 5e-324, math.inf, -math.inf, math.nan, None)
TEXTS = ("", "north", "NORTH", "ünïcode 𝄞", "100%", "a_b", None)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sample(n: int) -> Sample:
    return Sample(
        id=(0, 1, -1, 2**63 - 1, -(2**63))[n % 5] if n % 4 == 0 else n,
        small=(-128, 127, 0)[n % 3],
        large=(0, 2**63, 2**64 - 1, 7)[n % 4],
        single=(0.1, math.nan, 1e30)[n % 3],
        ratio=NUMBERS[n % len(NUMBERS)],
        text=TEXTS[n % len(TEXTS)],
        data=bytes([n % 256]) * (n % 3),
        flag=n % 2 == 0,
        at=EPOCH + timedelta(days=n * 37 - 2000, microseconds=n),
        colour=(Colour.RED, Colour.GREEN)[n % 2],
        place=None if n % 5 == 0 else Place(n / 7, TEXTS[(n + 2) % len(TEXTS)]),
        items=list(range(n % 4)),
        grid=np.arange(6.0).reshape(2, 3) * n,
    )


FILTERS: list[tuple[str, Any]] = [
    ("id > 5 AND small < 0", None),
    ("id + 1 > 0", None),
    ("ratio > 1", None),
    ("NOT (ratio > 1)", None),
    ("ratio = :nan OR ratio IS NULL", {"nan": math.nan}),
    ("ratio / small >= 0", None),
    ("single = 0.1 OR single > 1e20", None),
    ("large >= 9223372036854775808", None),
    ("text LIKE 'nor%' OR upper(text) = 'NORTH'", None),
    ("text <> %0", ["ünïcode 𝄞"]),
    ("at BETWEEN :a AND :b", {"a": EPOCH, "b": EPOCH + timedelta(days=365)}),
    ("colour = 'red' AND flag", None),
    ("place.name IS NOT NULL AND place.lat < 10", None),
    ("length(items) = 2 AND items[1] = 1", None),
    ("grid[1, 2] > 100", None),
    ("data = :bytes", {"bytes": b"\x10"}),
    ("CASE WHEN flag THEN ratio ELSE 1 END > 0", None),
    ("header.offset % 7 = 3 AND header.priority = 3 AND header.user['n'] LIKE '%1'", None),
    ("header.source_ts < :t", {"t": datetime.fromtimestamp(FIRST_TIME / SECOND, UTC)}),
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 events: 200 sealed, 100 in a head."""
    folder = tmp_path_factory.mktemp("samples")
    with hg.Station(folder) as station:
        channel = station.channel("samples", Sample, qos=PERSISTENT)
        for n in range(300):
            channel.push(sample(n), headers={"n": str(n)}, source_ts=FIRST_TIME + (n - 100) * SECOND - 1)
            if n == 199:
                channel._journal.store._writer.seal()  # type: ignore[union-attr]  # as above
    return folder


def test_filters_answer_as_a_consumer_does(spark: SparkSession, samples: Path) -> None:
    with hg.Station(samples) as station:
        channel = station.channel("samples", Sample, qos=PERSISTENT)
        expected = {}
        for where, params in FILTERS:
            with channel.consumer(where=where, params=params, start="earliest", until="now") as consumer:
                expected[where] = [delivery.header.offset for delivery in consumer.deliveries()]
    counts = {len(passed) for passed in expected.values()}
    assert 0 not in counts, "a filter that nothing passes shows nothing"
    assert 300 not in counts, "nor does one that all pass"
    assert filtered(spark, samples, "samples", FILTERS, Sample) == expected


def filtered(
    spark: SparkSession, folder: Path, channel: str, filters: list[tuple[str, Any]], cls: type[hg.Event]
) -> dict[str, list[int]]:
    """The offsets that pass each filter: of what is sealed through `where`, of the head as columns.

    So it takes two jobs for all filters, and the first lets Spark skip what it thinks it can.
    """
    head = heliograph.spark.read(spark, folder, channel, start=200)
    fmt = {"only": [hg.format_of(cls)]}
    conditions = [f"({filter_sql(parsed(where, params), fmt)}) IS TRUE" for where, params in filters]
    of_head = head.selectExpr("header.offset", *conditions).collect()
    frames = [
        heliograph.spark.read(spark, folder, channel, where=where, params=params, until=200).select(
            F.lit(where), "header.offset"
        )
        for where, params in filters
    ]
    found: dict[str, list[int]] = {where: [] for where, _ in filters}
    for where, offset in reduce(lambda a, b: a.union(b), frames).collect():
        found[where].append(offset)
    for offset, *passed in of_head:
        for (where, _), passes in zip(filters, passed, strict=True):
            found[where] += [offset] * passes
    return {where: sorted(passed) for where, passed in found.items()}


class Reading(hg.Event, name="reading"):
    double: float
    single: hg.f32
    place: Place


def test_statistics_of_sealed_files_hide_no_nan(spark: SparkSession, tmp_path: Path) -> None:
    filters = [
        (comparison, {"nan": math.nan} if ":nan" in comparison else None)
        for name in ("double", "single", "place.lat")
        for comparison in (f"{name} > 5", f"NOT ({name} <= 5)", f"{name} = :nan", f"{name} IN (7, :nan)")
    ]
    with Keeper(tmp_path) as keeper:
        keeper.push(*(Reading(x, x, Place(x)) for x in (1.0, math.nan, 2.0)))
        keeper.seal()
        found = filtered(spark, tmp_path, "air.tracks", filters, Reading)
        without_us = spark.read.parquet(str(keeper.place / "sealed"))
        pushed = [row["_offset"] for row in without_us.filter("double > 5 AND place.lat > 5").collect()]
    assert found == {where: [1] for where, _ in filters}
    assert pushed == [1], "whoever reads the files without us finds it too"


def test_values_arrive_unchanged_from_sealed_files_and_from_the_head(
    spark: SparkSession, samples: Path
) -> None:
    frame = heliograph.spark.read(spark, samples, "samples")
    found = [{**row, "data": bytes(row["data"])} for row in events(frame)]
    assert [repr(row) for row in found] == [repr(as_spark_gives_it(sample(n))) for n in range(300)]


def as_spark_gives_it(event: Sample) -> dict[str, Any]:
    from decimal import Decimal

    return {
        **event.to_dict(),
        "large": Decimal(event.large),
        "single": float(np.float32(event.single)),
        "at": event.at.astimezone().replace(tzinfo=None),
        "grid": {"shape": [2, 3], "data": event.grid.ravel().tolist()},
    }


def test_a_filter_can_be_built_in_python(spark: SparkSession, samples: Path) -> None:
    read = heliograph.spark.read
    text = read(spark, samples, "samples", where="small > 0", until=50)
    built = read(spark, samples, "samples", where=hg.col("small") > hg.param("x"), params={"x": 0}, until=50)
    assert offsets(built) == offsets(text) == [n for n in range(50) if n % 3 == 1]


def test_a_wrong_filter_is_refused_before_spark_runs(spark: SparkSession, samples: Path) -> None:
    for where in ("speed >", "sped > 3", "text > 3", "id"):
        with pytest.raises(ExpressionError):
            heliograph.spark.read(spark, samples, "samples", where=where)
    with pytest.raises(NotPossible, match="'typed' and 'envelope' are possible"):
        heliograph.spark.read(spark, samples, "samples", columns="raw")  # type: ignore[arg-type]  # on purpose


class Old(hg.Event, name="thing", key="id"):
    id: hg.i32
    gone: str
    place: Place | None
    places: list[Place]
    level: hg.u8 = 0


class FarPlace(hg.Event, name="place"):
    height: float
    name: str | None
    lat: float


class New(hg.Event, name="thing", key="id"):
    id: int
    place: FarPlace | None
    places: list[FarPlace]
    level: hg.f64 = 0.0
    extra: list[hg.u32] | None = None


def test_versions_of_a_class_share_columns(spark: SparkSession, tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Old(1, "g", Place(1.5, "a"), [Place(2.5)], 200), Old(2, "h", None, []))
        keeper.seal()
        keeper.push(New(2**40, FarPlace(9.0, None, 3.5), [], 0.5, [1]))
        keeper.seal()
        keeper.push(Old(3, "i", Place(4.5, "b"), []))
        frame = heliograph.spark.read(spark, tmp_path, "air.tracks")
        found = events(frame)

    def far(lat: float, name: str | None, height: float | None = None) -> dict[str, Any]:
        return {"lat": lat, "name": name, "height": height}

    expected = [
        (1, "g", far(1.5, "a"), [far(2.5, None)], 200.0, None),
        (2, "h", None, [], 0.0, None),
        (2**40, None, far(3.5, None, 9.0), [], 0.5, [1]),
        (3, "i", far(4.5, "b"), [], 0.0, None),
    ]
    names = ("id", "gone", "place", "places", "level", "extra")
    assert [tuple(row[name] for name in names) for row in found] == expected
    assert "PythonScan" not in plan_of(heliograph.spark.read(spark, tmp_path, "air.tracks", until=3))


def plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().toString()
    return plan.replace("BatchScan heliograph_ranges", "PythonScan")


class Alarm(hg.Event, name="air.alarm"):
    id: str
    level: int


class Weather(hg.Event, name="weather"):
    wind: float
    speed: hg.f32 = 0.0


def test_types_of_one_channel_are_told_apart_by_the_header(spark: SparkSession, tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1, 10.0), Weather(2.0, 20.0))
        keeper.seal()
        keeper.push(Track(2, 30.0), Weather(3.0))

        def read(**options: Any) -> DataFrame:
            return heliograph.spark.read(spark, tmp_path, "air.tracks", **options)

        assert events(read()) == [
            {"id": 1, "speed": 10.0, "wind": None},
            {"id": None, "speed": 20.0, "wind": 2.0},
            {"id": 2, "speed": 30.0, "wind": None},
            {"id": None, "speed": 0.0, "wind": 3.0},
        ]
        assert offsets(read(where="speed > 15")) == [1, 2]
        assert offsets(read(where="id > 0 AND speed > 15")) == [2], "as in the channel, for tracks only"
        assert offsets(read(where="header.type = 'weather'")) == [1, 3]
        assert offsets(read(types=Weather)) == [1, 3]
        assert read(types=["weather"]).columns == ["header", "wind", "speed"]
        with pytest.raises(ExpressionError, match="id"):
            read(types=Weather, where="id > 0")


def test_types_that_do_not_go_together_are_read_one_by_one_or_as_envelopes(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Keeper(tmp_path) as keeper:
        for n in range(2):
            keeper.push(Track(n, 10.0), Alarm(f"a{n}", n))
            if n == 0:
                keeper.seal()

        def read(**options: Any) -> DataFrame:
            return heliograph.spark.read(spark, tmp_path, "air.tracks", **options)

        with pytest.raises(FormatError, match=r"choose some of air.alarm, air.track with types="):
            read()
        assert events(read(types="air.alarm")) == [{"id": "a0", "level": 0}, {"id": "a1", "level": 1}]
        assert events(read(types=[Track], where="speed = 10")) == [{"id": n, "speed": 10.0} for n in (0, 1)]
        assert "PythonScan" not in plan_of(read(types=Track, until=2))
        envelopes = read(columns="envelope", where="header.offset < 3")
        assert [row["body"] for row in events(envelopes)] == [
            msgspec.msgpack.encode(body) for body in ([0, 10.0], ["a0", 0], [1, 10.0])
        ]
        assert events(envelopes)[0]["format_id"] == hg.format_of(Track).id
        with pytest.raises(ExpressionError):
            read(columns="envelope", where="id > 0")


def test_what_only_our_own_code_can_convert_is_read_by_it(spark: SparkSession, tmp_path: Path) -> None:
    class Plain(hg.Event, name="note"):
        what: str

    class Free(hg.Event, name="note"):
        what: hg.Any

    with Keeper(tmp_path) as keeper:
        keeper.push(Plain("x"))
        keeper.seal()
        keeper.push(Free({"a": 1}))
        keeper.seal()
        frame = heliograph.spark.read(spark, tmp_path, "air.tracks")
        assert [row["what"] for row in events(frame)] == ['"x"', '{"a":1}']


def test_all_partitions_are_read_and_names_need_not_be_plain(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a [b]{c}*? 100%25 é=1"
    name = "_wéird 100%.tracks"
    with Keeper(folder, name, "p1") as one, Keeper(folder, name, "p2") as two:
        one.push(Track(1), Track(2), Track(3))
        one.seal()
        two.push(Track(4), Track(5))
        two.seal()
        two.push(Track(6))
        frame = heliograph.spark.read(spark, folder, name, start={"p1": 1, "p2": 1}, until={"p1": 2, "p2": 9})
        rows = frame.select("header.channel", "header.partition", "header.offset", "id").collect()
    assert sorted(map(tuple, rows)) == [(name, "p1", 1, 2), (name, "p2", 1, 5), (name, "p2", 2, 6)]


def test_a_channel_without_events_has_no_rows_and_the_columns_that_are_known(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Keeper(tmp_path):
        empty = heliograph.spark.read(spark, tmp_path, "air.tracks")
        assert (empty.count(), empty.columns) == (0, ["header"])
        typed = heliograph.spark.read(spark, tmp_path, "air.tracks", types=Track, where="speed > 3")
        assert (typed.count(), typed.columns) == (0, ["header", "id", "speed"])


def test_columns_that_spark_cannot_tell_apart_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    class Clash(hg.Event, name="clash"):
        Header: int
        a: int
        A: int

    with Keeper(tmp_path) as keeper:
        keeper.push(Clash(1, 2, 3))
        keeper.seal()
        with pytest.raises(NotPossible, match=r"'Header' clashes .* set spark.sql.caseSensitive to true"):
            heliograph.spark.read(spark, tmp_path, "air.tracks")
        spark.conf.set("spark.sql.caseSensitive", "true")
        try:
            frame = heliograph.spark.read(spark, tmp_path, "air.tracks", where="a < A")
            assert events(frame) == [{"Header": 1, "a": 2, "A": 3}]
        finally:
            spark.conf.unset("spark.sql.caseSensitive")


def last_byte_of(parquet: bytes, column: str) -> int:
    """Where the last page of a column ends."""
    group = pq.read_metadata(io.BytesIO(parquet)).row_group(0)
    chunks = (group.column(n) for n in range(group.num_columns))
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema == column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return int(start + chunk.total_compressed_size - 1)


def test_rows_that_cannot_be_read_fail_the_job_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(*(Track(n, n * 1.5) for n in range(100)))
        (sealed,) = keeper.seal()
        frame = heliograph.spark.read(spark, tmp_path, "air.tracks")
        good = sealed.read_bytes()
        spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
        spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
        try:
            sealed.unlink()
            with pytest.raises(Exception, match=sealed.name):
                frame.select("speed").collect()
            bad = bytearray(good)
            bad[last_byte_of(good, "speed")] ^= 1
            sealed.write_bytes(bad)
            with pytest.raises(Exception, match="could not verify page integrity"):
                frame.collect()
            with pytest.raises(HistoryDamaged) as damaged, heliograph.spark.naming_loss():
                frame.collect()
            assert (damaged.value.first, damaged.value.next_available) == (0, 100)
            sealed.write_bytes(good)
            assert frame.count() == 100
        finally:
            spark.conf.unset("spark.sql.files.ignoreMissingFiles")
            spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_selected_columns_are_those_of_a_derived_channel(spark: SparkSession, tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.push_many([Track(n, float(n - 5)) for n in range(20)])
        columns = "id, speed * :k AS fast, 10 / speed AS ratio, header.offset AS place"
        wanted: Any = {"where": "id >= :least", "params": {"k": 2, "least": 3}}
        frame = heliograph.spark.read(spark, tmp_path, "air.tracks", select=columns, **wanted)
        with tracks.derive(columns, **wanted).consumer(start="earliest", until="now") as consumer:
            derived = [event.to_dict() for event in consumer]
        assert [row.asDict() for row in frame.orderBy("place").collect()] == derived
        assert sum(row["ratio"] is None for row in derived) == 1
        with pytest.raises(NotPossible, match="leave out columns='envelope'"):
            heliograph.spark.read(spark, tmp_path, "air.tracks", select="id", columns="envelope")
