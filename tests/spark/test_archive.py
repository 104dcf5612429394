"""`archive`: every event in the table once, whatever the format of the table, its kills and its schema."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark
from heliograph.cli import run
from heliograph.errors import (
    ExpressionError,
    HistoryDamaged,
    HistoryGone,
    InvalidOption,
    NoHistory,
    TableInUse,
    TableMismatch,
)
from heliograph.spark import jobs
from heliograph.spark.jobs.tables.table import opened
from heliograph.spark.jobs.tables.workplace import Workplace
from tests.e2e.link_support import wait_until
from tests.support import examples
from tests.unit.spark.histories import SECOND, Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FORMATS: tuple[Any, ...] = ("parquet", "delta", "iceberg")
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    region: str = "unknown"
    seen: datetime | None = None


class LaterTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    region: str = "unknown"
    seen: datetime | None = None
    tags: list[str] = []  # noqa: RUF012 - each event gets its own


class Packet(hg.Event, name="net.packet"):
    id: int
    data: bytes


def rows(table: Path, kind: str, spark: SparkSession) -> list[dict[str, Any]]:
    """A table as somebody else reads it, by the format's own reader."""
    if kind == "parquet":
        frame = spark.read.option("mergeSchema", "true").parquet(str(table))
        found = [row.asDict(recursive=True) for row in frame.collect()]
    elif kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(table).to_pyarrow_table().to_pylist()
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        with closing(SqlCatalog("heliograph", uri=f"sqlite:///{table}/catalog.db")) as catalog:
            found = catalog.load_table("heliograph.events").scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["header"]["partition"], row["header"]["offset"]))


def facts(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    header, body = ("partition", "offset", "sequence", "source_ns"), ("id", "speed", "region", "seen")
    return [(*(row["header"][name] for name in header), *(row[name] for name in body)) for row in found]


def history(spark: SparkSession, folder: Path, where: str | None = None) -> list[tuple[Any, ...]]:
    frame = heliograph.spark.read(spark, folder, "air.tracks", where=where)
    found = [row.asDict(recursive=True) for row in frame.collect()]
    for row in found:  # Spark gives times without a zone, in that of this process
        row["seen"] = row["seen"] and row["seen"].astimezone(UTC)
    return facts(sorted(found, key=lambda row: (row["header"]["partition"], row["header"]["offset"])))


def in_utc(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row[:-1], row[-1] and row[-1].astimezone(UTC)) for row in found]


@pytest.fixture
def keeper(tmp_path: Path) -> Any:
    with Keeper(tmp_path / "data") as keeper:
        yield keeper


def tracks(first: int, count: int, cls: Any = Track) -> list[Any]:
    return [
        cls(n, n / 8, "north" if n % 2 else "south", NOON + timedelta(hours=n % 4))
        for n in range(first, first + count)
    ]


def listing(table: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns
        for path in table.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_has_every_event_once_and_a_second_run_writes_nothing(
    kind: Any, keeper: Keeper, tmp_path: Path, spark: SparkSession
) -> None:
    keeper.push(*tracks(0, 150))
    keeper.seal()
    keeper.push(*tracks(150, 90))
    with Keeper(tmp_path / "data", partition="p2") as other:
        other.push(*tracks(1000, 60))
    table = tmp_path / "table"
    done = jobs.archive(spark, tmp_path / "data", "air.tracks", table, format=kind, events_per_commit=100)
    assert (done.events, done.commits, done.left) == (300, 3, 0)
    assert in_utc(facts(rows(table, kind, spark))) == history(spark, tmp_path / "data")
    before = listing(table)
    again = jobs.archive(spark, tmp_path / "data", "air.tracks", table, format=kind)
    assert (again.events, again.commits, listing(table)) == (0, 0, before)


@pytest.mark.parametrize("kind", FORMATS)
def test_late_and_evolved_events_and_small_files_go_where_they_belong(
    kind: Any, keeper: Keeper, tmp_path: Path, spark: SparkSession
) -> None:
    table = tmp_path / "table"
    options: Any = {"format": kind, "time": "seen", "by": "hour", "compact_after": 3}
    for first in (0, 12, 24):
        keeper.push(*tracks(first, 12))
        jobs.archive(spark, tmp_path / "data", "air.tracks", table, **options)
    keeper.push(Track(998, 1.0), Track(999, 1.0, seen=NOON), *tracks(90, 2, LaterTrack))
    done = jobs.archive(spark, tmp_path / "data", "air.tracks", table, **options)
    assert (done.events, done.new_columns) == (4, ["tags"])
    found = rows(table, kind, spark)
    assert in_utc(facts(found)) == history(spark, tmp_path / "data")
    for row in found:
        seen = row["seen"] and row["seen"].astimezone(UTC)
        expected = (None, None) if seen is None else (seen.date(), seen.hour)
        assert (row["event_date"], row["event_hour"]) == expected
    assert [row["tags"] for row in found if row["id"] in (0, 90, 91)] == [None, [], []]
    with Workplace.locked(table) as place, opened(kind, place) as there:
        assert sum(file.rows for file in there.files()) == 40
        assert max(Counter(file.folder for file in there.files()).values()) < 3


def test_a_filter_and_an_empty_batch_move_the_table_on(
    keeper: Keeper, tmp_path: Path, spark: SparkSession
) -> None:
    keeper.push(*tracks(0, 20))
    options: Any = {"where": "speed < :most", "params": {"most": 1}, "events_per_commit": 10}
    for kind in FORMATS:
        done = jobs.archive(spark, tmp_path / "data", "air.tracks", tmp_path / kind, format=kind, **options)
        assert (done.events, done.offsets, done.commits) == (8, 20, 2)
        assert len(rows(tmp_path / kind, kind, spark)) == 8
        done = jobs.archive(spark, tmp_path / "data", "air.tracks", tmp_path / kind, format=kind)
        assert (done.events, done.commits) == (0, 0)


def test_a_table_of_another_channel_or_in_use_or_of_a_replaced_history_is_refused(
    keeper: Keeper, tmp_path: Path, spark: SparkSession
) -> None:
    keeper.push(*tracks(0, 20))
    table = tmp_path / "table"
    jobs.archive(spark, tmp_path / "data", "air.tracks", table)
    with Keeper(tmp_path / "data", "other.tracks") as other:
        other.push(*tracks(0, 5))
    with pytest.raises(TableMismatch, match=r"it holds events of air\.tracks"):
        jobs.archive(spark, tmp_path / "data", "other.tracks", table)
    with Workplace.locked(table), pytest.raises(TableInUse):
        jobs.archive(spark, tmp_path / "data", "air.tracks", table)
    with Keeper(tmp_path / "older") as older:
        older.push(*tracks(0, 5))
    with pytest.raises(HistoryDamaged, match="older copy"):
        jobs.archive(spark, tmp_path / "older", "air.tracks", table)


def test_what_retention_has_removed_is_an_error_unless_loss_is_allowed(
    keeper: Keeper, tmp_path: Path, spark: SparkSession
) -> None:
    keeper.push(*tracks(0, 20))
    jobs.archive(spark, tmp_path / "data", "air.tracks", tmp_path / "table")
    keeper.push(*tracks(20, 20))
    keeper.seal()
    keeper.drop_sealed()
    keeper.push(*tracks(40, 20))
    with pytest.raises(HistoryGone):
        jobs.archive(spark, tmp_path / "data", "air.tracks", tmp_path / "table")
    done = jobs.archive(spark, tmp_path / "data", "air.tracks", tmp_path / "table", fail_on_data_loss=False)
    assert [row["id"] for row in rows(tmp_path / "table", "parquet", spark)] == [*range(20), *range(40, 60)]
    assert done.events == 20


def test_following_takes_in_what_comes_until_it_is_stopped(
    keeper: Keeper, tmp_path: Path, spark: SparkSession
) -> None:
    keeper.push(*tracks(0, 20))
    stop, seen = threading.Event(), []

    def progress(done: jobs.Archived) -> None:
        seen.append(done.events)
        if done.events == 20 and not done.left:
            keeper.push(*tracks(20, 20))
        if done.events == 40:
            stop.set()

    done = jobs.archive(
        spark,
        tmp_path / "data",
        "air.tracks",
        tmp_path / "t",
        follow=True,
        every=0.05,
        progress=progress,
        stop=stop,
    )
    assert (done.events, done.commits) == (40, 2)
    assert history(spark, tmp_path / "data") == in_utc(facts(rows(tmp_path / "t", "parquet", spark)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "orc"}, "parquet, delta, iceberg"),
        ({"by": "week"}, "day, hour"),
        ({"time": "speed"}, "append, source, seen"),
        ({"file_size": "many"}, "a size such as 256m"),
        ({"compact_after": -1}, "a number from 0"),
        ({"events_per_commit": 0}, "a number from 1"),
        ({"to": "s3://bucket/table"}, "a folder that driver and executors see"),
        ({"params": {"a": 1}}, "a condition, when params are given"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_spark_starts(
    options: dict[str, Any], problem: str, keeper: Keeper, tmp_path: Path
) -> None:
    keeper.push(*tracks(0, 1))
    with pytest.raises(InvalidOption, match=problem):
        jobs.ArchiveJob(
            **{"folder": tmp_path / "data", "channel": "air.tracks", "to": tmp_path / "table", **options}
        )
    assert not (tmp_path / "table").exists()


def test_a_wrong_filter_folder_channel_or_master_is_refused_before_spark_starts(
    keeper: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.push(*tracks(0, 1))
    folder, table = str(tmp_path / "data"), str(tmp_path / "table")
    monkeypatch.setattr("heliograph.spark.jobs.connecting.connected", None)  # whoever calls it fails
    with pytest.raises(ExpressionError):
        jobs.ArchiveJob(folder=folder, channel="air.tracks", to=table, where="height > 3")
    with pytest.raises(NoHistory):
        jobs.ArchiveJob(folder=folder, channel="air.trucks", to=table)
    assert run(["pipeline", "archive", folder, "air.tracks", table, "--master", "mesos://x"]) == 2
    assert "local[N]" in capsys.readouterr().err
    assert run(["pipeline", "archive", folder, "air.tracks", table, "--remote", "host:1"]) == 2
    assert run(["pipeline", "archive", folder, "air.tracks", table, "--format", "orc"]) == 2
    assert run(["pipeline", "archive", str(tmp_path / "none"), "air.tracks", table]) == 2


def test_the_command_prints_what_it_did(keeper: Keeper, tmp_path: Path) -> None:
    """In a process of its own: it stops its session."""
    keeper.push(*tracks(0, 20))
    command = [
        "archive",
        str(tmp_path / "data"),
        "air.tracks",
        str(tmp_path / "table"),
        "--master",
        "local[1]",
    ]
    first = helio(*command, "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["events"] == 20


def test_files_grow_to_the_size_that_was_asked_for_and_not_far_beyond(
    tmp_path: Path, spark: SparkSession
) -> None:
    """From half of it to twice as much, as 128 to 512 MB are of 256, wherever there is that much."""
    rng, target, small = random.Random(3), 64 << 10, 3

    def packets(count: int) -> list[Packet]:
        return [Packet(n, rng.randbytes(400)) for n in range(count)]

    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*packets(1200))
        keeper.seal()
        for kind in FORMATS:
            options: Any = {"format": kind, "file_size": target, "compact_after": small}
            done = jobs.archive(spark, tmp_path / "data", "air.tracks", tmp_path / kind, **options)
            assert 4 <= done.files <= 16  # 480 KB in one commit
        keeper.push(*packets(3 * 40))
        for kind in FORMATS:
            options = {"format": kind, "file_size": target, "compact_after": small, "events_per_commit": 40}
            done = jobs.archive(spark, tmp_path / "data", "air.tracks", tmp_path / kind, **options)
            assert done.joined_into
            with Workplace.locked(tmp_path / kind) as place, opened(kind, place) as there:
                sizes = sorted(file.bytes for file in there.files())
                assert sum(file.rows for file in there.files()) == 1320
            assert sizes[-1] <= 2 * target
            assert sum(size < target / 2 for size in sizes) < small, (kind, sizes)


def test_a_job_that_is_killed_at_random_instants_leaves_every_event_once(
    keeper: Keeper, tmp_path: Path, spark: SparkSession
) -> None:
    """Two kills in CI, twenty with `make proof`; equal by a checksum over all columns of all rows."""
    keeper.clock.now += SECOND
    rng = random.Random(7)
    kills = turn = 0
    while kills < examples(2):
        kind = FORMATS[turn % 3]
        keeper.push(*tracks(turn * 400, 400))
        keeper.seal()
        turn += 1
        table = tmp_path / kind
        before = listing(table)
        options = ["--format", kind, "--events-per-commit", "25", "--compact-after", "3"]
        arguments = ["archive", str(tmp_path / "data"), "air.tracks", str(table), "--master", "local[1]"]
        with subprocess.Popen(
            [sys.executable, "-m", "heliograph.cli", "pipeline", *arguments, *options]
        ) as process:
            changed = lambda: listing(table) != before or process.poll() is not None  # noqa: B023, E731
            assert wait_until(changed, 120.0)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, 3.0))
            process.kill()
        kills += process.returncode == -signal.SIGKILL  # else it was done before
    expected = checksum(
        [row.asDict(recursive=True) for row in heliograph.spark.read(spark, *air(tmp_path)).collect()]
    )
    for kind in FORMATS:
        jobs.archive(spark, *air(tmp_path), tmp_path / kind, format=kind)
        assert checksum(rows(tmp_path / kind, kind, spark)) == expected
        before = listing(tmp_path / kind)
        assert jobs.archive(spark, *air(tmp_path), tmp_path / kind, format=kind).commits == 0
        assert listing(tmp_path / kind) == before


def air(folder: Path) -> tuple[Path, str]:
    return folder / "data", "air.tracks"


def checksum(found: list[dict[str, Any]]) -> str:
    """Of all columns of all rows but those of partitions, whatever reader they came by."""
    for row in found:
        row.pop("event_date", None)
    return hashlib.sha256(repr(sorted(repr(plain(row)) for row in found)).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Arrow gives maps as pairs, Spark as dicts; times are in UTC or in the zone of this process."""
    if isinstance(value, dict):
        return sorted((name, plain(one)) for name, one in value.items())
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return [plain(one) for one in value] if isinstance(value, list) else value


def helio(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heliograph.cli", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)
