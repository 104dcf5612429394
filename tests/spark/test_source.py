"""`format("heliograph")` in a real Spark, as batch and as stream: each durable event once, and no other."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use

import heliograph as hg
import heliograph.spark
from heliograph import journal
from heliograph.errors import NotPossible
from tests.e2e.link_support import wait_until
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class WiderTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str = "unknown"


class Alarm(hg.Event, name="air.alarm"):
    level: int


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """A hundred events sealed, a hundred in the head."""
    with Keeper(tmp_path / "data") as kept:
        kept.push(*(Track(n, n * 0.5) for n in range(100)), headers={"unit": "kt"})
        kept.seal()
        kept.push(*(Track(n, n * 0.5) for n in range(100, 200)))
        yield kept


def batch(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    said = {"path": str(folder / "data"), "channel": "air.tracks", **options}
    return spark.read.format("heliograph").options(**said).load()


def stream(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    said = {"path": str(folder / "data"), "channel": "air.tracks", "startingOffsets": "earliest", **options}
    return spark.readStream.format("heliograph").options(**said).load()


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("id").collect())


def run(frame: DataFrame, folder: Path, seen: list[list[int]], **trigger: Any) -> StreamingQuery:
    """Start a query that notes the ids of each batch."""
    noted = frame.writeStream.foreachBatch(lambda rows, _: seen.append(ids(rows)))
    checkpoint = str(folder / "checkpoint")
    return noted.option("checkpointLocation", checkpoint).trigger(**trigger or {"availableNow": True}).start()


def finished(query: StreamingQuery) -> None:
    assert query.awaitTermination(120)


def test_a_batch_read_gives_each_event_once(spark: SparkSession, keeper: Keeper, tmp_path: Path) -> None:
    assert ids(batch(spark, tmp_path)) == list(range(200))
    assert ids(batch(spark, tmp_path, filter="speed < :most", params='{"most": 2}')) == [0, 1, 2, 3]
    assert ids(batch(spark, tmp_path).filter("id >= 98 AND speed < 51")) == [98, 99, 100, 101]
    cut = {"startingOffsets": '{"air.tracks": {"p1": 90}}', "endingOffsets": '{"air.tracks": {"p1": 110}}'}
    assert ids(batch(spark, tmp_path, **cut)) == list(range(90, 110))
    envelopes = batch(spark, tmp_path, mode="envelope", includeHeaders="true")
    assert envelopes.columns == ["header", "kind", "format_id", "body", "key"]
    assert envelopes.filter(F.col("header.user")["unit"] == "kt").count() == 100


def test_sql_reads_a_channel_as_a_view(spark: SparkSession, keeper: Keeper, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW tracks USING heliograph "
        f"OPTIONS (path '{tmp_path / 'data'}', channel 'air.tracks')"
    )
    assert spark.sql("SELECT count(*) FROM tracks WHERE id % 2 = 0").collect()[0][0] == 100


@pytest.mark.parametrize("by", ["format", "read"])
def test_a_frame_that_is_used_twice_with_different_predicates_gives_each_use_its_own_rows(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, by: str
) -> None:
    data = tmp_path / "data"
    frame = batch(spark, tmp_path) if by == "format" else heliograph.spark.read(spark, data, "air.tracks")
    few, many = frame.filter("id < 10"), frame.filter("id >= 150")
    assert (few.count(), frame.count(), many.count(), few.count()) == (10, 200, 50, 10)
    assert ids(few.union(frame)) == sorted([*range(10), *range(200)])
    assert ids(few.union(many)) == [*range(10), *range(150, 200)]
    assert ids(frame.join(few.select("id"), "id", "left_anti")) == list(range(10, 200))
    named = batch(spark, tmp_path, filter="id % 2 = 0")
    assert ids(named.filter("id < 10").union(named)) == sorted([*range(0, 10, 2), *range(0, 200, 2)])


@pytest.mark.parametrize("made_by", ["sql", "frame"])
def test_views_subqueries_and_ctes_that_are_used_twice_give_each_use_its_own_rows(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, made_by: str
) -> None:
    if made_by == "sql":
        options = f"path '{tmp_path / 'data'}', channel 'air.tracks'"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW twice USING heliograph OPTIONS ({options})")
    else:
        batch(spark, tmp_path).createOrReplaceTempView("twice")

    def counted(query: str) -> int:
        return int(spark.sql(query).collect()[0][0])

    assert counted("SELECT count(*) FROM twice WHERE id < 10") == 10
    assert counted("SELECT count(*) FROM twice") == 200
    both = "SELECT id FROM {0} WHERE id < 10 UNION ALL SELECT id FROM {0} WHERE id > 10"
    assert counted(f"SELECT count(*) FROM ({both.format('twice')})") == 199
    assert counted(f"WITH t AS (SELECT * FROM twice) SELECT count(*) FROM ({both.format('t')})") == 199
    rest = "SELECT count(*) FROM twice WHERE id NOT IN (SELECT id FROM twice WHERE id < 10)"
    assert counted(rest) == 190
    share = "SELECT (SELECT count(*) FROM twice WHERE id < 10) + (SELECT count(*) FROM twice)"
    assert counted(share) == 210


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_what_is_in_a_frame_is_fixed_when_it_is_loaded_and_with_a_schema_at_its_first_use(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, pushdown: str
) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    before = str(spark.conf.get(setting, "false"))
    spark.conf.set(setting, pushdown)
    try:
        reader = spark.read.format("heliograph").options(path=str(tmp_path / "data"), channel="air.tracks")
        inferred, explicit = reader.load(), reader.schema("id BIGINT").load()
        keeper.push(Track(200))  # Spark makes the source of a frame with a schema only when that is used
        for event in map(Track, (201, 202)):
            assert [inferred.filter("id >= 100").count(), inferred.count()] == [100, 200]
            assert [explicit.filter("id >= 100").count(), explicit.count()] == [101, 201]
            keeper.push(event)
            keeper.seal()
        assert batch(spark, tmp_path).count() == 203
    finally:
        spark.conf.set(setting, before)


def test_batches_of_a_stream_have_the_size_that_was_asked_for_and_end(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    seen: list[list[int]] = []
    frame = stream(spark, tmp_path, maxEventsPerTrigger=70, filter="id % 2 = 0", consumer="halves")
    finished(run(frame, tmp_path, seen))
    assert [len(one) for one in seen] == [35, 35, 30]
    (place,) = journal.lag(tmp_path / "data", "air.tracks")
    # Spark says that a batch is done when the next one begins, and of the last one not at all.
    assert (place.consumer, place.acknowledged, place.events) == ("halves", 140, 60)
    keeper.push(Track(200), Track(201), Track(202))
    keeper.seal()
    query = run(frame, tmp_path, seen)
    finished(query)
    assert list(chain(*seen)) == list(range(0, 203, 2))
    assert heliograph.spark.lag(query) == (0, 0, 0.0)
    keeper.push(Track(203), Track(204))
    behind = heliograph.spark.lag(query)
    assert behind is not None
    assert behind.events == 2
    assert behind.bytes > 0
    assert behind.seconds > 0
    by_partition = heliograph.spark.lag_by_partition(query)
    assert [(key, one.events) for key, one in by_partition.items()] == [(("air.tracks", "p1"), 2)]


def test_the_progress_of_a_query_has_the_lag_of_each_partition_and_goes_into_a_channel(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    with hg.Station() as station:
        channel = station.channel("spark.progress", heliograph.spark.QueryProgress)
        told: list[heliograph.spark.QueryProgress] = []
        channel.subscribe(told.append)
        listener = heliograph.spark.progress_listener(channel)
        spark.streams.addListener(listener)
        try:
            query = run(stream(spark, tmp_path, maxEventsPerTrigger=70), tmp_path, [])
            finished(query)

            def of_query(kind: str) -> list[heliograph.spark.QueryProgress]:
                return [one for one in told if one.query == str(query.id) and one.kind == kind]

            assert wait_until(lambda: bool(of_query("terminated")), 60.0)
        finally:
            spark.streams.removeListener(listener)
        (started,), (ended,) = of_query("started"), of_query("terminated")
        assert (started.run, ended.run, ended.error) == (str(query.runId), str(query.runId), "")
        batches = of_query("progress")
        assert [(one.batch, one.rows, one.lag_events) for one in batches[:3]] == [
            (0, 70, 130),
            (1, 70, 60),
            (2, 60, 0),
        ]
        (left,) = batches[0].lags
        assert (left.channel, left.partition, left.events) == ("air.tracks", "p1", 130)
        assert left.bytes == batches[0].lag_bytes > 0
        assert left.seconds == batches[0].lag_seconds > 0
        assert (batches[2].lag_bytes, batches[2].lag_seconds) == (0, 0.0)
    progress: Any = query.recentProgress[0]
    latest = msgspec.json.decode(progress.sources[0].latestOffset)
    assert latest["lag"]["air.tracks"]["p1"]["events"] == 130


def test_a_running_stream_sees_what_is_appended_and_sealed(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    seen: list[list[int]] = []
    query = run(stream(spark, tmp_path), tmp_path, seen, processingTime="0 seconds")
    try:
        for n in range(200, 206):
            keeper.push(Track(n))
            if n % 2:
                keeper.seal()
            query.processAllAvailable()
    finally:
        query.stop()
    assert list(chain(*seen)) == list(range(206))


def test_windows_by_event_time_equal_a_plain_reference(spark: SparkSession, tmp_path: Path) -> None:
    """Events up to 15 seconds out of order are counted in their window, those minutes late are not."""
    chance = random.Random(12)
    times = [n + chance.randrange(15) for n in range(400)]
    late = {n: times[n] - 250 for n in range(300, 400, 20)}
    with Keeper(tmp_path / "data") as kept:
        kept.push(*(Track(late.get(n, times[n])) for n in range(200)))
        kept.seal()
        kept.push(*(Track(late.get(n, times[n])) for n in range(200, 400)))
        counted = (
            stream(spark, tmp_path, maxEventsPerTrigger=50)
            .withColumn("at", F.timestamp_seconds("id"))
            .withWatermark("at", "20 seconds")
            .groupBy(F.window("at", "10 seconds"))
            .count()
            .select(F.unix_timestamp("window.start").alias("start"), "count")
        )
        query = (
            counted.writeStream.format("memory")
            .queryName("windows")
            .outputMode("append")
            .option("checkpointLocation", str(tmp_path / "windows"))
            .trigger(availableNow=True)
            .start()
        )
        finished(query)
    found = {row["start"]: row["count"] for row in spark.table("windows").collect()}
    in_time = [time for n, time in enumerate(times) if n not in late]
    whole = [time // 10 * 10 for time in in_time if time // 10 * 10 + 10 <= max(in_time) - 20]
    assert found == Counter(whole)


def test_several_channels_share_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    with Keeper(tmp_path / "data", "air.tracks") as tracks, Keeper(tmp_path / "data", "air.alarms") as alarms:
        tracks.push(Track(1), Track(2))
        alarms.push(Alarm(7))
        said = {"path": str(tmp_path / "data"), "subscribePattern": r"air\..*"}
        frame = spark.read.format("heliograph").options(**said).load()
        found = sorted(map(tuple, frame.select("header.channel", "header.type", "id", "level").collect()))
        assert found == [
            ("air.alarms", "air.alarm", None, 7),
            ("air.tracks", "air.track", 1, None),
            ("air.tracks", "air.track", 2, None),
        ]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("fail", None), ("ignore", [(300, None)]), ("rescue", [(300, '{"region":"north"}')])],
)
def test_a_class_that_changes_in_mid_query(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, policy: str, expected: Any
) -> None:
    rows: list[tuple[Any, ...]] = []

    def note(frame: DataFrame, _: int) -> None:
        column = F.col("_rescued") if policy == "rescue" else F.lit(None)
        rows.extend(map(tuple, frame.filter("id >= 300").select("id", column).collect()))

    frame = stream(spark, tmp_path, schemaEvolution=policy)
    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        query.processAllAvailable()
        keeper.push(WiderTrack(300, region="north"))
        if expected is None:
            with pytest.raises(Exception, match="region has no column"):
                query.processAllAvailable()
            # Started again it has the new column, and goes on where it was.
            again = stream(spark, tmp_path, schemaEvolution=policy)
            seen: list[list[int]] = []
            finished(run(again.filter("region = 'north'"), tmp_path, seen))
            assert seen == [[300]]
        else:
            query.processAllAvailable()
            assert rows == expected
    finally:
        query.stop()


@pytest.mark.parametrize("strict", [True, False])
def test_retention_that_overtakes_a_stream(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, strict: bool
) -> None:
    seen: list[list[int]] = []
    frame = stream(spark, tmp_path, failOnDataLoss=str(strict).lower(), maxEventsPerTrigger=50)
    query = run(frame, tmp_path, seen, once=True)
    finished(query)
    seen.clear()
    keeper.push(*map(Track, range(200, 300)))
    keeper.seal()
    keeper.push(Track(300))
    keeper.drop_sealed()
    query = run(frame, tmp_path, seen)
    if strict:
        with pytest.raises(Exception, match="retention has removed offsets 200 to 299"):
            query.awaitTermination(120)
        assert seen == []
    else:
        finished(query)
        assert list(chain(*seen)) == [300]


@pytest.mark.parametrize("sealed", [True, False])
def test_spark_counts_the_bad_events_that_are_skipped(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, sealed: bool
) -> None:
    good = keeper.record(Track(200))
    keeper.append(*(msgspec.structs.replace(good, body=b"?", sequence=900 + n) for n in range(3)), good)
    if sealed:
        keeper.seal()
    seen: list[list[int]] = []
    frame = heliograph.spark.skip_bad(stream(spark, tmp_path, badRecords="column"))
    query = run(frame, tmp_path, seen)
    finished(query)
    assert list(chain(*seen)) == list(range(201))
    progress: Any = query.lastProgress
    assert sum(one.observedMetrics["bad_records"].skipped for one in query.recentProgress) == 3, progress
    with pytest.raises(NotPossible, match="badRecords=column"):
        heliograph.spark.skip_bad(batch(spark, tmp_path))


def test_a_wrong_option_is_refused_when_the_frame_is_made(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="did you mean 'channel'"):
        batch(spark, tmp_path, channels="x")
    with pytest.raises(Exception, match="no option 'endingoffsets'; it is for batch reads only"):
        finished(run(stream(spark, tmp_path, endingOffsets="latest"), tmp_path, []))
    with pytest.raises(Exception, match="holds no history of 'sea'"):
        batch(spark, tmp_path, channel="sea")
    with pytest.raises(Exception, match="nothing"):
        batch(spark, tmp_path, filter="nothing > 3")
    with pytest.raises(Exception, match="no field 'nothing'") as refused:
        stream(spark, tmp_path, filter="nothing > 3")
    assert "check.py" not in str(refused.value), "Spark prints the traceback; ours says nothing to a user"
