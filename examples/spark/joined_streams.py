"""A stream-stream join with watermarks: each alert beside the tracks of its aircraft in the minute before it.

    python examples/spark/joined_streams.py

Two channels become one table. The watermarks say how late an event may be, so that Spark can forget tracks
that no alert can ask for any more.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use

import heliograph as hg
import heliograph.spark

START = datetime(2026, 11, 18, 10, tzinfo=UTC)
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="flight"):
    flight: str
    at: datetime
    altitude: float


class Alert(hg.Event, name="air.alert"):
    flight: str
    at: datetime
    text: str


def push(folder: Path) -> None:
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        alerts = station.channel("air.alerts", Alert, qos=PERSISTENT)
        for second in range(0, 300, 10):
            at = START + timedelta(seconds=second)
            tracks.push_many([Track(flight, at, 10_000.0 - second) for flight in ("BA7", "LH4")])
        alerts.push(Alert("LH4", START + timedelta(seconds=125), "descends"))
        alerts.push(Alert("BA7", START + timedelta(seconds=45), "descends"))


def channel(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    options = {"path": str(folder), "channel": name, "startingOffsets": "earliest"}
    return spark.readStream.format("heliograph").options(**options).load()


def main(spark: SparkSession, folder: Path) -> list[tuple[str, int, float]]:
    push(folder / "data")
    tracks = channel(spark, folder / "data", "air.tracks").withWatermark("at", "30 seconds").alias("track")
    alerts = channel(spark, folder / "data", "air.alerts").withWatermark("at", "30 seconds").alias("alert")
    beside = F.expr(
        "track.flight = alert.flight AND track.at <= alert.at AND track.at > alert.at - INTERVAL 1 MINUTE"
    )
    joined = alerts.join(tracks, beside).select("alert.flight", "alert.text", "track.altitude")
    query = (
        joined.writeStream.format("parquet")
        .options(path=str(folder / "joined"), checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.parquet(str(folder / "joined")).groupBy("flight")
    rows = found.agg(F.count("*").alias("tracks"), F.min("altitude").alias("lowest")).collect()
    return sorted((row.flight, row.tracks, row.lowest) for row in rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for flight, count, lowest in main(heliograph.spark.session(), Path(place)):
            sys.stdout.write(
                f"{flight}: {count} tracks in the minute before the alert, down to {lowest:.0f} m\n"
            )
