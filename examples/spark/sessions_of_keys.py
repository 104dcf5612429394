"""transformWithState over a channel: the sessions of each sensor, ended by a silence of a minute.

    python examples/spark/sessions_of_keys.py

State per key, with a timer in event time, in a stream that can be stopped and resumed at any point.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import heliograph as hg
import heliograph.spark

SILENCE_MS = 60_000
START = datetime(2026, 11, 18, 10, tzinfo=UTC)


class Reading(hg.Event, name="plant.reading", key="sensor"):
    sensor: str
    at: datetime
    value: float


class Sessions(StatefulProcessor):
    """Counts the readings of a session; tells them when its silence is over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.session = handle.getValueState("session", "readings long, first timestamp, last timestamp")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        count, first, last = self.session.get() or (0, None, None)
        for at in sorted(time for part in rows for time in part["at"]):
            if last is not None and (at - last).total_seconds() * 1000 > SILENCE_MS:
                yield self.ended(key, count, first, last)
                count, first = 0, None
            count, first, last = count + 1, first or at, at
        self.session.update((count, first, last))
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(int(last.timestamp() * 1000) + SILENCE_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        count, first, last = self.session.get() or (0, START, START)
        self.session.clear()
        yield self.ended(key, count, first, last)

    @staticmethod
    def ended(key: Any, count: int, first: datetime, last: datetime) -> pd.DataFrame:
        seconds = (last - first).total_seconds()
        return pd.DataFrame({"sensor": [key[0]], "readings": [count], "seconds": [seconds]})

    def close(self) -> None: ...


def push(folder: Path) -> None:
    """Two sensors; "a" falls silent for ten minutes in between, and one late reading ends all sessions."""
    with hg.Station(folder) as station:
        readings = station.channel("plant.readings", Reading, qos=hg.QoS(durability="persistent"))
        seconds = {"a": [0, 10, 20, 620, 630], "b": [5, 15, 25, 35]}
        for sensor, times in seconds.items():
            readings.push_many([Reading(sensor, START + timedelta(seconds=at), 1.0) for at in times])
        readings.push(Reading("clock", START + timedelta(hours=1), 0.0))


def main(spark: SparkSession, folder: Path) -> list[tuple[str, int, float]]:
    push(folder / "data")
    readings = (
        spark.readStream.format("heliograph")
        .options(path=str(folder / "data"), channel="plant.readings", startingOffsets="earliest")
        .load()
        .select("sensor", "at")
        .withWatermark("at", "10 seconds")
    )
    sessions = readings.groupBy("sensor").transformWithStateInPandas(
        Sessions(), "sensor string, readings long, seconds double", "Append", "EventTime"
    )
    query = (
        sessions.writeStream.format("parquet")
        .options(path=str(folder / "sessions"), checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.parquet(str(folder / "sessions")).collect()
    return sorted((row.sensor, row.readings, row.seconds) for row in found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for session in main(heliograph.spark.session(), Path(place)):
            sys.stdout.write(f"sensor {session[0]}: {session[1]} readings in {session[2]:.0f} s\n")
