"""Rows as Spark gets them, without Spark: the same sealed or not; changes and bad bytes by policy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import heliograph as hg
from heliograph.codec import encoder
from heliograph.errors import BadRecord, HistoryDamaged, HistoryGone, InvalidOption, SchemaChanged
from heliograph.journal.format.folder import StationFolder, partition_folder
from heliograph.journal.format.records import TOMBSTONE
from heliograph.journal.reading.reader import PartitionReader
from heliograph.model.event import format_of
from heliograph.model.formats import Format
from heliograph.runtime.ports import LocalDisk
from heliograph.spark.source import segments
from heliograph.spark.source import tasks as slices
from heliograph.spark.source.columns import full_schema, insist_on_columns
from heliograph.spark.source.filters import joined_format
from heliograph.spark.source.plan import chosen_types, learn_formats
from heliograph.spark.source.source import HeliographSource
from heliograph.spark.source.tasks import Job, Slice, batches
from tests.unit.spark.histories import SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PLACE = partition_folder("air.tracks", "p1")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str | None = None


class WiderTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str | None = None
    squawk: int = 0


class ChangedTrack(hg.Event, name="air.track", key="id"):
    id: str
    speed: float = 0.0


class Alarm(hg.Event, name="air.alarm"):
    level: int


def job(folder: Path, known: Sequence[Format] | None = None, **options: Any) -> Job:
    formats = tuple(known) if known is not None else _formats(folder)
    types = options.get("types")
    joined = joined_format(chosen_types("air.tracks", formats, types))
    facts = {
        "folder": str(folder),
        "formats": tuple(fmt.description for fmt in formats),
        "joined": joined.description,
        "types": types,
        "fail_on_data_loss": True,
        "bad_records": "fail",
        **options,
    }
    return Job(**facts)


def _formats(folder: Path) -> tuple[Format, ...]:
    with PartitionReader(LocalDisk(folder, create=False), PLACE) as reader:
        learn_formats(reader)
        return reader.formats.formats()


def columns(of: Job, **options: bool) -> pa.Schema:
    joined = None if of.joined is None else Format.from_description(of.joined)
    return full_schema(joined, include_headers=True, **options)


def rows(of: Job, first: int, end: int, wanted: pa.Schema | None = None) -> list[dict[str, Any]]:
    part = Slice("p1", PLACE, first, end, "air.tracks")
    wanted = columns(of) if wanted is None else wanted
    found = list(batches(of, part, wanted))
    assert all(batch.schema == wanted and batch.num_rows for batch in found)
    listed: list[dict[str, Any]] = pa.Table.from_batches(found, wanted).to_pylist()
    return listed


@pytest.fixture
def twice(tmp_path: Path) -> Iterator[Path]:
    """The same forty rows at offsets 0 and 40: sealed there, in a head here."""
    events = [
        Track(n, math.nan if n % 7 == 3 else n * 10.0, [None, "north", "süd"][n % 3]) for n in range(38)
    ]
    with Keeper(tmp_path) as keeper:
        for sealed in (True, False):
            for n, event in enumerate(events):
                keeper.push(event, headers={"n": str(n)} if n % 5 == 0 else None, priority=n % 4)
            keeper.push(Alarm(1))
            keeper.append(keeper.record(Track(5), kind=TOMBSTONE, key=msgspec.msgpack.encode([5])))
            if sealed:
                keeper.seal()
        yield tmp_path


def same(sealed: list[dict[str, Any]], unsealed: list[dict[str, Any]]) -> bool:
    """Whether rows differ in nothing but where and when they were appended."""
    for row in (*sealed, *unsealed):
        header = row.get("header") or {}
        for name in ("sequence", "station_seq"):
            header.pop(name, None)
        if "offset" in header:
            header["offset"] %= 40
    return repr(sealed) == repr(unsealed)


FILTERS = [
    None,
    "id < 10",
    "speed > 200",
    "speed <= 200 AND region = 'north'",
    "region IS NULL",
    "header.priority = 2 AND header.user['n'] = '10'",
    "level = 1",
    "id IN (3, 4) OR speed = 50",
    "header.offset >= 0",
]


@pytest.mark.parametrize("where", FILTERS)
def test_rows_are_the_same_sealed_and_in_the_head(twice: Path, where: str | None) -> None:
    of = job(twice, where=where)
    sealed, unsealed = rows(of, 0, 40), rows(of, 40, 80)
    assert sealed
    assert same(sealed, unsealed)


def test_tombstones_are_in_envelopes_only(twice: Path) -> None:
    of = job(twice)
    assert len(rows(of, 0, 40)) == 39
    envelopes = msgspec.structs.replace(of, joined=None)
    sealed, unsealed = rows(envelopes, 0, 40), rows(envelopes, 40, 80)
    assert len(sealed) == 40
    assert same(sealed, unsealed)


@pytest.mark.parametrize("start", [0, 40])
def test_only_the_columns_that_are_wanted_are_there(twice: Path, start: int) -> None:
    wanted = pa.schema(
        [("region", pa.string()), ("header", pa.struct([("offset", pa.int64()), ("type", pa.string())]))]
    )
    found = rows(job(twice, where="speed = 50", types=("air.track",)), start, start + 40, wanted)
    assert found == [{"region": "süd", "header": {"offset": start + 5, "type": "air.track"}}]


def test_row_groups_without_a_matching_row_are_not_read(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("heliograph.journal.writing.segment_writer.ROW_GROUP", 10)
    read: list[int] = []
    original = segments._Part.read

    def noted(group: Any, names: Sequence[str]) -> Any:
        read.append(group.group)
        return original(group, names)

    monkeypatch.setattr(segments._Part, "read", noted)
    with Keeper(tmp_path) as keeper:
        keeper.push(*(Track(n, float(n)) for n in range(50)))
        keeper.writer.rotate()
        keeper.seal()
        for condition, groups in [
            ("id = 25", [2]),
            ("id < 10", [0]),
            ("id >= 40", [4]),
            ("id IN (1, 49)", [0, 4]),
            ("speed < 5", [0]),
            ("speed > 45", [0, 1, 2, 3, 4]),  # any group may hold a NaN that statistics leave out
            ("header.offset > 38", [3, 4]),
            ("id > 1000", []),
        ]:
            read.clear()
            rows(job(tmp_path, where=condition), 0, 50)
            assert read == groups, condition


@pytest.mark.parametrize("sealed", [True, False])
def test_new_fields_fail_are_left_out_or_rescued(tmp_path: Path, sealed: bool) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1), WiderTrack(2, squawk=7000))
        if sealed:
            keeper.seal()
        known = [format_of(Track)]
        with pytest.raises(SchemaChanged, match="squawk has no column") as raised:
            rows(job(tmp_path, known), 0, 2)
        assert raised.value.event == "air.track"
        # Whoever chose the columns does not mind a field that he did not choose.
        assert [row["id"] for row in rows(job(tmp_path, known, explicit=True), 0, 2)] == [1, 2]
        assert [row["id"] for row in rows(job(tmp_path, known, evolution="ignore"), 0, 2)] == [1, 2]
        of = job(tmp_path, known, evolution="rescue")
        found = rows(of, 0, 2, columns(of, rescued=True))
        assert [(row["id"], row["_rescued"]) for row in found] == [(1, None), (2, '{"squawk":7000}')]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_field_that_no_longer_fits_its_column_is_null_or_rescued(tmp_path: Path, sealed: bool) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1, 5.0))
        keeper.push(ChangedTrack("two", 6.0))
        if sealed:
            keeper.seal()
        known = [format_of(Track)]
        for explicit in (False, True):
            with pytest.raises(SchemaChanged, match="id is str"):
                rows(job(tmp_path, known, explicit=explicit), 0, 2)
        of = job(tmp_path, known, evolution="rescue")
        found = rows(of, 0, 2, columns(of, rescued=True))
        assert [(row["id"], row["speed"], row["_rescued"]) for row in found] == [
            (1, 5.0, None),
            (None, 6.0, '{"id":"two"}'),
        ]
        assert [row["id"] for row in rows(job(tmp_path, known, evolution="ignore"), 0, 2)] == [1, None]


def test_an_event_type_that_comes_later_is_filtered_as_a_channel_would(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1, 5.0), Alarm(3))
        of = job(tmp_path, [format_of(Track)], evolution="ignore", where="speed > 1")
        assert [row["id"] for row in rows(of, 0, 2)] == [1]
        with pytest.raises(SchemaChanged, match="level has no column"):
            rows(job(tmp_path, [format_of(Track)]), 0, 2)
        assert len(rows(job(tmp_path, [format_of(Track)], types=("air.track",)), 0, 2)) == 1


@pytest.mark.parametrize("sealed", [True, False])
def test_bad_bytes_fail_are_left_out_or_kept_beside(tmp_path: Path, sealed: bool) -> None:
    with Keeper(tmp_path) as keeper:
        good = keeper.record(Track(1))
        keeper.append(good, msgspec.structs.replace(good, body=b"\xc1"), keeper.record(Track(3)))
        if sealed:
            keeper.seal()
        with pytest.raises(BadRecord) as raised:
            rows(job(tmp_path), 0, 3)
        assert raised.value.offset == 1
        assert [row["id"] for row in rows(job(tmp_path, bad_records="skip"), 0, 3)] == [1, 3]
        of = job(tmp_path, bad_records="column")
        found = rows(of, 0, 3, columns(of, bad=True))
        assert [(row["id"], row["_bad"]) for row in found] == [(1, None), (None, b"\xc1"), (3, None)]


@pytest.mark.parametrize("sealed", [True, False])
def test_bad_bytes_among_several_event_types_are_found(tmp_path: Path, sealed: bool) -> None:
    with Keeper(tmp_path) as keeper:
        alarm = keeper.record(Alarm(1))
        keeper.append(keeper.record(Track(1)), msgspec.structs.replace(alarm, body=b"\xc1"), alarm)
        if sealed:
            keeper.seal()
        of = job(tmp_path, bad_records="column")
        found = rows(of, 0, 3, columns(of, bad=True))
        assert [(row["id"], row["level"], row["_bad"]) for row in found] == [
            (1, None, None),
            (None, None, b"\xc1"),
            (None, 1, None),
        ]


def test_a_file_that_retention_dropped_is_read_until_its_grace_is_over(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1), Track(2))
        keeper.seal()
        keeper.push(Track(3))
        of = job(tmp_path)
        partition = keeper.writer._partition
        partition.limits = replace(partition.limits, keep_seconds=1.0, grace_seconds=10.0)
        keeper.clock.now += 5 * SECOND
        partition.retain()
        assert partition.manifest.earliest == 2
        assert [row["id"] for row in rows(of, 0, 3)] == [1, 2, 3]
        keeper.clock.now += 20 * SECOND
        partition.retain()
        with pytest.raises(HistoryGone) as gone:
            rows(of, 0, 3)
        assert (gone.value.first, gone.value.next_available) == (0, 2)
        lenient = msgspec.structs.replace(of, fail_on_data_loss=False)
        assert [row["id"] for row in rows(lenient, 0, 3)] == [3]


def test_a_schema_with_other_columns_or_types_is_refused(twice: Path) -> None:
    there = columns(job(twice))
    insist_on_columns(pa.schema([("speed", pa.float64())]), there)
    insist_on_columns(pa.schema([("header", pa.struct([("offset", pa.int64())]))]), there)
    for wrong, sentence in [
        (pa.schema([("sped", pa.float64())]), "columns of this history: header, level, id"),
        (pa.schema([("speed", pa.int64())]), "the type double"),
        (pa.schema([("header", pa.struct([("place", pa.int64())]))]), "columns of this history: channel"),
    ]:
        with pytest.raises(InvalidOption) as refused:
            insist_on_columns(wrong, there)
        assert sentence in str(refused.value)


class Spot(hg.Event, name="spot"):
    lat: hg.f32
    lon: hg.f32


class Seen(hg.Event, name="seen"):
    small: hg.i16
    place: Spot | None = None


def test_a_schema_may_name_a_part_of_a_struct_and_a_wider_number(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Seen(7, Spot(1.5, 2.5)), Seen(8))
        keeper.seal()
        keeper.push(Seen(9, Spot(3.5, 4.5)))
    source = HeliographSource({"path": str(tmp_path), "channel": "air.tracks"})
    wanted = StructType().add("place", StructType().add("lon", "double")).add("small", "long")
    reader: Any = source.reader(wanted)
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [
        {"place": {"lon": 2.5}, "small": 7},
        {"place": None, "small": 8},
        {"place": {"lon": 4.5}, "small": 9},
    ]
    for narrower in (
        StructType().add("small", "byte"),
        StructType().add("place", StructType().add("lon", "integer")),
        StructType().add("place", StructType().add("height", "float")),
    ):
        with pytest.raises(InvalidOption):
            HeliographSource(source.options).reader(narrower)


def pushed_together(folder: Path, *lots: list[Track]) -> None:
    """Lots of events, each of which is a run in the head."""
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        for lot in lots:
            tracks.push_many(lot)
            tracks.push(lot[0])


def of_station(folder: Path) -> tuple[str, str]:
    (partition,) = StationFolder(folder).partitions("air.tracks")
    return partition, partition_folder("air.tracks", partition)


def test_runs_are_read_from_a_head_as_the_journal_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed_together(
        tmp_path,
        [Track(n, n * 1.5, None if n % 3 else "süd") for n in range(25)],
        [Track(-n, math.nan) for n in range(10)],
    )
    partition, place = of_station(tmp_path)
    with PartitionReader(LocalDisk(tmp_path, create=False), place) as reader:
        learn_formats(reader)
        records = reader.read(0)
        formats = reader.formats.formats()
    assert len(records) == 37
    monkeypatch.setattr(slices, "BATCH_ROWS", 7)
    of = job(tmp_path, formats)
    wanted = columns(of)
    for first, end in ((0, 37), (3, 20), (24, 26), (26, 36)):
        part = Slice(partition, place, first, end, "air.tracks")
        found = pa.Table.from_batches(batches(of, part, wanted), wanted).to_pylist()
        assert [row["header"]["offset"] for row in found] == list(range(first, end))
        for row, kept in zip(found, records[first:end], strict=True):
            header, record = row["header"], kept.record
            assert repr([row["id"], row["speed"], row["region"]]) == repr(msgspec.msgpack.decode(record.body))
            assert header["append_ns"] == kept.append_ts
            for name in ("supplier", "epoch", "sequence", "station_seq", "priority", "format_id"):
                assert header[name] == getattr(record, name)


def test_damage_inside_of_a_head_costs_the_rows_of_its_frame_only(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        for n in range(5):
            keeper.push(Track(n), Track(n))
        (head,) = (keeper.place / "heads").iterdir()
        good = head.read_bytes()
        body = encoder(Track).encode(Track(2))
        head.write_bytes(good.replace(body, body[:1] + b"\x7f" + body[2:]))
        with pytest.raises(HistoryDamaged) as damaged:
            rows(job(tmp_path), 0, 10)
        assert (damaged.value.first, damaged.value.next_available) == (4, 6)
        found = rows(job(tmp_path, fail_on_data_loss=False), 0, 10)
        assert [row["header"]["offset"] for row in found] == [0, 1, 2, 3, 6, 7, 8, 9]
