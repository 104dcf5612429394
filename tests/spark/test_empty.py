"""A channel that was opened and has no events yet: Spark knows its fields, and everything can start there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[hg.Channel[Track]]:
    with hg.Station(tmp_path / "data") as station:
        yield station.channel("air.tracks", Track, qos=PERSISTENT)


def options(folder: Path, **more: str) -> dict[str, str]:
    return {"path": str(folder / "data"), "channel": "air.tracks", **more}


def test_an_empty_channel_has_the_columns_of_its_class(
    spark: SparkSession, opened: hg.Channel[Track], tmp_path: Path
) -> None:
    frames = [
        spark.read.format("heliograph").options(**options(tmp_path, filter="speed > 3")).load(),
        heliograph.spark.read(spark, tmp_path / "data", "air.tracks", where="speed > 3"),
    ]
    for frame in frames:
        assert frame.columns == ["header", "id", "speed"]
        assert frame.filter("id < 5").count() == 0


def test_a_stream_that_starts_before_the_first_event_gets_it(
    spark: SparkSession, opened: hg.Channel[Track], tmp_path: Path
) -> None:
    seen: list[tuple[int, float]] = []

    def note(rows: DataFrame, _: int) -> None:
        seen.extend((row["id"], row["speed"]) for row in rows.collect())

    stream: Any = spark.readStream.format("heliograph").options(**options(tmp_path, filter="id >= 1")).load()
    query = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        for number in range(3):
            opened.push(Track(number, number / 2))
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen == [(1, 0.5), (2, 1.0)]


def test_rows_are_written_into_a_channel_before_its_first_event(
    spark: SparkSession, opened: hg.Channel[Track], tmp_path: Path
) -> None:
    frame = spark.range(3).selectExpr("id", "double(id) as speed")
    with opened.consumer() as consumer:
        frame.write.format("heliograph").mode("append").options(**options(tmp_path)).save()
        assert sorted(event.id for event in consumer.read(max=3, timeout=30.0)) == [0, 1, 2]
