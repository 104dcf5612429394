"""Spark Declarative Pipelines over a channel: a whole run of Spark's own command in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.dataset as ds

import heliograph as hg
from heliograph.spark.declarative.project import write_project
from heliograph.spark.declarative.runner import run_project

if TYPE_CHECKING:
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float


def push(data: Path, ids: range) -> None:
    with hg.Station(data) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(id=n, speed=n * 10.0) for n in ids])


class Unexpected(hg.Event, name="air.tracks.quarantine"):
    id: int | None
    speed: float | None


def quarantined(data: Path) -> list[int | None]:
    with hg.Station(data) as station:
        channel = station.channel("air.tracks.quarantine", Unexpected, qos=hg.QoS(durability="persistent"))
        with channel.consumer(start="earliest", until="now") as consumer:
            return [event.id for event in consumer]


def test_a_channel_feeds_tables_and_what_is_unexpected_goes_into_another_channel(tmp_path: Path) -> None:
    """A second run goes on where the first ended: no row and no event comes twice."""
    data = tmp_path / "data"
    push(data, range(100))
    project = write_project(tmp_path / "air", data, "air.tracks", expect="speed BETWEEN 0 AND 900")
    assert run_project(project.folder) == 0
    push(data, range(100, 110))
    push(data, range(10))
    assert run_project(project.folder) == 0

    table = ds.dataset(project.folder / "tables" / "air_tracks", format="parquet").to_table(["id", "speed"])
    assert sorted(table["id"].to_pylist()) == sorted([*range(91), *range(10)])
    minutes = ds.dataset(project.folder / "tables" / "air_tracks_by_minute", format="parquet").to_table()
    assert sum(minutes["events"].to_pylist()) == 101
    assert quarantined(data) == [*range(91, 110)]
