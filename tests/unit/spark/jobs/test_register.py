"""`register`: the table is the sealed history, file by file, whatever the journal does in between."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import heliograph as hg
from heliograph.errors import HistoryDamaged, InvalidOption, NoHistory, TableInUse, TableMismatch
from heliograph.journal.maintenance.compactor import rewrite
from heliograph.spark import jobs
from heliograph.spark.jobs.tables.workplace import Workplace
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

FORMATS = ("delta", "iceberg")


class Position(hg.Event, name="air.position"):
    lat: float


class LaterPosition(hg.Event, name="air.position"):
    lat: float
    height: float = 0.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: hg.i32
    position: Position
    tags: list[str] = []  # noqa: RUF012 - a default of an event is copied


class LaterTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: hg.i32
    position: LaterPosition
    tags: list[str] = []  # noqa: RUF012 - as above
    region: str = "unknown"


class WiderTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: int
    position: LaterPosition
    tags: list[str] = []  # noqa: RUF012 - as above
    region: str = "unknown"


class OtherTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: str


class Note(hg.Event, name="air.note"):
    speed: str


def track(n: int) -> Track:
    return Track(n, n, Position(n / 2), ["a"] * (n % 3))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "data") as keeper:
        keeper.writer._keeper._rewriter = None  # the test says when files are merged
        yield keeper


def sealed(keeper: Keeper, *events: hg.Event) -> None:
    keeper.push(*events)
    keeper.writer.seal()


def compact(keeper: Keeper) -> None:
    partition = keeper.writer._partition
    partition.limits = replace(partition.limits, compact=True)
    keeper.writer._keeper._rewriter = rewrite
    keeper.writer.tidy()
    keeper.writer._keeper._rewriter = None


def register(tmp_path: Path, kind: str, **options: Any) -> jobs.Registered:
    return jobs.register(tmp_path / "data", "air.tracks", tmp_path / kind, format=kind, **options)  # type: ignore[arg-type]


def contents(tmp_path: Path, kind: str) -> pa.Table:
    """What a reader of the format finds."""
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(tmp_path / kind).to_pyarrow_table()
    from pyiceberg.catalog.sql import SqlCatalog

    with closing(SqlCatalog("heliograph", uri=f"sqlite:///{tmp_path / kind}/catalog.db")) as catalog:
        return catalog.load_table("heliograph.events").scan().to_arrow()


def column(tmp_path: Path, kind: str, name: str = "_offset") -> list[Any]:
    return sorted(contents(tmp_path, kind).column(name).to_pylist())


def links(tmp_path: Path, kind: str) -> list[Path]:
    return sorted((tmp_path / kind / "data").glob("*/*"))


@pytest.mark.parametrize("kind", FORMATS)
def test_sealed_files_are_a_table_without_a_copy_and_a_second_run_does_nothing(
    kept: Keeper, tmp_path: Path, kind: str
) -> None:
    for n in range(3):
        sealed(kept, track(2 * n), track(2 * n + 1))
    kept.push(track(6))
    done = register(tmp_path, kind)
    assert (done.files, done.events, done.added, done.commits, done.unsealed) == (3, 6, 3, 1, 1)
    assert column(tmp_path, kind) == list(range(6))
    assert column(tmp_path, kind, "id") == list(range(6))
    for link in links(tmp_path, kind):
        assert link.stat().st_nlink == 2, "the journal's own file"
    again = register(tmp_path, kind)
    assert (again.files, again.added, again.removed, again.commits) == (3, 0, 0, 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_later_run_takes_in_what_was_sealed_and_lets_go_what_was_merged_compacted_or_dropped(
    kept: Keeper, tmp_path: Path, kind: str
) -> None:
    for n in range(20):
        kept.push(track(n % 5))
        if n in (9, 19):
            kept.writer.seal()
    register(tmp_path, kind)
    compact(kept)
    merged = register(tmp_path, kind)
    assert (merged.files, merged.added, merged.removed, merged.commits) == (1, 1, 2, 1)
    assert column(tmp_path, kind) == list(range(15, 20)), "the last event of each key"
    sealed(kept, track(7))
    assert register(tmp_path, kind).added == 1
    kept.drop_sealed()
    dropped = register(tmp_path, kind)
    assert (dropped.files, dropped.removed) == (0, 2)
    assert column(tmp_path, kind) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_stays_readable_though_the_journal_has_removed_its_files_long_ago(
    kept: Keeper, tmp_path: Path, kind: str
) -> None:
    sealed(kept, track(1), track(2))
    register(tmp_path, kind)
    partition = kept.writer._partition
    partition.limits = replace(partition.limits, grace_seconds=0.0)
    kept.drop_sealed()
    kept.writer.retain()
    assert not list((kept.place / "sealed").iterdir())
    assert column(tmp_path, kind, "id") == [1, 2]
    left = register(tmp_path, kind)
    assert (left.files, left.waiting) == (0, 1)
    assert left.held_bytes == links(tmp_path, kind)[0].stat().st_size
    gone = register(tmp_path, kind, grace=0)
    assert (gone.waiting, gone.held_bytes, links(tmp_path, kind)) == (0, 0, [])


@pytest.mark.parametrize("kind", FORMATS)
def test_new_fields_are_new_columns_also_inside_of_records(kept: Keeper, tmp_path: Path, kind: str) -> None:
    sealed(kept, track(1))
    register(tmp_path, kind)
    sealed(kept, LaterTrack(2, 2, LaterPosition(1.0, 9.0), region="north"))
    done = register(tmp_path, kind)
    assert done.new_columns == ["region"]
    rows = {row["id"]: row for row in contents(tmp_path, kind).to_pylist()}
    assert [rows[n]["region"] for n in (1, 2)] == [None, "north"]
    assert [rows[n]["position"]["height"] for n in (1, 2)] == [None, 9.0]


def test_a_wider_number_widens_an_iceberg_table_and_is_refused_by_delta_which_stays_as_it_was(
    kept: Keeper, tmp_path: Path
) -> None:
    sealed(kept, track(1))
    for kind in FORMATS:
        register(tmp_path, kind)
    sealed(kept, WiderTrack(2, 1 << 40, LaterPosition(1.0)))
    register(tmp_path, "iceberg")
    assert column(tmp_path, "iceberg", "speed") == [1, 1 << 40]
    with pytest.raises(TableMismatch, match=r"column speed is int32, .* int64 .*Delta cannot change a type"):
        register(tmp_path, "delta")
    assert column(tmp_path, "delta", "speed") == [1]
    assert len(links(tmp_path, "delta")) == 1, "nothing is left of the refused file"
    with pytest.raises(TableMismatch, match="speed is int32"):
        jobs.register(tmp_path / "data", "air.tracks", tmp_path / "new", format="delta")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_field_of_another_type_is_refused_by_name(kept: Keeper, tmp_path: Path, kind: str) -> None:
    sealed(kept, track(1))
    register(tmp_path, kind)
    sealed(kept, OtherTrack(2, "fast"))
    with pytest.raises(TableMismatch, match=r"column speed is int32, and a file has string"):
        register(tmp_path, kind)
    assert column(tmp_path, kind, "id") == [1]


@pytest.mark.parametrize("kind", FORMATS)
def test_types_of_events_that_share_no_columns_have_a_struct_each(
    kept: Keeper, tmp_path: Path, kind: str
) -> None:
    sealed(kept, track(1), Note("slow"))
    assert register(tmp_path, kind).events == 2
    rows = contents(tmp_path, kind).to_pylist()
    structs = [value for row in rows for value in row.values() if isinstance(value, dict)]
    assert {"speed": "slow"} in structs


def test_duckdb_and_polars_read_what_the_table_has(kept: Keeper, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    sealed(kept, track(1), track(2))
    sealed(kept, LaterTrack(3, 3, LaterPosition(1.0), region="north"))
    for kind in FORMATS:
        register(tmp_path, kind)
    files = DeltaTable(tmp_path / "delta").file_uris()
    total = f"SELECT count(*), sum(speed), max(region) FROM read_parquet({files!r}, union_by_name=true)"
    with duckdb.connect() as base:
        assert base.execute(total).fetchall() == [(3, 6, "north")]
    assert pl.scan_delta(tmp_path / "delta").select(pl.col("speed").sum()).collect().item() == 6
    from pyiceberg.catalog.sql import SqlCatalog

    with closing(SqlCatalog("heliograph", uri=f"sqlite:///{tmp_path}/iceberg/catalog.db")) as catalog:
        table = catalog.load_table("heliograph.events")
        with table.scan(row_filter="_offset >= 1", selected_fields=("speed",)).to_duckdb("rows") as base:
            assert base.sql("SELECT sum(speed) FROM rows").fetchall() == [(5,)]


def test_several_partitions_are_one_table(kept: Keeper, tmp_path: Path) -> None:
    sealed(kept, track(1))
    with Keeper(tmp_path / "data", partition="p2") as other:
        sealed(other, track(2))
    assert register(tmp_path, "delta").files == 2
    assert column(tmp_path, "delta", "id") == [1, 2]


def test_a_folder_with_another_table_is_refused(kept: Keeper, tmp_path: Path) -> None:
    sealed(kept, track(1))
    register(tmp_path, "delta")
    with Keeper(tmp_path / "data", channel="air.others") as other:
        sealed(other, track(1))
    with pytest.raises(TableMismatch, match=r"sealed files of air\.tracks"):
        jobs.register(tmp_path / "data", "air.others", tmp_path / "delta")
    with Keeper(tmp_path / "elsewhere", partition="p9") as other:
        sealed(other, track(1))
    with pytest.raises(TableMismatch, match="partition p1, which is not in"):
        jobs.register(tmp_path / "elsewhere", "air.tracks", tmp_path / "delta")
    with pytest.raises(TableMismatch, match="no iceberg table"):
        jobs.register(tmp_path / "data", "air.tracks", tmp_path / "delta", format="iceberg")
    with Workplace.locked(tmp_path / "delta"), pytest.raises(TableInUse):
        register(tmp_path, "delta")
    assert column(tmp_path, "delta", "id") == [1]


def test_what_cannot_be_is_refused_before_anything_is_made(kept: Keeper, tmp_path: Path) -> None:
    sealed(kept, track(1))
    for wrong in ({"format": "parquet"}, {"grace": -1.0}, {"to": "s3://bucket/table"}):
        said = {"folder": tmp_path / "data", "channel": "air.tracks", "to": tmp_path / "table"} | wrong
        with pytest.raises(InvalidOption, match=next(iter(wrong))):
            jobs.RegisterJob(**said)  # type: ignore[arg-type]
    with pytest.raises(NoHistory, match=r"air\.tracks"):
        jobs.RegisterJob(folder=tmp_path / "data", channel="nothing", to=tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_a_folder_on_another_file_system_is_refused(
    kept: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    sealed(kept, track(1))

    def refuse(*_: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(InvalidOption, match="file system of the station's folder"):
        register(tmp_path, "delta")


def test_a_sealed_file_that_is_not_there_is_damage_unless_the_manifest_changes(
    kept: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(kept, track(0))
    sealed(kept, track(1))
    link = os.link
    raced: list[str] = []

    def merged_meanwhile(source: str, target: Path) -> None:
        if not raced:
            raced.append(source)
            compact(kept)
            partition = kept.writer._partition
            partition.limits = replace(partition.limits, grace_seconds=0.0)
            kept.writer.retain()
        link(source, target)

    monkeypatch.setattr(os, "link", merged_meanwhile)
    assert register(tmp_path, "delta").files == 1
    assert column(tmp_path, "delta") == [0, 1]
    monkeypatch.undo()
    for path in (kept.place / "sealed").iterdir():
        path.unlink()
    with pytest.raises(HistoryDamaged, match="is not there"):
        jobs.register(tmp_path / "data", "air.tracks", tmp_path / "other")


def test_follow_takes_in_what_is_sealed_later(kept: Keeper, tmp_path: Path) -> None:
    import threading

    stop = threading.Event()
    found = []

    def look(done: jobs.Registered) -> None:
        found.append(done.files)
        if len(found) == 1:
            sealed(kept, track(1))
        if done.files:
            stop.set()

    done = register(tmp_path, "delta", follow=True, every=0.01, progress=look, stop=stop)
    assert (done.files, done.commits) == (1, 1)
