from __future__ import annotations

import enum
import io
from datetime import UTC, datetime, timedelta, timezone
from itertools import permutations
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations at run time

import heliograph as hg
from heliograph.codec.columnar.columns import columns_to_batch, from_batch, schema, to_batch, unify
from heliograph.codec.columnar.unify import unified
from heliograph.errors import FormatError, InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Position(hg.Event):
    lat: float
    lon: float = 0.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    level: hg.u64
    at: datetime
    color: Color
    position: Position | None
    path: list[Position]
    pose: Annotated[NDArray[np.float64], hg.Shape(2, 2)]
    samples: Annotated[NDArray[np.uint8], hg.Shape(None)]
    extra: hg.Any = None


NOON = datetime(2026, 11, 5, 12, tzinfo=UTC)


def track(number: int, **changes: Any) -> Track:
    fields: dict[str, Any] = {
        "id": number,
        "level": 2**64 - 1,
        "at": NOON,
        "color": Color.BLUE,
        "position": Position(lat=1.5) if number % 2 else None,
        "path": [Position(lat=float(i)) for i in range(number)],
        "pose": np.full((2, 2), number, dtype=np.float64),
        "samples": np.arange(number, dtype=np.uint8),
        "extra": {"n": [number, b"x"]},
    }
    return Track(**(fields | changes))


def one(kind: ft.FieldType) -> Format:
    return Format("t", (Field("f", kind),))


def batch_of(kind: ft.FieldType, *values: Any) -> pa.RecordBatch:
    return to_batch(one(kind), [{"f": value} for value in values])


def read(kind: ft.FieldType, column: pa.Array) -> list[Any]:
    return [row["f"] for row in from_batch(one(kind), pa.record_batch([column], ["f"]))]


def test_the_schema_is_as_documented() -> None:
    position = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
    assert schema(hg.format_of(Track)) == pa.schema(
        [
            ("id", pa.int64()),
            ("level", pa.uint64()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("color", pa.int64()),
            ("position", position),
            ("path", pa.list_(position)),
            ("pose", pa.struct([("shape", pa.list_(pa.int32())), ("data", pa.list_(pa.float64()))])),
            ("samples", pa.list_(pa.uint8())),
            ("extra", pa.string()),
        ]
    )


def test_a_spark_safe_schema_has_no_unsigned_integers_at_any_depth() -> None:
    inner = Format("p", (Field("a", ft.Scalar("u32")), Field("b", ft.Array("u16", (4,)))))
    fmt = Format(
        "t", (Field("u", ft.Scalar("u8")), Field("v", ft.Scalar("u64")), Field("r", ft.NestedEvent(inner)))
    )
    assert schema(fmt, spark_safe=True) == pa.schema(
        [
            ("u", pa.int16()),
            ("v", pa.decimal128(20, 0)),
            ("r", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))])),
        ]
    )


@pytest.mark.parametrize("spark_safe", [False, True])
def test_events_become_columns_and_the_same_events_again(spark_safe: bool) -> None:
    fmt = hg.format_of(Track)
    tracks = [track(n) for n in range(4)]
    batch = to_batch(fmt, tracks, spark_safe=spark_safe)
    assert batch.schema == schema(fmt, spark_safe=spark_safe)
    assert batch.num_rows == 4
    assert [Track.from_dict(row) for row in from_batch(fmt, batch)] == tracks


def test_events_and_mappings_may_be_mixed() -> None:
    fmt = hg.format_of(Track)
    mixed = to_batch(fmt, [track(1), track(2).to_dict()])
    assert mixed.equals(to_batch(fmt, [track(1), track(2)]))


def test_no_rows_give_an_empty_batch_with_the_full_schema() -> None:
    batch = to_batch(hg.format_of(Track), [])
    assert batch.schema == schema(hg.format_of(Track))
    assert from_batch(hg.format_of(Track), batch) == []


def test_a_format_without_fields_still_counts_its_rows() -> None:
    empty = Format("t", ())
    assert from_batch(empty, to_batch(empty, [{}, {}])) == [{}, {}]


def test_a_batch_survives_parquet() -> None:
    fmt = hg.format_of(Track)
    tracks = [track(n) for n in range(4)]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([to_batch(fmt, tracks)]), file)
    (batch,) = pq.read_table(file).combine_chunks().to_batches()
    assert [Track.from_dict(row) for row in from_batch(fmt, batch)] == tracks


def test_times_in_other_zones_come_back_in_utc() -> None:
    kind = ft.Scalar("datetime")
    east = datetime(2026, 11, 5, 14, tzinfo=timezone(timedelta(hours=2)))
    (back,) = read(kind, batch_of(kind, east).column(0))
    assert back == NOON
    assert back.tzinfo is UTC


def test_arrays_of_numbers_come_back_as_views() -> None:
    kind = ft.Array("f64", (None,))
    batch = batch_of(kind, np.arange(3.0), np.arange(2.0))
    first, second = read(kind, batch.column(0))
    assert first.base is not None
    assert not first.flags.writeable
    assert second.tolist() == [0.0, 1.0]


def test_any_is_readable_json() -> None:
    assert batch_of(ft.Anything(), {"a": b"x"}, None).column(0).to_pylist() == [
        '{"a":{"$bytes":"eA=="}}',
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (ft.Scalar("i64"), None, "needs i64"),
        (ft.Scalar("i64"), 1.5, "needs i64"),
        (ft.Scalar("i64"), True, "not bool True"),
        (ft.Scalar("i8"), 128, "needs i8 (-128 to 127), not int 128"),
        (ft.Scalar("u64"), 2**64, "needs u64"),
        (ft.Scalar("u64"), -1, "needs u64"),
        (ft.Scalar("f32"), 1e300, "needs f32 within its range"),
        (ft.Scalar("f64"), 10**400, "needs f64 within its range"),
        (ft.Scalar("str"), b"x", "needs str"),
        (ft.Scalar("str"), "\ud800", "UTF-8"),
        (ft.Scalar("bytes"), "x", "needs bytes"),
        (ft.Scalar("datetime"), NOON.replace(tzinfo=None), "with a time zone"),
        (ft.Enum("Color", "i64", (("RED", 1),)), 2, "needs a value of enum Color"),
        (ft.Enum("Color", "i64", (("RED", 1),)), True, "needs a value of enum Color"),
        (ft.List(ft.Scalar("i8"), 2), [1], "needs list[i8; 2]"),
        (ft.List(ft.Scalar("i8")), (1,), "needs list[i8]"),
        (ft.Array("f64", (None, 2)), np.zeros(2), "shape (2,)"),
        (ft.Array("f64"), np.zeros(2, np.int64), "array of int64"),
        (ft.Array("f64"), [1.0], "not list"),
        (ft.Anything(), object(), "needs plain data"),
        (ft.NestedEvent(Format("p", (Field("a", ft.Scalar("i8")),))), 7, "needs a mapping"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_row_and_path(
    kind: ft.FieldType, value: Any, sentence: str
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        batch_of(kind, value)
    assert caught.value.path.startswith("$[0].f")
    assert sentence in str(caught.value)
    with pytest.raises(InvalidEvent):
        columns_to_batch(one(kind), [[value]])


def test_a_row_that_is_neither_event_nor_mapping_is_refused() -> None:
    with pytest.raises(
        InvalidEvent, match=r"an event or a mapping with the fields of t, not int 7 \(at \$\[0\]\)"
    ):
        to_batch(one(ft.Scalar("i8")), [7])  # type: ignore[list-item]  # the mistake under test


def test_the_path_of_a_nested_value_names_its_own_row() -> None:
    fmt = hg.format_of(Track)
    wrong = track(2, path=[Position(lat=1.0), Position(lat="x")])  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(InvalidEvent, match=r"\$\[1\]\.path\[1\]\.lat"):
        to_batch(fmt, [track(1), wrong])


def test_a_missing_field_is_refused_unless_it_is_optional() -> None:
    fmt = Format("t", (Field("a", ft.Scalar("i8")), Field("b", ft.Optional(ft.Scalar("i8")))))
    assert from_batch(fmt, to_batch(fmt, [{"a": 1}])) == [{"a": 1, "b": None}]
    with pytest.raises(InvalidEvent, match=r"is missing.*\$\[0\]\.a"):
        to_batch(fmt, [{"b": 1}])


def test_numpy_scalars_are_taken_as_numbers() -> None:
    assert read(ft.Scalar("i8"), batch_of(ft.Scalar("i8"), np.int64(5), 6).column(0)) == [5, 6]


def test_columns_of_different_lengths_or_number_are_refused() -> None:
    fmt = Format("t", (Field("a", ft.Scalar("i8")), Field("b", ft.Scalar("i8"))))
    with pytest.raises(FormatError, match=r"needs 2 columns of one length, not lengths \[1, 2\]"):
        columns_to_batch(fmt, [[1], [1, 2]])
    with pytest.raises(FormatError, match="needs 2 columns"):
        columns_to_batch(fmt, [[1]])


HUGE_AND_EMPTY = [0, *[2**31 - 1] * 3]
TENSORS = pa.struct([("shape", pa.list_(pa.int32())), ("data", pa.list_(pa.int64()))])


@pytest.mark.parametrize(
    ("kind", "column", "sentence"),
    [
        (ft.Scalar("i64"), pa.array(["7"]), "has a column of string; i64 needs int64"),
        (ft.Scalar("i64"), pa.array([1, None]), "has 1 nulls, but i64 has no None"),
        (ft.Scalar("u8"), pa.array([256]), "has values out of the range of u8"),
        (ft.Scalar("f64"), pa.array(["1"]), "has a column of string; f64 needs double"),
        (ft.Scalar("datetime"), pa.array([2**62], pa.timestamp("us", "UTC")), "outside the years 1 to 9999"),
        (ft.Enum("Color", "str", (("RED", "r"),)), pa.array(["b"]), "needs values of enum Color"),
        (ft.List(ft.Scalar("i64"), 2), pa.array([[1]]), "has a list of another length than list[i64; 2]"),
        (ft.List(ft.Scalar("i64")), pa.array([1]), "has a column of int64"),
        (ft.Array("i64", (2,)), pa.array([[1]]), "has an array of shape (1,), which is no array[i64; 2]"),
        (ft.Array("i64", (None,)), pa.array([[None]], pa.list_(pa.int64())), "has nulls"),
        (ft.Array("i64"), pa.array([{"shape": [2], "data": [1]}]), "shape [2] does not go with 1 items"),
        (ft.Array("i64"), pa.array([{"shape": [-1, -1], "data": [1]}]), "does not go with 1 items"),
        (ft.Array("i64"), pa.array([{"shape": HUGE_AND_EMPTY, "data": []}], TENSORS), "go with 0 items"),
        (ft.Array("i64"), pa.array([[1]]), "has a column of list"),
        (ft.Anything(), pa.array(["{"]), "this is no JSON"),
        (ft.Anything(), pa.array([1]), "has a column of int64"),
        (ft.NestedEvent(Format("p", ())), pa.array([1]), "has a column of int64"),
    ],
)
def test_a_column_that_does_not_fit_is_refused(kind: ft.FieldType, column: pa.Array, sentence: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        read(kind, column)
    assert sentence in str(caught.value)
    assert caught.value.path == "$.f"


def test_integers_of_other_widths_are_read_when_they_fit() -> None:
    assert read(ft.Scalar("u8"), pa.array([255], pa.int64())) == [255]


def test_a_column_may_be_absent_when_the_field_is_optional() -> None:
    fmt = Format("t", (Field("a", ft.Scalar("i64")), Field("b", ft.Optional(ft.Scalar("i8")))))
    extra = pa.record_batch([pa.array([1]), pa.array(["x"])], ["a", "other"])
    assert from_batch(fmt, extra) == [{"a": 1, "b": None}]
    with pytest.raises(InvalidEvent, match=r"has no column in this batch; needs i64 \(at \$\.a\)"):
        from_batch(fmt, pa.record_batch([pa.array(["x"])], ["other"]))


def test_formats_of_one_channel_are_unified_by_field_name() -> None:
    old = Format("t", (Field("id", ft.Scalar("i32")), Field("gone", ft.Scalar("str"))), ("id",))
    new = Format("t", (Field("speed", ft.Scalar("f64")), Field("id", ft.Scalar("i64"))), ("id",))
    both = unified([old, new])
    assert both.key == ("id",)
    assert [(f.name, str(f.type)) for f in both.fields] == [
        ("id", "i64"),
        ("gone", "str | None"),
        ("speed", "f64 | None"),
    ]
    assert unify([old, new]) == pa.schema(
        [("id", pa.int64()), ("gone", pa.string()), ("speed", pa.float64())]
    )


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (ft.Scalar("u8"), ft.Scalar("i8"), "i16"),
        (ft.Scalar("i32"), ft.Scalar("f32"), "f64"),
        (ft.Scalar("u32"), ft.Optional(ft.Scalar("i8")), "i64 | None"),
        (ft.Enum("A", "i64", (("X", 1),)), ft.Enum("A", "i64", (("X", 1), ("Y", 2))), "i64"),
        (ft.Enum("A", "str", (("X", "x"),)), ft.Scalar("str"), "str"),
        (ft.List(ft.Scalar("i8"), 3), ft.List(ft.Scalar("i16"), 4), "list[i16]"),
        (ft.Array("i8", (2, 3)), ft.Array("i16", (4, 3)), "array[i16; any, 3]"),
        (ft.Array("i8", (2, 3)), ft.Array("i8", (6,)), "array[i8]"),
        (ft.Anything(), ft.Scalar("str"), "any"),
        (ft.Optional(ft.Scalar("i8")), ft.Anything(), "any"),
    ],
)
def test_a_unified_field_has_the_smallest_common_type(a: ft.FieldType, b: ft.FieldType, common: str) -> None:
    for formats in ([one(a), one(b)], [one(b), one(a)]):
        assert str(unified(formats).fields[0].type) == common


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ft.Scalar("i64"), ft.Scalar("u64")),
        (ft.Scalar("i64"), ft.Scalar("f64")),
        (ft.Scalar("str"), ft.Scalar("bytes")),
        (ft.Array("f64"), ft.Anything()),
        (ft.Array("f64", (2,)), ft.List(ft.Scalar("f64"))),
        (ft.Enum("A", "i64", (("X", 1),)), ft.Scalar("f64")),
    ],
)
def test_types_without_a_common_one_are_refused_with_both_named(a: ft.FieldType, b: ft.FieldType) -> None:
    with pytest.raises(FormatError) as caught:
        unify([one(a), one(b)])
    assert str(a) in caught.value.reason
    assert str(b) in caught.value.reason
    assert caught.value.path == "$.f"


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (("i8", "u32", "f64"), "f64"),
        (("i8", "u8", "f32"), "f32"),
        (("u8", "i8", "u16", "i32"), "i32"),
        (("u64", "i8"), None),
        (("u32", "f32"), "f64"),
        (("i64", "f64", "i8"), None),
    ],
)
def test_three_types_are_unified_to_the_same_in_any_order(names: tuple[Any, ...], common: str | None) -> None:
    for order in permutations(names):
        formats = [Format("t", (Field("f", ft.Scalar(name)),)) for name in order]
        if common is None:
            with pytest.raises(FormatError, match="have no common one"):
                unified(formats)
        else:
            assert str(unified(formats).fields[0].type) == common


def test_unifying_nothing_is_refused() -> None:
    with pytest.raises(FormatError, match="at least one format"):
        unify([])


def test_events_of_old_and_new_classes_go_into_one_batch() -> None:
    class OldPosition(hg.Event):
        lat: hg.f32

    class Old(hg.Event, name="t"):
        position: OldPosition
        color: Color
        samples: NDArray[np.int8]

    class New(hg.Event, name="t"):
        position: Position
        color: int
        samples: NDArray[np.int32]
        note: str = ""

    both = unified([hg.format_of(Old), hg.format_of(New)])
    old = Old(position=OldPosition(lat=0.5), color=Color.RED, samples=np.zeros((1, 2), np.int8))
    new = New(position=Position(lat=1.5), color=7, samples=np.zeros(1, np.int32), note="x")
    first, second = from_batch(both, to_batch(both, [old, new]))
    assert first["position"] == {"lat": 0.5, "lon": None}
    assert (first["color"], first["note"], first["samples"].dtype) == (1, None, np.int32)
    assert (second["color"], second["note"], second["samples"].shape) == (7, "x", (1,))
