"""`cutouts`: what is around triggers is in the table once, however many runs it took."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.cli import run
from heliograph.errors import ExpressionError, InvalidOption, NotPossible, TableMismatch
from heliograph.spark import jobs
from heliograph.spark.jobs.cutouts import CutOutJob
from tests.support import examples
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float


class Storm(hg.Event, name="air.storm", key="id"):
    id: int


def rows(spark: SparkSession, table: Path) -> dict[int, int | None]:
    """The cut-out of each offset that is in the table."""
    found = spark.read.parquet(str(table)).select("header.offset", "cut").collect()
    assert len({row["offset"] for row in found}) == len(found)
    return {row["offset"]: row["cut"] for row in found}


def push(keeper: Keeper, seconds: list[tuple[float, Track]]) -> None:
    for at, event in seconds:
        keeper.clock.now = max(keeper.clock.now, FIRST_TIME + round(at * SECOND))
        keeper.push(event, source_ts=FIRST_TIME + round(at * SECOND))


def test_overlapping_triggers_are_one_cut_out_and_one_at_the_start_has_what_there_is(
    tmp_path: Path, spark: SparkSession
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        push(keeper, [(t, Track(1, 999.0 if t in (1, 20, 23, 50) else 0.0)) for t in range(60)])
    options: Any = {"when": "speed > :most", "params": {"most": 900.0}, "before": 4, "after": 2}
    done = jobs.cutouts(spark, tmp_path / "data", "air.tracks", tmp_path / "t", **options)
    found = rows(spark, tmp_path / "t")
    assert sorted(found) == [*range(4), *range(16, 26), *range(46, 53)]
    cuts = {FIRST_TIME + at * SECOND for at in (1, 20, 50)}
    assert (done.cuts, done.rows, set(found.values())) == (3, 21, cuts)
    again = jobs.cutouts(spark, tmp_path / "data", "air.tracks", tmp_path / "t", **options)
    assert (again.commits, again.rows) == (0, 0)


def test_in_any_number_of_runs_and_by_key_each_event_near_a_trigger_is_there_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Beside a loop over all pairs of events and triggers; source times are out of order."""
    for seed in range(examples(1)):
        rng = random.Random(seed)
        events: list[tuple[float, Track]] = []
        folder, table = tmp_path / f"data{seed}", tmp_path / f"t{seed}"
        with Keeper(folder) as keeper:
            for part in range(3):
                new = [
                    (rng.randrange(part * 300, part * 300 + 400) / 10, Track(rng.randrange(3), rng.random()))
                    for _ in range(150)
                ]
                events += new
                push(keeper, new)
                jobs.cutouts(
                    spark, folder, "air.tracks", table, when="speed > 0.97", before=1.5, after=0.5, by="id",
                    time="source", thin=4.0,
                )  # fmt: skip
        triggers = [(at, track.id) for at, track in events if track.speed > 0.97]
        first: dict[tuple[int, int], int] = {}
        for offset, (at, track) in enumerate(events):
            first.setdefault((track.id, (FIRST_TIME // SECOND * 10 + round(at * 10)) // 40), offset)
        expected = set(first.values()) | {
            offset
            for offset, (at, track) in enumerate(events)
            if any(key == track.id and -1.5 <= round(at - t, 6) <= 0.5 for t, key in triggers)
        }
        assert set(rows(spark, table)) == expected


def test_the_matches_of_a_recorded_pattern_are_triggers(tmp_path: Path, spark: SparkSession) -> None:
    persistent = hg.QoS(durability="persistent")
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=persistent)
        storms = station.channel("air.storms", Storm, qos=persistent)
        both = hg.all_of(t=tracks.where("speed > 900"), s=storms, within=60.0, by="id")
        matched: list[Any] = []
        station.subscribe(both, matched.append, name="danger", replayable=True)
        tracks.push_many([Track(n, 0.0) for n in range(10)])
        tracks.push(Track(1, 950.0))
        storms.push(Storm(1))
        assert tracks.settle(10.0)
        assert storms.settle(10.0)
        station.close()
        assert len(matched) == 1
    done = jobs.cutouts(
        spark, tmp_path / "data", "air.tracks", tmp_path / "t", pattern="danger", before=3600, after=1
    )
    assert (done.cuts, done.rows) == (1, 11)
    with pytest.raises(NotPossible, match="holds those of danger"):
        CutOutJob(folder=tmp_path / "data", channel="air.tracks", to=tmp_path / "t", pattern="other")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"when": None}, "one of both"),
        ({"pattern": "x"}, "one of both"),
        ({"before": -1}, "a number from 0"),
        ({"thin": 0}, "a number from 1e-06"),
        ({"time": "speed"}, "append, source"),
        ({"by": "region"}, "id, speed"),
        ({"format": "orc"}, "parquet, delta, iceberg"),
        ({"when": None, "pattern": "x", "by": "id"}, "no by"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_spark_starts(
    options: dict[str, Any], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(Track(1, 1.0))
    asked: Any = {
        "folder": tmp_path / "data",
        "channel": "air.tracks",
        "to": tmp_path / "t",
        "when": "speed > 1",
    }
    with pytest.raises(InvalidOption, match=problem):
        CutOutJob(**{**asked, **options})
    with pytest.raises(ExpressionError):
        CutOutJob(**{**asked, "when": "height > 1"})
    assert run(["pipeline", "cutouts", str(tmp_path / "data"), "air.tracks", str(tmp_path / "t")]) == 2
    assert "one of both" in capsys.readouterr().err


def test_a_table_of_another_channel_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with Keeper(tmp_path / "data") as keeper, Keeper(tmp_path / "data", "other") as other:
        keeper.push(Track(1, 1.0))
        other.push(Track(1, 1.0))
    jobs.cutouts(spark, tmp_path / "data", "air.tracks", tmp_path / "t", when="speed > 0")
    with pytest.raises(TableMismatch, match=r"it holds events of air\.tracks"):
        jobs.cutouts(spark, tmp_path / "data", "other", tmp_path / "t", when="speed > 0")
