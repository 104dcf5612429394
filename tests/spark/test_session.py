"""`heliograph.spark.session` starts a real Spark, on the machine's Java and without one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Track(hg.Event, name="air.track"):
    id: int


JOB = """
import json
import sys

import heliograph.spark
from pyspark.sql.functions import udf

spark = heliograph.spark.session(app="job", master="local[1]", config={"spark.driver.memory": "600m"})
double = udf(lambda n: 2 * n, "long")
rows = spark.range(100).select(double("id").alias("n")).groupBy().sum("n").collect()
worker = udf(lambda n: __import__("sys").executable, "string")
runtime = spark.sparkContext._jvm.java.lang
print(json.dumps({
    "sum": rows[0][0],
    "java_home": runtime.System.getenv("JAVA_HOME"),
    "heap": runtime.Runtime.getRuntime().maxMemory(),
    "python": spark.range(1).select(worker("id")).first()[0],
}))
spark.stop()
"""
SHELL_TOOLS = ("bash", "sh", "cat", "dirname", "env", "grep", "nproc", "ps", "rm", "sed", "tr", "uname")
"""What the start scripts of Spark call."""


def run_job(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", JOB], env=environment, cwd=folder, capture_output=True, text=True
    )


def result_of(job: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert job.returncode == 0, job.stderr
    result: dict[str, Any] = json.loads(job.stdout)
    return result


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which no Java can be found."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in SHELL_TOOLS:
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "PYSPARK", "SPARK"))
    }
    return {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_a_job_runs_on_a_machine_without_java(without_java: dict[str, str], tmp_path: Path) -> None:
    job = run_job(without_java, tmp_path)
    result = result_of(job)
    assert result["sum"] == 2 * sum(range(100))
    assert result["java_home"].startswith(str(tmp_path / "cache" / "heliograph"))
    assert result["python"] == sys.executable, "workers run in the Python of their driver"
    assert 500 << 20 < result["heap"] <= 600 << 20
    assert "WARN" not in job.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"tools", "cache"}, "a job leaves no files behind"


def test_a_java_home_that_cannot_be_right_stops_the_start_with_one_sentence(
    without_java: dict[str, str], tmp_path: Path
) -> None:
    job = run_job({**without_java, "JAVA_HOME": str(tmp_path / "none")}, tmp_path)
    assert job.returncode == 1
    assert "NoJava: Spark needs Java 17 or newer: JAVA_HOME is" in job.stderr.splitlines()[-1]


def test_the_session_is_set_up_for_events(spark: SparkSession) -> None:
    expected = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    assert {name: spark.conf.get(name) for name in expected} == expected
    assert spark.sparkContext.pythonExec == os.environ["PYSPARK_PYTHON"]
    java = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    assert java.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert java.getProperty("log4j2.configurationFile").endswith("log4j2.properties")


def test_asking_again_returns_the_session_that_runs(spark: SparkSession) -> None:
    again = heliograph.spark.session(config={"spark.sql.shuffle.partitions": 2})
    assert again.sparkContext is spark.sparkContext
    assert again.sparkContext.master == "local[2]"


def test_arrow_carries_rows_both_ways(spark: SparkSession) -> None:
    table = spark.range(1000).selectExpr("id", "id * 0.5 AS half").toArrow()
    assert table.num_rows == 1000
    assert spark.createDataFrame(table).selectExpr("sum(half)").collect()[0][0] == 249_750.0


def test_a_session_that_nobody_told_of_it_knows_the_format(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # it has found a Java
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*(Track(n) for n in range(7)))
    program = Path(__file__).with_name("programs") / "unregistered.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "data")],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["7", "5"]
