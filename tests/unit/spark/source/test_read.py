"""What `heliograph.spark.read` decides and computes without Spark: the plan of a read, and Arrow batches."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

import heliograph as hg
from heliograph.errors import FormatError, HistoryDamaged, HistoryGone, NoHistory, NotPossible
from heliograph.journal.format.records import TOMBSTONE
from heliograph.spark.source.filters import joined_format
from heliograph.spark.source.plan import SLICE_ROWS, Plan, chosen_types, plan_read, slices_of
from heliograph.spark.source.rows import schema
from heliograph.spark.source.tasks import Job, batches
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class NewTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str | None = None


class Alarm(hg.Event, name="air.alarm"):
    level: int
    speed: str = ""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Keeper]:
    """Offsets 0 to 9 sealed, 10 to 14 in a head; ten events a second."""
    with Keeper(tmp_path) as keeper:
        for n in range(15):
            if n == 10:
                keeper.seal()
            keeper.clock.now = FIRST_TIME + n * SECOND // 10
            keeper.push(Track(n, n * 10.0))
        yield keeper


def plan(folder: Path, start: Any = None, until: Any = None, *, fail_on_data_loss: bool = True) -> Plan:
    return plan_read(folder, "air.tracks", start, until, fail_on_data_loss=fail_on_data_loss)


def ranges(planned: Plan) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return [(f.first, f.next) for f in planned.files], [(s.first, s.next) for s in planned.slices]


def rows(folder: Path, planned: Plan, **options: Any) -> list[dict[str, Any]]:
    """What our source makes of the slices and, to see the same rows through it, of the sealed files."""
    slices = (*planned.slices, *(file.slice() for file in planned.files))
    if "joined" in options:
        joined = options.pop("joined")
    else:
        joined = joined_format(chosen_types("air.tracks", planned.formats, None))
    job = Job(
        **{
            "folder": str(folder),
            "formats": tuple(fmt.description for fmt in planned.formats),
            "joined": joined.description if joined else None,
            "types": None,
            "fail_on_data_loss": True,
            "slices": slices,
            **options,
        }
    )
    again = msgspec.json.decode(msgspec.json.encode(job), type=Job)
    tables = [pa.Table.from_batches(batches(again, part), schema(joined)) for part in again.slices]
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return sorted(found, key=lambda row: row["header"]["offset"])


def test_sealed_files_and_ranges_together_are_the_whole_history(kept: Keeper, tmp_path: Path) -> None:
    assert ranges(plan(tmp_path)) == ([(0, 10)], [(10, 15)])
    assert [row["id"] for row in rows(tmp_path, plan(tmp_path))] == list(range(15))


@pytest.mark.parametrize(
    ("start", "until", "expected"),
    [
        ("earliest", "now", ([(0, 10)], [(10, 15)])),
        ("latest", None, ([], [])),
        (3, 7, ([(3, 7)], [])),
        (12, None, ([], [(12, 15)])),
        (5, 12, ([(5, 10)], [(10, 12)])),
        (14, 99, ([], [(14, 15)])),
        (99, None, ([], [])),
        ({"p1": 4}, {"p1": 11}, ([(4, 10)], [(10, 11)])),
        (None, {"another": 11}, ([], [])),
    ],
)
def test_start_and_until_cut_files_and_ranges(
    kept: Keeper, tmp_path: Path, start: Any, until: Any, expected: Any
) -> None:
    assert ranges(plan(tmp_path, start, until)) == expected


def test_times_are_those_of_appending(kept: Keeper, tmp_path: Path) -> None:
    first = datetime.fromtimestamp(FIRST_TIME / SECOND, UTC)
    planned = plan(tmp_path, first + timedelta(seconds=0.4), first + timedelta(seconds=1.2))
    assert ranges(planned) == ([(4, 10)], [(10, 12)])


@pytest.mark.parametrize("point", ["tomorrow", -1, True, datetime(2026, 1, 1), 1.5])  # noqa: DTZ001 - naive on purpose
def test_what_is_no_point_in_a_history_is_refused(kept: Keeper, tmp_path: Path, point: Any) -> None:
    with pytest.raises(NotPossible, match="is no place in its history"):
        plan(tmp_path, start=point)


def test_a_file_that_is_wanted_in_part_says_so(kept: Keeper, tmp_path: Path) -> None:
    assert [file.whole for file in plan(tmp_path).files] == [True]
    assert [file.whole for file in plan(tmp_path, 1).files] == [False]


def test_what_is_appended_or_sealed_after_planning_changes_no_row(kept: Keeper, tmp_path: Path) -> None:
    planned = plan(tmp_path)
    before = rows(tmp_path, planned)
    kept.push(Track(99))
    kept.seal()
    assert rows(tmp_path, planned) == before
    assert len(rows(tmp_path, plan(tmp_path))) == 16


def test_partitions_are_planned_one_by_one(kept: Keeper, tmp_path: Path) -> None:
    with Keeper(tmp_path, partition="p2") as other:
        other.push(Track(100), Track(101))
        planned = plan(tmp_path, start=1)
        assert {(part.partition, part.first, part.next) for part in planned.slices} == {
            ("p1", 10, 15),
            ("p2", 1, 2),
        }


def test_a_head_is_cut_into_parts_for_several_tasks() -> None:
    parts = list(slices_of("air.tracks", "p", 5, 5 + 2 * SLICE_ROWS + 1))
    assert [part.next - part.first for part in parts] == [SLICE_ROWS, SLICE_ROWS, 1]
    assert (parts[0].first, parts[-1].next) == (5, 6 + 2 * SLICE_ROWS)
    assert list(slices_of("air.tracks", "p", 5, 5)) == []


def test_the_schema_knows_formats_that_lie_outside_of_the_range(kept: Keeper, tmp_path: Path) -> None:
    kept.push(NewTrack(15, 1.0, "north"))
    planned = plan(tmp_path, until=3)
    assert joined_format(chosen_types("x", planned.formats, None)).by_name.keys() == {"id", "speed", "region"}


def test_the_header_has_what_was_kept_of_it(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        facts = {
            "priority": 5,
            "correlation_id": "c",
            "headers": {"trace": "ab"},
            "hops": 2,
            "lifetime_ns": 9,
        }
        keeper.push(Track(7), source_ts=-1, **facts)
        header = rows(tmp_path, plan(tmp_path))[0]["header"]
    assert header == {
        "channel": "air.tracks",
        "type": "air.track",
        "supplier": "radar",
        "epoch": 1,
        "sequence": 1,
        "source_ts": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        "append_ts": datetime.fromtimestamp(FIRST_TIME / SECOND, UTC),
        "station_seq": 1,
        "offset": 0,
        "partition": "p1",
        "priority": 5,
        "hops": 2,
        "correlation_id": "c",
        "redelivered": False,
        "user": [("trace", "ab")],
        "source_ns": -1,
        "append_ns": FIRST_TIME,
        "lifetime_ns": 9,
        "format_id": hg.format_of(Track).id,
    }


def test_a_body_that_does_not_decode_is_a_row_of_nulls(kept: Keeper, tmp_path: Path) -> None:
    kept.append(msgspec.structs.replace(kept.record(Track(1)), body=b"\xc1"))
    *_, good, bad = rows(tmp_path, plan(tmp_path))
    assert (good["id"], good["speed"]) == (14, 140.0)
    assert (bad["id"], bad["speed"], bad["header"]["offset"]) == (None, None, 15)


def test_integers_of_a_header_beyond_64_bits_are_null(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1), source_ts=1 << 63)
        keeper.push(Track(2), source_ts=5)
        first, second = (row["header"] for row in rows(tmp_path, plan(tmp_path)))
        assert (first["source_ns"], first["source_ts"], second["source_ns"]) == (None, None, 5)
        keeper.seal()
        planned = plan(tmp_path)
        assert ranges(planned) == ([], [(0, 2)]), "such a file is read row by row"
        assert [row["header"]["source_ns"] for row in rows(tmp_path, planned)] == [None, 5]


def test_tombstones_are_no_events_but_have_an_envelope(kept: Keeper, tmp_path: Path) -> None:
    kept.append(msgspec.structs.replace(kept.record(Track(1)), kind=TOMBSTONE, key=b"\x91\x01"))
    assert len(rows(tmp_path, plan(tmp_path))) == 15
    last = rows(tmp_path, plan(tmp_path), joined=None)[-1]
    assert (last["kind"], last["key"]) == (TOMBSTONE, b"\x91\x01")


def test_only_the_wanted_types_become_rows(kept: Keeper, tmp_path: Path) -> None:
    kept.push(Alarm(3))
    planned = plan(tmp_path)
    chosen = chosen_types("air.tracks", planned.formats, ["air.alarm"])
    found = rows(tmp_path, planned, joined=joined_format(chosen), types=("air.alarm",))
    assert [(row["level"], row["header"]["type"]) for row in found] == [(3, "air.alarm")]


def test_a_missing_folder_and_a_missing_channel_are_named_with_what_is_there(
    kept: Keeper, tmp_path: Path
) -> None:
    with pytest.raises(NoHistory, match="is no folder in which a station has kept a history"):
        plan(tmp_path / "elsewhere")
    with pytest.raises(
        NoHistory, match=r"no history of 'air.trucks'; it holds that of air\.tracks"
    ) as caught:
        plan_read(tmp_path, "air.trucks", None, None, fail_on_data_loss=True)
    assert caught.value.found == ("air.tracks",)
    with pytest.raises(NoHistory):
        plan_read(tmp_path, "x" * 300, None, None, fail_on_data_loss=True)


def test_types_are_chosen_by_name_or_class_and_unknown_ones_are_refused() -> None:
    known = [hg.format_of(cls) for cls in (Track, NewTrack, Alarm)]
    assert chosen_types("c", known, None).keys() == {"air.track", "air.alarm"}
    assert chosen_types("c", known, "air.alarm") == {"air.alarm": [known[2]]}
    assert chosen_types("c", known, [NewTrack]) == {"air.track": [known[1], known[0]]}
    assert chosen_types("c", [], Track) == {"air.track": [known[0]]}
    with pytest.raises(NotPossible, match=r"no events of type 'air.truck'; it has air.alarm, air.track"):
        chosen_types("c", known, ["air.truck"])


def test_types_that_cannot_share_a_column_are_refused_with_a_way_out() -> None:
    known = [hg.format_of(cls) for cls in (Track, Alarm)]
    with pytest.raises(FormatError, match=r"choose some of air.alarm, air.track with types=") as caught:
        joined_format(chosen_types("c", known, None))
    assert caught.value.path == "$.speed"


def test_a_field_that_another_type_would_turn_into_any_data_is_refused() -> None:
    class Free(hg.Event, name="free"):
        level: hg.Any

    with pytest.raises(FormatError, match=r"air.alarm has i64 where another event type has something else"):
        joined_format({"air.alarm": [hg.format_of(Alarm)], "free": [hg.format_of(Free)]})


def test_what_retention_has_removed_fails_unless_that_is_allowed(kept: Keeper, tmp_path: Path) -> None:
    planned = plan(tmp_path, start=2)
    manifest = kept.writer._partition.manifest
    kept.writer._partition._publish(
        msgspec.structs.replace(manifest, earliest=10, segments=()), [manifest.segments[0].name]
    )
    with pytest.raises(HistoryGone) as gone:
        rows(tmp_path, planned)
    assert (gone.value.first, gone.value.next_available) == (2, 10)
    with pytest.raises(HistoryGone):
        plan(tmp_path, start=2)
    assert ranges(plan(tmp_path)) == ([], [(10, 15)]), "what is left is all there is"
    assert ranges(plan(tmp_path, start=2, fail_on_data_loss=False)) == ([], [(10, 15)])
    assert [row["id"] for row in rows(tmp_path, planned, fail_on_data_loss=False)] == list(range(10, 15))


def test_damage_fails_with_its_range_unless_it_may_be_left_out(kept: Keeper, tmp_path: Path) -> None:
    head = next((kept.place / "heads").iterdir())
    data = bytearray(head.read_bytes())
    middle = data.index(b"HgFr", data.index(b"HgFr") + 4) + 90
    data[middle] ^= 1
    head.write_bytes(data)
    with pytest.raises(HistoryDamaged) as damaged:
        rows(tmp_path, plan(tmp_path))
    assert (damaged.value.first, damaged.value.next_available) == (11, 12)
    left = rows(tmp_path, plan(tmp_path), fail_on_data_loss=False)
    assert [row["id"] for row in left] == [n for n in range(15) if n != 11]


def test_a_sealed_file_with_a_broken_footer_is_left_to_the_source_which_has_another(
    kept: Keeper, tmp_path: Path
) -> None:
    (sealed,) = (kept.place / "sealed").iterdir()
    sealed.write_bytes(sealed.read_bytes()[:-3] + b"???")
    planned = plan(tmp_path)
    assert ranges(planned) == ([], [(0, 15)])
    assert [row["id"] for row in rows(tmp_path, planned)] == list(range(15))


def test_who_allows_for_loss_gets_all_but_the_damaged_rows_of_a_sealed_file(
    kept: Keeper, tmp_path: Path
) -> None:
    (sealed,) = (kept.place / "sealed").iterdir()
    data = bytearray(sealed.read_bytes())
    data[40] ^= 1
    sealed.write_bytes(data)
    trusting = plan(tmp_path)
    assert ranges(trusting) == ([(0, 10)], [(10, 15)]), "Spark's own checksums fail this job"
    planned = plan(tmp_path, fail_on_data_loss=False)
    assert ranges(planned) == ([], [(0, 15)])
    with pytest.raises(HistoryDamaged) as damaged:
        rows(tmp_path, planned)
    assert (damaged.value.first, damaged.value.next_available) == (0, 10)
    left = rows(tmp_path, planned, fail_on_data_loss=False)
    assert [row["id"] for row in left] == list(range(10, 15))


def test_executors_load_neither_channels_nor_stations_nor_links() -> None:
    script = (
        "import sys; import heliograph.spark.source.source; "
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('heliograph.')}; "
        "print(sorted(rooms & {'channel', 'station', 'link', 'match', 'manager', 'sim', 'cli', 'qos'}))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.splitlines() == ["[]"], result.stderr


def test_importing_the_package_does_not_import_spark_or_arrow() -> None:
    script = (
        "import sys; import heliograph.spark; assert callable(heliograph.spark.read); "
        "print(sorted({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.splitlines() == ["[]"], result.stderr
