"""Spark reads published segments from a server that speaks S3: no task and no driver sees the folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
import heliograph.spark
from heliograph.errors import InvalidOption
from heliograph.journal.format.folder import partition_folder
from heliograph.journal.published.publisher import SegmentPublisher
from heliograph.runtime.ports import Ports, SystemRandom, ThreadTasks
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

PLACE = partition_folder("air.tracks", "p1")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Published:
    """A channel that is kept here and published there."""

    def __init__(self, keeper: Keeper, url: str) -> None:
        self.keeper = keeper
        self.url = url
        self._publisher = SegmentPublisher(
            Ports(keeper.clock, ThreadTasks(), SystemRandom(), None), hg.Store(url)
        )

    def add(self, ids: range) -> None:
        self.keeper.push(*(Track(n, n * 0.5) for n in ids))
        self.keeper.seal()
        partition = self.keeper.writer._partition
        self._publisher.publish(partition._disk, PLACE, partition.manifest)
        self._publisher.write_domain()


@pytest.fixture
def published(tmp_path: Path, s3: str) -> Iterator[Published]:
    with Keeper(tmp_path / "data") as keeper:
        there = Published(keeper, f"{s3}/{tmp_path.name}")
        there.add(range(100))
        there.add(range(100, 200))
        yield there


def test_batches_read_a_store_as_they_read_a_folder(spark: SparkSession, published: Published) -> None:
    published.keeper.push(Track(999))  # in a head, which is not published
    frame = heliograph.spark.read(spark, published.url, "air.tracks", where="speed >= 25.0")
    assert sorted(row.id for row in frame.select("id").collect()) == list(range(50, 200))
    said = {"path": published.url, "channel": "air.tracks", "filter": "id < 10"}
    loaded = spark.read.format("heliograph").options(**said).load()
    assert sorted(row.id for row in loaded.collect()) == list(range(10))


def test_a_stream_follows_what_is_published(
    spark: SparkSession, published: Published, tmp_path: Path
) -> None:
    said = {"path": published.url, "channel": "air.tracks", "startingOffsets": "earliest"}

    def run() -> list[int]:
        query = (
            spark.readStream.format("heliograph")
            .options(**said)
            .load()
            .select("id")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        lag = heliograph.spark.lag(query)
        assert lag is None or lag.events == 0
        return sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert run() == list(range(200))
    published.add(range(200, 230))
    assert run() == list(range(230))


def test_what_a_store_cannot_do_is_refused_by_name(spark: SparkSession, published: Published) -> None:
    said = {"path": published.url, "channel": "air.tracks"}
    with pytest.raises(Exception, match="in a store nobody notes it"):
        spark.readStream.format("heliograph").options(**said, consumer="totals").load()
    with pytest.raises(Exception, match="there are stores at s3://"):
        spark.read.format("heliograph").options(path="hdfs://a/b", channel="air.tracks").load()
    with pytest.raises(InvalidOption, match="there are stores at s3://"):
        heliograph.spark.read(spark, "hdfs://a/b", "air.tracks")
    frame = spark.createDataFrame([(1, 1.0)], "id long, speed double")
    with pytest.raises(Exception, match="path"):
        frame.write.format("heliograph").options(**said).mode("append").save()


def test_a_store_or_a_folder_is_a_table_of_the_catalog(
    spark: SparkSession, published: Published, tmp_path: Path
) -> None:
    places = {"of_folder": str(tmp_path / "data"), "of_store": published.url}
    try:
        for name, path in places.items():
            spark.sql(
                f"CREATE TABLE {name} USING heliograph "
                f"OPTIONS (path '{path}', channel 'air.tracks', start 'earliest')"
            )
        published.add(range(200, 210))
        for name in places:
            found = spark.sql(f"SELECT count(*) AS n, max(id) AS last FROM {name} WHERE speed >= 50").first()
            assert found is not None
            assert (found.n, found.last) == (110, 209)
        query = (
            spark.readStream.table("of_folder")
            .writeStream.format("memory")
            .queryName("from_table")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert spark.table("from_table").count() == 210
    finally:
        for name in places:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert len(hg.history(tmp_path / "data", "air.tracks").arrow()) == 210  # the history stays


def test_a_table_whose_columns_are_written_out_says_what_to_do(
    spark: SparkSession, published: Published
) -> None:
    spark.sql(
        f"CREATE TABLE written (id BIGINT) USING heliograph "
        f"OPTIONS (path '{published.url}', channel 'air.tracks')"
    )
    try:
        with pytest.raises(Exception, match="leave the columns out"):
            spark.sql("SELECT * FROM written").collect()
    finally:
        spark.sql("DROP TABLE written")
