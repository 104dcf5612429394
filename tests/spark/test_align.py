"""`align`: the table is what a join by hand gives, however many runs it took and whichever was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import heliograph as hg
from heliograph.cli import run
from heliograph.errors import ExpressionError, HistoryDamaged, InvalidOption, NoHistory, TableMismatch
from heliograph.spark import jobs
from heliograph.spark.jobs.align import AlignJob
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

MS = SECOND // 1000


class Imu(hg.Event, name="robot.imu", key="robot"):
    robot: str
    x: float | None
    count: int = 0


class Gps(hg.Event, name="robot.gps", key="robot"):
    robot: str
    lat: float
    note: str | None = None


class Camera(hg.Event, name="robot.frame", key="robot"):
    robot: str
    number: int
    taken: datetime | None = None


class Rig:
    """Three channels of different rates, with times that a test chooses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.imu, self.gps, self.camera = (
            Keeper(folder, name) for name in ("robot.imu", "robot.gps", "robot.camera")
        )

    def record(self, start: int, milliseconds: int) -> None:
        """So many milliseconds of two robots; b has no position for a while."""
        for t in range(start, start + milliseconds):
            for robot in "ab":
                if t % 7 == 0:
                    self.push(self.imu, Imu(robot, None if t % 35 == 0 else float(t), t), t)
                if t % 50 == 0 and not (robot == "b" and 100 < t < 450):
                    self.push(self.gps, Gps(robot, t / 10), t)
                if t % 33 == 0:
                    self.push(self.camera, Camera(robot, t), t)

    def push(self, keeper: Keeper, event: Any, t: int) -> None:
        keeper.clock.now = max(keeper.clock.now, FIRST_TIME + t * MS)
        keeper.push(event, source_ts=FIRST_TIME + t * MS)

    def seal(self) -> None:
        for keeper in (self.imu, self.gps, self.camera):
            keeper.seal()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "data")
    yield made
    for keeper in (made.imu, made.gps, made.camera):
        keeper.writer.close()


NAMED = {"imu": "robot.imu", "gps": "robot.gps", "cam": "robot.camera"}


def table(place: Path, kind: str, spark: SparkSession) -> pd.DataFrame:
    """As somebody else reads it, by the format's own reader."""
    if kind == "parquet":
        found: Any = spark.read.parquet(str(place)).toPandas()
    elif kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(place).to_pyarrow_table().to_pandas()
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        with closing(SqlCatalog("heliograph", uri=f"sqlite:///{place}/catalog.db")) as catalog:
            found = catalog.load_table("heliograph.events").scan().to_arrow().to_pandas()
    return found.sort_values(["time_ns", "robot"]).reset_index(drop=True)


def by_hand(folder: Path, tolerance: int | None) -> pd.DataFrame:
    """The same join in pandas, of all that is there."""

    def series(channel: str) -> pd.DataFrame:
        found = hg.history(folder, channel).pandas()
        found["time_ns"] = [header["source_ns"] for header in found.pop("header")]
        return found.sort_values("time_ns", kind="stable")

    lead = series("robot.camera")
    for alias, channel in (("imu", "robot.imu"), ("gps", "robot.gps")):
        side = series(channel)
        side["t"] = side["time_ns"] - FIRST_TIME  # small, or pandas would round it where there are gaps
        own = [name for name in side.columns if name not in ("robot", "time_ns")]
        side = side.rename(columns={name: f"{alias}_{name}" for name in own})
        lead = pd.merge_asof(lead, side, on="time_ns", by="robot", tolerance=tolerance)
    return lead.sort_values(["time_ns", "robot"]).reset_index(drop=True)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_in_several_runs_is_what_merge_asof_gives_and_a_run_without_news_writes_nothing(
    kind: Any, rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    options: Any = {"lead": "cam", "by": "robot", "time": "source", "tolerance": 0.12, "format": kind}
    place = tmp_path / "table"
    rows = gaps = 0
    for start in (0, 300):
        rig.record(start, 300)
        if not start:
            rig.seal()
        done = jobs.align(spark, rig.folder, NAMED, place, events_per_stretch=60, **options)
        assert (done.commits, done.late, done.left) == (1, 0, 0)
        rows, gaps = rows + done.rows, gaps + done.gaps["gps"]
    again = jobs.align(spark, rig.folder, NAMED, place, **options)
    assert (again.commits, again.rows) == (0, 0)
    found, expected = table(place, kind, spark), by_hand(rig.folder, 120 * MS)
    assert rows == len(found) == len(expected) > 30
    for name in ("time_ns", "robot"):
        assert list(found[name]) == list(expected[name])
    assert list(found["cam_number"]) == list(expected["number"])
    for name in ("imu_x", "imu_count", "gps_lat"):
        pd.testing.assert_series_equal(
            found[name].astype(float), expected[name].astype(float), check_names=False
        )
    assert list(found["gps_gap"]) == list(expected["gps_t"].isna())
    assert 0 < gaps == found["gps_gap"].sum()
    age = (expected["time_ns"] - FIRST_TIME - expected["gps_t"]) / 1e9
    pd.testing.assert_series_equal(found["gps_age"], age, check_names=False)
    assert set(found["split"]) == {"train"}


def test_a_grid_is_split_by_time_with_an_embargo_and_the_boundary_of_the_first_run_stays(
    rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    rig.record(0, 400)
    options: Any = {"grid": 0.01, "by": ["robot"], "time": "source", "linear": ["gps"], "tolerance": 0.1}
    done = jobs.align(
        spark, rig.folder, {"imu": "robot.imu", "gps": "robot.gps"}, tmp_path / "t",
        test_fraction=0.25, embargo=0.02, **options,
    )  # fmt: skip
    last = FIRST_TIME + 399 * MS
    assert done.until_ns is not None
    assert FIRST_TIME + 350 * MS <= done.until_ns <= last
    boundary = done.test_from_ns
    assert boundary == done.until_ns - round((done.until_ns - FIRST_TIME) * 0.25)
    found = table(tmp_path / "t", "parquet", spark)
    assert (found["time_ns"] % (10 * MS) == 0).all()
    parts = {name: part["time_ns"] for name, part in found.groupby("split")}
    assert parts["train"].max() <= boundary - 20 * MS
    assert parts["test"].min() >= boundary + 20 * MS
    assert (done.train, done.test) == (len(parts["train"]), len(parts["test"]))
    of_a = found[(found["robot"] == "a") & ~found["gps_gap"]]
    milliseconds = (of_a["time_ns"] - FIRST_TIME) / MS
    assert list(of_a["gps_lat"]) == pytest.approx(list(milliseconds / 10))  # it moves evenly
    rig.record(400, 200)
    more = jobs.align(
        spark, rig.folder, {"imu": "robot.imu", "gps": "robot.gps"}, tmp_path / "t",
        test_fraction=0.25, embargo=0.02, **options,
    )  # fmt: skip
    assert (more.test_from_ns, more.train) == (boundary, 0)
    assert more.test == more.rows > 0


def test_with_a_leading_channel_the_test_part_is_the_last_of_its_own_time(
    rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    for t in (0, 10, 20, 30, 40):
        rig.push(rig.camera, Camera("a", t), t)
    rig.push(rig.gps, Gps("a", 1.0), 10_000)  # it goes on long after the last frame
    done = jobs.align(
        spark, rig.folder, {"cam": "robot.camera", "gps": "robot.gps"}, tmp_path / "t", lead="cam",
        time="source", test_fraction=0.5,
    )  # fmt: skip
    assert (done.train, done.test) == (2, 3)


def test_a_late_event_changes_no_row_is_counted_and_is_the_last_value_of_rows_to_come(
    rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    options: Any = {"lead": "robot.camera", "by": "robot", "time": "source"}
    channels = ["robot.camera", "robot.gps"]
    rig.push(rig.gps, Gps("a", 1.0), 0)
    rig.push(rig.camera, Camera("a", 1), 10)
    jobs.align(spark, rig.folder, channels, tmp_path / "t", **options)
    rig.push(rig.gps, Gps("a", 2.0), 5)  # is older than the row that is written
    rig.push(rig.camera, Camera("a", 2), 20)
    done = jobs.align(spark, rig.folder, channels, tmp_path / "t", **options)
    assert (done.late, done.rows) == (1, 1)
    found = table(tmp_path / "t", "parquet", spark)
    assert list(found["robot_gps_lat"]) == [1.0, 2.0]


def test_following_waits_for_late_events_and_ends_with_what_one_run_would_have_written(
    rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    rig.record(0, 200)
    stop, passes = threading.Event(), []

    def progress(done: jobs.Aligned) -> None:
        passes.append(done.rows)
        if len(passes) == 1:
            assert done.until_ns is not None
            assert done.until_ns <= FIRST_TIME + 150 * MS  # the last events wait
            rig.record(200, 200)
        if len(passes) == 2:
            stop.set()

    options: Any = {"lead": "cam", "by": "robot", "time": "source", "tolerance": 0.12}
    done = jobs.align(
        spark, rig.folder, NAMED, tmp_path / "t", late=0.05, follow=True, every=0.01, progress=progress,
        stop=stop, **options,
    )  # fmt: skip
    assert done.commits == 2
    jobs.align(spark, rig.folder, NAMED, tmp_path / "t", late=0.05, **options)
    whole = jobs.align(spark, rig.folder, NAMED, tmp_path / "whole", **options)
    found = table(tmp_path / "t", "parquet", spark)
    assert whole.rows == len(found)
    pd.testing.assert_frame_equal(found, table(tmp_path / "whole", "parquet", spark))


def test_a_job_that_is_killed_while_it_commits_goes_on_with_every_row_once(
    rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    rig.record(0, 200)
    command = [
        "align", str(rig.folder), str(tmp_path / "t"), "--channel", "cam=robot.camera", "--channel",
        "imu=robot.imu", "--lead", "cam", "--by", "robot", "--time", "source", "--master", "local[1]",
    ]  # fmt: skip
    killed = helio(*command, fault="table-committed")
    assert killed.returncode != 0
    channels = {"cam": "robot.camera", "imu": "robot.imu"}
    options: Any = {"by": "robot", "time": "source"}
    again = jobs.align(spark, rig.folder, channels, tmp_path / "t", lead="cam", **options)
    assert again.rows == 0  # the commit counted
    rig.record(200, 100)
    jobs.align(spark, rig.folder, channels, tmp_path / "t", lead="cam", **options)
    jobs.align(spark, rig.folder, channels, tmp_path / "whole", lead="cam", **options)
    pd.testing.assert_frame_equal(
        table(tmp_path / "t", "parquet", spark), table(tmp_path / "whole", "parquet", spark)
    )


def helio(*arguments: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heliograph.cli", "pipeline", *arguments]
    environment = {**os.environ, **({"HELIO_FAULT": fault} if fault else {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)


def test_a_field_is_the_time_and_rows_without_one_are_left_out(
    rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    noon = datetime(2026, 11, 18, 12, tzinfo=UTC)
    with Keeper(tmp_path / "data", "robot.other") as other:
        other.push(Camera("a", 1, noon), Camera("a", 2, None), Camera("a", 3, noon + timedelta(seconds=1)))
        rig.push(rig.camera, Camera("a", 7, noon + timedelta(milliseconds=500)), 0)
    done = jobs.align(
        spark, rig.folder, {"one": "robot.other", "two": "robot.camera"}, tmp_path / "t",
        lead="one", time="taken", test_from=noon + timedelta(seconds=1),
    )  # fmt: skip
    assert (done.train, done.test, done.gaps) == (1, 1, {"two": 1})
    found = spark.read.parquet(str(tmp_path / "t")).orderBy("time").collect()
    assert [(row["one_number"], row["two_number"], row["split"]) for row in found] == [
        (1, None, "train"),
        (3, 7, "test"),
    ]


def test_a_table_of_another_job_or_of_a_replaced_history_is_refused(
    rig: Rig, tmp_path: Path, spark: SparkSession
) -> None:
    rig.record(0, 60)
    channels = ["robot.imu", "robot.gps"]
    jobs.align(spark, rig.folder, channels, tmp_path / "t", grid=0.01, by="robot")
    with pytest.raises(TableMismatch, match="aligned with other"):
        jobs.align(spark, rig.folder, channels, tmp_path / "t", grid=0.02, by="robot")
    jobs.archive(spark, rig.folder, "robot.imu", tmp_path / "archive")
    with pytest.raises(TableMismatch, match=r"it holds events of robot\.imu"):
        jobs.align(spark, rig.folder, channels, tmp_path / "archive", grid=0.01, by="robot")
    with pytest.raises(TableMismatch, match=r"_helio\.align"):
        jobs.archive(spark, rig.folder, "robot.imu", tmp_path / "t")
    older = Rig(tmp_path / "older")
    older.record(0, 20)
    for keeper in (older.imu, older.gps, older.camera):
        keeper.writer.close()
    with pytest.raises(HistoryDamaged, match="older copy"):
        jobs.align(spark, older.folder, channels, tmp_path / "t", grid=0.01, by="robot")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"grid": None}, "one of both"),
        ({"lead": "cam"}, "one of both"),
        ({"grid": 0}, "a number from 1e-06"),
        ({"grid": None, "lead": "lidar"}, "one of the channels: imu, gps, cam"),
        ({"tolerance": -1}, "a number from 0"),
        ({"linear": ["lidar"]}, "imu, gps, cam"),
        ({"by": "number"}, "fields that all channels have; imu has robot, x, count"),
        ({"time": "taken"}, "append, source"),
        ({"format": "orc"}, "parquet, delta, iceberg"),
        ({"test_fraction": 1.0}, "a number between 0 and 1"),
        ({"test_fraction": 0.5, "test_from": datetime(2026, 1, 1, tzinfo=UTC)}, "one of both"),
        ({"test_from": datetime(2026, 1, 1)}, "a time zone"),  # noqa: DTZ001 - that is what is wrong
        ({"embargo": 1.0}, "0 without test_from"),
        ({"channels": "robot.imu"}, "a list of names"),
        ({"channels": {"i-mu": "robot.imu"}}, "letters, digits and _"),
        ({"channels": {"a": "robot.imu", "b": "robot.imu"}}, "each channel once"),
        ({"channels": {"a": "robot.imu"}, "by": "x", "where": {"b": "x > 1"}}, "a"),
        ({"channels": ["robot.camera"], "grid": None, "lead": "robot.camera"}, "at least one besides"),
        ({"to": "s3://bucket/table"}, "a folder that driver and executors see"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_spark_starts(
    options: dict[str, Any], problem: str, rig: Rig, tmp_path: Path
) -> None:
    rig.record(0, 1)
    with pytest.raises(InvalidOption, match=problem):
        AlignJob(**{"folder": rig.folder, "channels": NAMED, "to": tmp_path / "t", "grid": 0.1, **options})
    assert not (tmp_path / "t").exists()


def test_the_command_refuses_what_cannot_be_before_spark_starts(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.record(0, 1)
    monkeypatch.setattr("heliograph.spark.jobs.connecting.connected", None)  # whoever calls it fails
    start = ["pipeline", "align", str(rig.folder), str(tmp_path / "t"), "--channel", "imu=robot.imu"]
    for more, problem in (
        (["--grid", "0"], "a number from 1e-06"),
        (["--grid", "1", "--test-from", "noon"], "no position in a history"),
        (["--grid", "1", "--test-from", "now"], "a time such as"),
        (["--grid", "1", "--where", "x > 1"], "NAME:FILTER"),
        (["--grid", "1", "--channel", "imu=robot.gps"], "imu is taken"),
        ([], "one of both"),
    ):
        assert run([*start, *more]) == 2
        assert problem in capsys.readouterr().err
    with pytest.raises(NoHistory):
        AlignJob(folder=rig.folder, channels=["robot.lidar"], to=tmp_path / "t", grid=1.0)
    with pytest.raises(ExpressionError):
        AlignJob(folder=rig.folder, channels=NAMED, to=tmp_path / "t", grid=1.0, where={"imu": "height > 1"})
    job = AlignJob(folder=rig.folder, channels=NAMED, to=tmp_path / "t", grid=1.0, test_fraction=0.5)
    with pytest.raises(InvalidOption, match="test_from"):
        job.run(None, follow=True)  # type: ignore[arg-type]
    job = AlignJob(folder=rig.folder, channels=NAMED, to=tmp_path / "t", grid=1.0, linear=["imu"])
    with pytest.raises(InvalidOption, match="how long to wait"):
        job.run(None, follow=True)  # type: ignore[arg-type]
