"""`snapshot`: the table is what a dict over all events would be, tombstones included."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.errors import InvalidOption, NoHistory, TableMismatch
from heliograph.spark import jobs
from heliograph.spark.jobs.tables.workplace import Workplace
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Track(hg.Event, name="air.track", key=("id", "site")):
    id: int
    site: str
    speed: float


class LaterTrack(hg.Event, name="air.track", key=("id", "site")):
    id: int
    site: str
    speed: float
    height: float = 0.0


class Plan(hg.Event, name="air.plan", key="id"):
    id: int
    route: list[str]


class Note(hg.Event, name="air.note"):
    text: str


def rows(table: Path, kind: str, spark: SparkSession) -> list[dict[str, Any]]:
    if kind == "parquet":
        return [row.asDict(recursive=True) for row in spark.read.parquet(str(table)).collect()]
    if kind == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(table).to_pyarrow_table().to_pylist())
    from pyiceberg.catalog.sql import SqlCatalog

    with closing(SqlCatalog("heliograph", uri=f"sqlite:///{table}/catalog.db")) as catalog:
        return list(catalog.load_table("heliograph.events").scan().to_arrow().to_pylist())


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_snapshot_is_what_a_dict_over_all_events_is_after_every_run(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    rng = random.Random(kind)
    state: dict[tuple[Any, ...], Any] = {}
    table = tmp_path / "table"
    qos = hg.QoS(durability="persistent", compaction="key")
    for turn in range(3):
        with hg.Station(tmp_path / "data") as station:
            tracks = station.channel("air.tracks", LaterTrack if turn else Track, Plan, qos=qos)
            for n in range(60):
                number, site = rng.randrange(12), rng.choice("ab")
                if rng.random() < 0.2:
                    cls: Any = LaterTrack if turn else Track
                    tracks.forget(number, site, type=cls)
                    state.pop(("air.track", number, site), None)
                elif rng.random() < 0.2:
                    tracks.push(Plan(number, [site, str(n)]))
                    state["air.plan", number] = [site, str(n)]
                elif turn:
                    tracks.push(LaterTrack(number, site, n / 4, n / 2))
                    state["air.track", number, site] = (n / 4, n / 2)
                else:
                    tracks.push(Track(number, site, n / 4))
                    state["air.track", number, site] = (n / 4, None)
        done = jobs.snapshot(spark, tmp_path / "data", "air.tracks", table, format=kind, events_at_once=45)
        found: dict[tuple[Any, ...], Any] = {}
        for row in rows(table, kind, spark):
            if row["header"]["type"] == "air.plan":
                found["air.plan", row["id"]] = row["route"]
            else:
                found["air.track", row["id"], row["site"]] = (row["speed"], row.get("height"))
        assert found == state
        assert (done.keys, done.events, done.left) == (len(state), 60, 0)
    before = {str(path): path.stat().st_mtime_ns for path in table.rglob("*.parquet")}
    again = jobs.snapshot(spark, tmp_path / "data", "air.tracks", table, format=kind)
    assert (again.commits, again.keys) == (0, len(state))
    assert {str(path): path.stat().st_mtime_ns for path in table.rglob("*.parquet")} == before


def test_a_state_in_which_no_key_is_left_is_an_empty_table(tmp_path: Path, spark: SparkSession) -> None:
    with hg.Station(tmp_path / "data") as station:
        qos = hg.QoS(durability="persistent", compaction="key")
        plans = station.channel("air.plans", Plan, qos=qos)
        plans.push(Plan(1, []))
        jobs.snapshot(spark, tmp_path / "data", "air.plans", tmp_path / "table")  # while the station runs
        plans.forget(1)
    done = jobs.snapshot(spark, tmp_path / "data", "air.plans", tmp_path / "table")
    assert (done.keys, list((tmp_path / "table").glob("*.parquet"))) == (0, [])


def test_between_partitions_the_later_event_stays(tmp_path: Path, spark: SparkSession) -> None:
    with Keeper(tmp_path / "data", "air.plans") as one, Keeper(tmp_path / "data", "air.plans", "p2") as two:
        one.clock.now += 5
        one.push(Plan(1, ["later"]))
        two.push(Plan(1, ["earlier"]), Plan(2, ["other"]))
    jobs.snapshot(spark, tmp_path / "data", "air.plans", tmp_path / "table")
    found = {row["id"]: row["route"] for row in rows(tmp_path / "table", "parquet", spark)}
    assert found == {1: ["later"], 2: ["other"]}


def test_events_without_a_key_and_tables_of_others_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    with Keeper(tmp_path / "data", "notes") as keeper:
        keeper.push(Note("hello"))
    with pytest.raises(InvalidOption, match=r"air\.note has none"):
        jobs.SnapshotJob(folder=tmp_path / "data", channel="notes", to=tmp_path / "table")
    with Keeper(tmp_path / "data", "air.plans") as keeper:
        keeper.push(Plan(1, []))
    with Workplace.locked(tmp_path / "table") as place:
        state = {"layout": 1, "version": 1, "columns": "", "positions": {"x": {}}, "files": []}
        (place.own / "table.json").write_bytes(msgspec.json.encode(state))
    with pytest.raises(TableMismatch, match="it holds events of x"):
        jobs.snapshot(spark, tmp_path / "data", "air.plans", tmp_path / "table")


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_station_serves_the_table_to_who_joins_late_and_the_history_goes_on_from_its_positions(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    qos = hg.QoS(durability="persistent", compaction="key")
    table = tmp_path / "table"
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, Plan, qos=qos)
        for n in range(40):
            tracks.push(Track(n % 8, "a", n / 4))
        tracks.push(Plan(1, ["x", "y"]))
        tracks.forget(3, "a", type=Track)
        jobs.snapshot(spark, tmp_path / "data", "air.tracks", table, format=kind)
        tracks.push(Track(1, "a", 99.0))
    held = jobs.load_snapshot(table, LaterTrack, Plan)  # a later version: its new field has its default
    expected = {n % 8: LaterTrack(n % 8, "a", n / 4, 0.0) for n in range(40)}
    del expected[3]
    assert {event.id: event for event in held.events if isinstance(event, LaterTrack)} == expected
    assert [event for event in held.events if isinstance(event, Plan)] == [Plan(1, ["x", "y"])]
    with hg.Station(tmp_path / "data") as station:
        again = station.channel("air.tracks", Track, Plan, qos=qos)
        with again.consumer(start=held.positions, until="now") as rest:
            assert list(rest) == [Track(1, "a", 99.0)]
    with hg.Station() as station:
        late = station.channel("air.tracks", LaterTrack, Plan)
        late.state(lambda: jobs.load_snapshot(table, LaterTrack, Plan).events)
        served = late.fetch_state(10.0)
    assert sorted(map(repr, served)) == sorted(map(repr, held.events))


def test_what_is_no_snapshot_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(NoHistory):
        jobs.load_snapshot(tmp_path / "none", Track)
    with pytest.raises(TableMismatch, match="no class is named"):
        jobs.load_snapshot(tmp_path / "none")
    with Workplace.locked(tmp_path / "table") as place:
        state = {"layout": 1, "version": 1, "columns": "", "positions": {}, "files": [], "moves": []}
        (place.own / "table.json").write_bytes(msgspec.json.encode(state))
    with pytest.raises(TableMismatch, match="it is no snapshot"):
        jobs.load_snapshot(tmp_path / "table", Track)
