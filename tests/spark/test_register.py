"""Spark's own Parquet reader on the files of a registered table, without a line of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable

import heliograph as hg
from heliograph.spark import jobs
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float


class LaterTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    region: str = "unknown"


def test_plain_spark_reads_the_files_of_a_registered_table(spark: SparkSession, tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*(Track(n, n / 2) for n in range(10)))
        keeper.writer.seal()
        keeper.push(LaterTrack(10, 5.0, "north"))
        keeper.writer.seal()
    jobs.register(tmp_path / "data", "air.tracks", tmp_path / "table")
    files = DeltaTable(tmp_path / "table").file_uris()
    frame = spark.read.option("mergeSchema", "true").parquet(*files)
    found = frame.filter("_kind = 0").selectExpr("count(*)", "sum(id)", "max(speed)", "max(region)").first()
    assert found is not None
    assert tuple(found) == (11, 55, 5.0, "north")
