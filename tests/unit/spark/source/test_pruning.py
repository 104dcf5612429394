"""Which rows of sealed files are not even planned for, because no filter lets them through."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import HistoryDamaged
from heliograph.journal.format.manifest import Segment
from heliograph.journal.writing import segment_writer as segmentwriter
from heliograph.model import field_types as ft
from heliograph.model.field_types import EPOCH
from heliograph.model.formats import Field, Format
from heliograph.spark.source import plan as planning
from heliograph.spark.source.filters import parsed, stored_times
from heliograph.spark.source.plan import slices_of
from heliograph.spark.source.source import HeliographSource
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = 10


def at(seconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=(FIRST_TIME + seconds * SECOND) // 1000)


class Track(hg.Event, name="air.track", key="id"):
    id: int
    region: str = "north"


class WiderTrack(hg.Event, name="air.track", key="id"):
    id: int
    region: str = "north"
    squawk: int = 0


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    """A hundred events in row groups of ten, forty and forty in two sealed files, and twenty in the head."""
    monkeypatch.setattr(segmentwriter, "ROW_GROUP", GROUP)
    monkeypatch.setattr(planning, "ROW_GROUP", GROUP)
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*map(Track, range(40)))
        keeper.seal()
        keeper.push(*map(Track, range(40, 80)))
        keeper.seal()
        keeper.push(*map(Track, range(80, 100)))
        yield keeper


def reader_of(kept: Keeper, **options: str) -> Any:
    source = HeliographSource({"path": str(_folder(kept)), "channel": "air.tracks", **options})
    return source.reader(source.schema())


def planned(kept: Keeper, **options: str) -> list[tuple[int, int]]:
    parts = [part.value for part in reader_of(kept, **options).partitions()]
    return [(part.first, part.next) for part in parts if part is not None]


def ids(reader: Any) -> Iterator[int]:
    for part in reader.partitions():
        for batch in reader.read(part):
            yield from batch.column("id").to_pylist()


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({"filter": "id < 15"}, [(0, 20), (80, 100)]),
        ({"filter": "id > 34 AND id < 55"}, [(30, 60), (80, 100)]),
        ({"filter": "id = 72"}, [(70, 100)]),
        ({"filter": "region = 'south'"}, [(80, 100)]),
        ({"filter": "header.offset >= 65"}, [(60, 100)]),
        ({}, [(0, 100)]),
        ({"filter": "id < 15", "startingOffsets": '{"air.tracks": {"p1": 12}}'}, [(12, 20), (80, 100)]),
    ],
)
def test_only_where_rows_can_pass_there_is_something_to_do(
    kept: Keeper, options: dict[str, str], ranges: list[tuple[int, int]]
) -> None:
    assert planned(kept, **options) == ranges


class Timed(hg.Event, name="air.timed"):
    at: datetime
    size: hg.u64
    exact: datetime | None = None


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """Forty sealed events in row groups of ten: a second apart, sizes beyond what a signed integer holds."""
    monkeypatch.setattr(segmentwriter, "ROW_GROUP", GROUP)
    monkeypatch.setattr(planning, "ROW_GROUP", GROUP)
    with Keeper(tmp_path / "data") as keeper:
        for n in range(40):
            keeper.clock.now = FIRST_TIME + n * SECOND
            time = EPOCH + timedelta(seconds=n)
            keeper.push(Timed(time, 2**63 + n, time))
        keeper.seal()
    return keeper


@pytest.mark.parametrize(
    ("condition", "ranges"),
    [
        ("at < TIMESTAMP '1970-01-01T00:00:15Z'", [(0, 20)]),
        ("exact >= TIMESTAMP '1970-01-01T00:00:30Z'", [(30, 40)]),
        ("at = TIMESTAMP '1970-01-01T00:00:12Z'", [(10, 20)]),
        ("size > 9223372036854775840", [(30, 40)]),
        ("size = 9223372036854775808", [(0, 10)]),
        (f"header.append_ts >= TIMESTAMP '{at(25).isoformat()}'", [(20, 40)]),
        (f"header.source_ts < TIMESTAMP '{at(5).isoformat()}'", [(0, 10)]),
    ],
)
def test_times_and_numbers_that_are_decimals_in_files_leave_row_groups_out(
    timed: Keeper, condition: str, ranges: list[tuple[int, int]]
) -> None:
    assert planned(timed, filter=condition) == ranges


@pytest.mark.parametrize(
    ("condition", "stored"),
    [
        ("header.append_ts > :t", ["_append_ts >= 1000001000L"]),
        ("header.append_ts >= :t AND header.append_ts < :u",
         ["_append_ts >= 1000000000L", "_append_ts < 2000000000L"]),
        ("header.source_ts = :t", ["_source_ts >= 1000000000L", "_source_ts < 1000001000L"]),
        ("header.source_ts <= :t", ["_source_ts < 1000001000L"]),
        ("header.source_ts <= :t OR size = 1", []),
        ("size = 1", []),
    ],
)  # fmt: skip
def test_a_filter_on_times_of_the_header_becomes_one_on_the_columns_of_files(
    condition: str, stored: list[str]
) -> None:
    times = {
        name: EPOCH + timedelta(seconds=n) for name, n in (("t", 1), ("u", 2)) if f":{name}" in condition
    }
    tree = parsed(condition, times or None)
    assert stored_times(tree, {"air.timed": [hg.format_of(Timed)]}) == stored


def test_a_bound_holds_only_where_every_event_type_has_one() -> None:
    tree = parsed("header.append_ts > :t AND size = 1", {"t": EPOCH})
    other = Format("other", (Field("size", ft.Scalar("i64")),))
    assert stored_times(tree, {"air.timed": [hg.format_of(Timed)], "other": [other]}) == [
        "_append_ts >= 1000L"
    ]


def test_a_file_with_a_format_that_nobody_knew_is_left_in(kept: Keeper) -> None:
    known = HeliographSource({"path": str(_folder(kept)), "channel": "air.tracks", "filter": "id < 15"})
    schema = known.schema()
    kept.push(*(WiderTrack(n, squawk=7) for n in range(100, 120)))
    kept.seal()
    later = HeliographSource(known.options)  # covers the new file, though the formats are those of before
    later._known = known._known
    reader: Any = later.reader(schema)
    assert [(part.value.first, part.value.next) for part in reader.partitions()] == [(0, 20), (80, 120)]


def test_a_file_that_cannot_be_read_is_left_in(kept: Keeper) -> None:
    _, second = sorted((kept.place / "sealed").iterdir())
    second.write_bytes(b"")
    assert planned(kept, filter="id < 15") == [(0, 20), (40, 100)]


def test_a_damaged_row_group_is_named_exactly_and_costs_nobody_who_does_not_want_it(kept: Keeper) -> None:
    first, _ = sorted((kept.place / "sealed").iterdir())
    data = bytearray(first.read_bytes())
    ends = [end for end, _ in kept.writer._partition.manifest.segments[0].pieces]
    data[(ends[1] + ends[2]) // 2] ^= 1  # in the third of four row groups
    first.write_bytes(data)
    rows = ids(reader_of(kept))
    assert [next(rows) for _ in range(20)] == list(range(20))
    with pytest.raises(HistoryDamaged, match="offsets 20 to 29 ") as refused:
        next(rows)
    assert (refused.value.first, refused.value.next_available) == (20, 30)
    assert list(ids(reader_of(kept, filter="id < 15"))) == list(range(15))


def test_parts_end_between_row_groups_and_many_small_files_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ROW_GROUP", GROUP)
    monkeypatch.setattr(planning, "SLICE_ROWS", 4 * GROUP)
    files = [
        Segment("large", 0, 93, 1, 0, 0),
        *(Segment(f"{n}", n, n + 3, 1, 0, 0) for n in range(93, 201, 3)),
    ]
    parts = list(slices_of("air.tracks", "p", 5, 300, files))
    assert [part.first for part in parts] == [5, 40, 80, 120, 159, 198, 238, 278]
    assert [part.next for part in parts] == [*(part.first for part in parts[1:]), 300]


def _folder(keeper: Keeper) -> Path:
    return Path(*keeper.place.parts[: keeper.place.parts.index("channels")])
