"""The sink without a running Spark: options, the choice of a format, rows to bodies."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import heliograph as hg
from heliograph.codec import decoder, encoder
from heliograph.errors import AdoptionTimeout, FormatError, InvalidEvent, InvalidOption, NoHistory
from heliograph.journal.inbox.staging import StageWriter, key_of, make_inbox
from heliograph.model import field_types as ft
from heliograph.model.event import format_of
from heliograph.runtime.ports import system_ports
from heliograph.spark.sink.options import MAX_WRITER, SinkOptions, parse_sink_options
from heliograph.spark.sink.rows import RowTarget, body_maker, sink_target
from heliograph.spark.sink.sink import Handing, Staged, _portions, run_sink, stream_sink
from tests.spark.totals import Filled, Total

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import WriterCommitMessage

PERSISTENT = hg.QoS(durability="persistent")
LEAST = {"path": "data", "channel": "totals"}
SCHEMA = StructType().add("id", LongType()).add("note", StringType()).add("mean", DoubleType())


def test_options_are_told_apart_without_case() -> None:
    given = {**LEAST, "WRITERID": "w", "newcheckpoint": "Accept", "adopt": "leave", "adoptTimeout": "500ms"}
    assert parse_sink_options(given, stream=True) == SinkOptions(
        path="data", channel="totals", writer="w", accepts_new=True, adopt="leave", timeout=0.5
    )
    batch = {**LEAST, "runId": "r", "priority": "5", "create": "true", "key": "a, b", "type": "t"}
    assert parse_sink_options(batch, stream=False) == SinkOptions(
        path="data", channel="totals", run="r", priority=5, creates=True, key=("a", "b"), type="t"
    )


@pytest.mark.parametrize(
    ("given", "stream", "sentence"),
    [
        ({"channel": "a"}, True, "'path' is missing"),
        ({"path": "a"}, False, "'channel' is missing"),
        (LEAST, True, "'writerId' is missing"),
        ({**LEAST, "writerId": "w/1"}, True, "letters, digits"),
        ({**LEAST, "writerId": "w" * (MAX_WRITER + 1)}, True, "letters, digits"),
        ({**LEAST, "writerId": "w", "runId": "r"}, True, "no option 'runid'"),
        ({**LEAST, "writerId": "w"}, False, "no option 'writerid'"),
        ({**LEAST, "runid": ""}, False, "'runId' cannot be ''"),
        ({**LEAST, "canale": "x"}, False, "did you mean 'channel'"),
        ({**LEAST, "priority": "6"}, False, "1 .low. to 5 .high."),
        ({**LEAST, "adopt": "maybe"}, False, "wait or leave"),
        ({**LEAST, "adoptTimeout": "soon"}, False, "a time such as"),
        ({**LEAST, "event": "Total"}, False, "package.module:Class"),
        ({**LEAST, "key": "id"}, False, "'create' is missing"),
        ({**LEAST, "channels": "a,b"}, False, "channel or channels, not both"),
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(
    given: dict[str, str], stream: bool, sentence: str
) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        parse_sink_options(given, stream=stream)


def options(folder: Path, **more: Any) -> SinkOptions:
    return SinkOptions(path=str(folder), channel="totals", **more)


def test_the_format_is_that_of_the_channel(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        station.channel("totals", Total, qos=PERSISTENT).push(Total(1, "a"))
        assert sink_target(options(tmp_path), SCHEMA).format == format_of(Total)


def test_of_several_versions_the_newest_counts(tmp_path: Path) -> None:
    class Older(hg.Event, name="air.total", key="id"):
        id: int

    for cls, event in ((Older, Older(1)), (Total, Total(2, "x"))):
        with hg.Station(tmp_path) as station:
            station.channel("totals", cls, qos=PERSISTENT).push(event)
    assert sink_target(options(tmp_path), SCHEMA).format == format_of(Total)


def test_a_field_that_was_widened_is_seen_by_the_next_query(tmp_path: Path) -> None:
    class Narrow(hg.Event, name="air.total"):
        id: hg.i32

    class Wide(hg.Event, name="air.total"):
        id: int

    narrow, wide = StructType().add("id", IntegerType()), StructType().add("id", LongType())
    with hg.Station(tmp_path) as station:
        station.channel("totals", Narrow, qos=PERSISTENT).push(Narrow(1))
        assert sink_target(options(tmp_path), narrow).format == format_of(Narrow)
    with hg.Station(tmp_path) as station:
        station.channel("totals", Wide).push(Wide(1 << 40))
    assert sink_target(options(tmp_path), wide).format == format_of(Wide)


def test_a_type_that_the_channel_does_not_carry_is_refused_as_push_refuses_it(tmp_path: Path) -> None:
    class Alarm(hg.Event, name="air.alarm"):
        level: int

    with hg.Station(tmp_path) as station:
        opened: hg.Channel[Any] = station.channel("totals", Alarm, qos=PERSISTENT)
        with pytest.raises(hg.WrongEventType):
            opened.push(Total(1, "a"))
        for more in ({"event": "tests.spark.totals:Total"}, {"creates": True, "type": "air.total"}):
            with pytest.raises(hg.WrongEventType, match=r"carries air\.alarm, not air\.total; opening it"):
                sink_target(options(tmp_path, **more), SCHEMA)
        station.channel("totals", Total)
        assert sink_target(options(tmp_path, type="air.total"), SCHEMA).format == format_of(Total)


def test_a_version_that_does_not_go_together_with_the_class_of_the_channel_is_refused(tmp_path: Path) -> None:
    class Other(hg.Event, name="air.total"):
        id: str

    with hg.Station(tmp_path) as station:
        station.channel("totals", Other, qos=PERSISTENT)
    with pytest.raises(hg.IncompatibleFormats, match="id"):
        sink_target(options(tmp_path, event="tests.spark.totals:Total"), SCHEMA)


def test_a_channel_that_is_not_there_is_answered_with_how_to_make_it(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        station.channel("total", Total, qos=PERSISTENT)
    for more in ({}, {"event": "tests.spark.totals:Total"}):
        with pytest.raises(NoHistory, match=r"did you mean total\?") as refused:
            sink_target(options(tmp_path, **more), SCHEMA)
        assert '.option("create", "true")' in str(refused.value)
    with pytest.raises(NoHistory, match=r'no folder .*\.option\("create", "true"\)'):
        sink_target(options(tmp_path / "none"), SCHEMA)


def test_of_several_types_one_has_to_be_chosen(tmp_path: Path) -> None:
    class Alarm(hg.Event, name="air.alarm"):
        id: int

    with hg.Station(tmp_path) as station:
        both = station.channel("totals", Total, Alarm, qos=PERSISTENT)
        both.push(Total(1, "a"))
        both.push(Alarm(1))
    with pytest.raises(InvalidOption, match=r"air\.alarm, air\.total"):
        sink_target(options(tmp_path), SCHEMA)
    assert sink_target(options(tmp_path, type="air.total"), SCHEMA).format.name == "air.total"
    with pytest.raises(InvalidOption, match="does not know the type"):
        sink_target(options(tmp_path, type="air.other"), SCHEMA)


def test_a_class_is_named_by_its_path(tmp_path: Path) -> None:
    target = sink_target(options(tmp_path, event="tests.spark.totals:Total", creates=True), SCHEMA)
    assert target == (format_of(Total), None)
    for wrong in ("tests.spark.totals:Missing", "no.such.module:Total", "tests.spark.totals:Colour"):
        with pytest.raises(InvalidOption, match="an event class"):
            sink_target(options(tmp_path, event=wrong), SCHEMA)
    with pytest.raises(InvalidOption, match="the name of that class"):
        sink_target(options(tmp_path, event="tests.spark.totals:Total", type="other"), SCHEMA)


def test_without_a_history_a_format_is_made_only_when_that_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(NoHistory):
        sink_target(options(tmp_path), SCHEMA)
    with pytest.raises(InvalidOption, match="'type' is missing"):
        sink_target(options(tmp_path, creates=True), SCHEMA)
    item = StructType([StructField("n", IntegerType(), nullable=False)])
    schema = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("items", ArrayType(item, containsNull=False)),
        ]
    )
    made = sink_target(options(tmp_path, creates=True, type="made", key=("id",)), schema).format
    assert made.by_name["id"].type == ft.Scalar("i64")
    assert str(made.by_name["items"].type)
    day, span = StructType().add("day", DateType()), StructType().add("span", DayTimeIntervalType())
    dated = sink_target(options(tmp_path, creates=True, type="dated"), day).format
    assert dated.by_name["day"].type == ft.Optional(ft.Scalar("date"))
    with pytest.raises(FormatError, match="cast it"):
        sink_target(options(tmp_path, creates=True, type="odd"), span)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (StructType().add("id", LongType()), r"no column .*\$\.note"),
        (StructType().add("id", StringType()).add("note", StringType()), r"needs int64 \(at"),
        (
            StructType().add("id", LongType()).add("note", StringType()).add("x", LongType()),
            "no field for: x",
        ),
        (StructType().add("id", LongType()).add("not", StringType()), r"for: not; did you mean note\?"),
        (StructType().add("id", LongType()).add("header", LongType()), r'drop\("header"\)'),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_there_is_a_row(
    tmp_path: Path, schema: StructType, sentence: str
) -> None:
    with pytest.raises(InvalidEvent, match=sentence):
        sink_target(options(tmp_path, event="tests.spark.totals:Total", creates=True), schema)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_bodies_are_those_that_the_codec_writes() -> None:
    bodies = body_maker(RowTarget(format_of(Total)))(
        batch(note=["a", "b"], id=pa.array([1, 2], pa.int32()), mean=pa.array([None, 2.5], pa.float64()))
    )
    read = decoder(format_of(Total), Total)
    assert list(map(read, bodies)) == [Total(1, "a"), Total(2, "b", 2.5)]


def test_a_field_without_a_column_has_the_default_of_its_class(tmp_path: Path) -> None:
    schema = StructType().add("id", LongType()).add("note", StringType())
    target = sink_target(options(tmp_path, event="tests.spark.totals:Filled", creates=True), schema)
    target = pickle.loads(pickle.dumps(target))
    bodies = body_maker(target)(batch(id=[1, 2], note=["a", "b"]))
    read = decoder(format_of(Filled), Filled)
    assert list(map(read, bodies)) == [Filled(1, "a"), Filled(2, "b")]
    only_ids = sink_target(
        options(tmp_path, event="tests.spark.totals:Filled", creates=True), StructType().add("id", LongType())
    )
    assert list(map(read, body_maker(only_ids)(batch(id=[3])))) == [Filled(3)]


def test_a_column_that_may_be_null_can_be_a_key_in_which_no_null_may_come(tmp_path: Path) -> None:
    target = sink_target(options(tmp_path, creates=True, type="made", key=("id",)), SCHEMA)
    assert target.format.by_name["id"].type == ft.Scalar("i64")
    assert target.format.by_name["note"].type == ft.Optional(ft.Scalar("str"))
    with pytest.raises(InvalidEvent, match=r"1 nulls.*\$\.id"):
        body_maker(target)(batch(id=[1, None], note=["a", None]))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"id": [1, None], "note": ["a", "b"]}, "1 nulls"),
        ({"id": [1], "note": pa.array([None], pa.string())}, "1 nulls"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_their_field(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidEvent, match=sentence):
        body_maker(RowTarget(format_of(Total)))(batch(**columns))


def test_integers_out_of_range_are_refused() -> None:
    class Small(hg.Event, name="small"):
        n: hg.u8

    assert body_maker(RowTarget(format_of(Small)))(batch(n=[255])) == [msgspec.msgpack.encode([255])]
    with pytest.raises(InvalidEvent, match="out of the range of u8"):
        body_maker(RowTarget(format_of(Small)))(batch(n=[256]))


def test_bodies_are_staged_in_portions() -> None:
    large = b"x" * 700_000
    assert [len(portion) for portion in _portions([b"a", large, large, b"b"])] == [2, 2]


def staged(folder: Path, *ids: int) -> list[WriterCommitMessage | None]:
    """What one task stages and tells the driver."""
    key = key_of("totals", "w", "query")
    with StageWriter(system_ports(folder), key, 0, "p0-a0") as stage:
        stage.add(format_of(Total), [encoder(Total).encode(Total(n, "")) for n in ids])
        return [Staged("query", {"totals": stage.finish()})]


def kept(folder: Path) -> list[int]:
    with hg.Station(folder) as station:
        return [
            total.id for total in station.channel("totals", Total).consumer(start="earliest", until="now")
        ]


@pytest.fixture
def handing(tmp_path: Path) -> Handing:
    with hg.Station(tmp_path) as station:
        station.channel("totals", Total, qos=PERSISTENT).push(Total(0, ""))
    disk = system_ports(tmp_path).disk
    assert disk is not None
    make_inbox(disk)
    targets = {"totals": RowTarget(format_of(Total))}
    return Handing(options(tmp_path, writer="w", timeout=0.0), targets, "w")


@pytest.mark.parametrize("again", [True, False])
def test_a_batch_that_was_handed_over_in_vain_is_taken_in_later_though_spark_aborts_it(
    tmp_path: Path, handing: Handing, *, again: bool
) -> None:
    disk = system_ports(tmp_path).disk
    assert disk is not None
    lock = disk.lock("lock", note="a station that stopped")
    messages = staged(tmp_path, 1, 2)
    with pytest.raises(AdoptionTimeout):
        handing.commit(messages, 0)
    handing.abort(messages, 0)
    lock.release()
    handing.commit(staged(tmp_path, 1, 2) if again else messages, 0)
    assert kept(tmp_path) == [0, 1, 2]


def test_a_batch_that_lost_its_files_is_handed_over_anew(tmp_path: Path, handing: Handing) -> None:
    disk = system_ports(tmp_path).disk
    assert disk is not None
    with disk.lock("lock", note="a station that stopped"), pytest.raises(AdoptionTimeout):
        handing.commit(staged(tmp_path, 1, 2), 0)
    for file in tmp_path.glob("inbox/staged/*/*.rows"):
        file.unlink()
    handing.commit(staged(tmp_path, 1, 2), 0)
    assert kept(tmp_path) == [0, 1, 2]


def test_nothing_is_overwritten() -> None:
    with pytest.raises(InvalidOption, match=r"outputMode.*append"):
        stream_sink(LEAST, SCHEMA, overwrite=True)
    with pytest.raises(InvalidOption, match="not taken back"):
        run_sink(LEAST, SCHEMA, overwrite=True)
