"""`jobs.replay`: Spark selects and sorts, a station paces, and nothing is pushed twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark
from heliograph.errors import InvalidOption, NotPossible
from heliograph.spark import jobs
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    tags: list[str]


def received(channel: hg.Channel[Track]) -> list[Any]:
    # One priority for all: a queue would hand the urgent ones out first.
    with channel.consumer(start="earliest", until="now", priority=3) as consumer:
        return list(consumer.deliveries())


def test_rows_of_a_frame_are_pushed_in_the_order_of_their_source_times_and_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        for n in range(60):
            said = {"priority": 1 + n % 5, "correlation_id": f"c{n}", "headers": {"n": str(n)}}
            keeper.append(
                keeper.record(Track(n, float(n), [str(n)]), source_ts=FIRST_TIME - n * SECOND // 1000, **said)
            )
    frame = heliograph.spark.read(spark, tmp_path / "data", "air.tracks").filter("id % 2 = 0").limit(20)
    with hg.Station(tmp_path / "data") as station:
        again = station.channel("again.tracks", Track, qos=PERSISTENT)
        first = jobs.replay(frame, station, again, name="some.load", speed=1.0)
        second = jobs.replay(frame, station, again, name="some.load", speed=None)
        found = received(again)
    assert (first.events, second.events) == (20, 0)
    assert [one.event for one in found] == [Track(n, float(n), [str(n)]) for n in range(38, -1, -2)]
    for one in found:
        n = one.event.id
        assert one.header.source_ts == FIRST_TIME - n * SECOND // 1000
        assert (one.header.priority, one.header.correlation_id) == (1 + n % 5, f"c{n}")
        assert one.header.headers["n"] == str(n)


def test_what_cannot_be_replayed_is_refused_before_spark_does_anything(tmp_path: Path) -> None:
    nothing: Any = None  # whoever looks at the frame fails
    with hg.Station(tmp_path / "data") as station, hg.Station() as without:
        again = station.channel("again", Track, qos=PERSISTENT)
        volatile = station.channel("volatile", Track)
        with pytest.raises(NotPossible, match="durability='persistent'"):
            jobs.replay(nothing, station, volatile, name="x")
        with pytest.raises(NotPossible, match="rows are kept before"):
            jobs.replay(nothing, without, without.channel("a", Track), name="x")
        with pytest.raises(InvalidOption, match="a number from"):
            jobs.replay(nothing, station, again, name="x", speed=0)
        with pytest.raises(InvalidOption, match="letters, digits"):
            jobs.replay(nothing, station, again, name="a b")
        with pytest.raises(InvalidOption, match=r"air\.track"):
            jobs.replay(nothing, station, again, name="x", type="air.truck")
