"""From a channel through Spark back into a channel: how many tracks each region has per second, as events.

.venv/bin/python examples/loads.py

The tracks go into one channel; a Spark stream groups them into windows of their own time; what it finds goes,
each batch exactly once, into a second channel, where a subscriber receives it like anything that was pushed.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import heliograph as hg
import heliograph.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 5
FIRST = datetime(2026, 11, 5, 10, tzinfo=UTC)


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    region: str


class Load(hg.Event, name="air.load"):
    region: str | None
    start: datetime | None
    tracks: int | None
    fastest: float | None


def fly(tracks: hg.Channel[Track]) -> None:
    """Forty tracks a second; the last second is only there to close the one before."""
    begin = round(FIRST.timestamp()) * 1_000_000_000
    for n in range(40 * (SECONDS + 2)):
        region = "north" if n % 4 else "south"
        tracks.push(Track(n, float(n), region), source_ts=begin + n * 25_000_000)


def count(spark: SparkSession, folder: Path) -> None:
    """The Spark part: windows over the time at the source, and back into the folder."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the name that all of Spark's documents use

    tracks = (
        spark.readStream.format("heliograph")
        .option("path", str(folder))
        .option("channel", "air.tracks")
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("time", F.col("header.source_ts"))
    )
    loads = (
        tracks.withWatermark("time", "1 second")
        .groupBy(F.window("time", "1 second").alias("window"), "region")
        .agg(F.count("*").alias("tracks"), F.max("speed").alias("fastest"))
        .select("region", F.col("window.start").alias("start"), "tracks", "fastest")
    )
    query = (
        loads.writeStream.format("heliograph")
        .option("path", str(folder))
        .option("channel", "air.loads")
        .option("create", "true")
        .option("type", "air.load")
        .option("writerId", "loads")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    persistent = hg.QoS(durability="persistent")
    with tempfile.TemporaryDirectory() as name, hg.Station(Path(name)) as station:
        tracks = station.channel("air.tracks", Track, qos=persistent)
        loads = station.channel("air.loads", Load, qos=persistent)
        received: list[Load] = []
        complete = Event()

        @loads.subscribe
        def show(load: Load) -> None:
            received.append(load)
            print(f"{load.start:%H:%M:%S}  {load.region}  {load.tracks:3} tracks, fastest {load.fastest}")
            if len(received) == 2 * SECONDS:
                complete.set()

        fly(tracks)
        spark = heliograph.spark.session(
            app="loads", master="local[2]", config={"spark.sql.shuffle.partitions": 1}
        )
        try:
            count(spark, Path(name))
        finally:
            spark.stop()
        if not complete.wait(30.0):
            raise SystemExit(f"only {len(received)} of {2 * SECONDS} loads came")
        print(f"{sum(load.tracks or 0 for load in received)} tracks in {len(received)} loads")


if __name__ == "__main__":
    main()
