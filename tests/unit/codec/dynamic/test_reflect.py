from __future__ import annotations

import enum
import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations at run time

import heliograph as hg
from heliograph.codec.dynamic.reflect import FieldRow, describe, json_to_mapping, mapping_to_json
from heliograph.errors import InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format
from heliograph.model.layout import native_format


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Position(hg.Event):
    lat: float
    lon: float = 0.0


class Everything(hg.Event, name="every.thing", key="id"):
    id: int
    small: hg.i8
    large: hg.u64
    ratio: hg.f32
    name: str
    raw: bytes
    flag: bool
    at: datetime
    maybe: hg.i16 | None
    color: Color
    position: Position
    path: list[Position]
    rgb: Annotated[list[hg.u8], hg.Length(3)]
    cloud: Annotated[NDArray[np.float32], hg.Shape(None, 3)]
    free: NDArray[np.int64]
    extra: hg.Any
    region: str = "unknown"
    tags: list[str] = msgspec.field(default_factory=list)


NOON = datetime(2026, 11, 5, 12, 0, 0, 250, tzinfo=UTC)


def everything(**changes: Any) -> Everything:
    fields: dict[str, Any] = {
        "id": 2**60 + 1,
        "small": -128,
        "large": 2**64 - 1,
        "ratio": 0.5,
        "name": "ß\n",
        "raw": b"\x00\xff",
        "flag": True,
        "at": NOON,
        "maybe": None,
        "color": Color.BLUE,
        "position": Position(lat=1.5, lon=math.inf),
        "path": [Position(lat=-0.0)],
        "rgb": [1, 2, 3],
        "cloud": np.zeros((2, 3), dtype=np.float32),
        "free": np.zeros((0, 3), dtype=np.int64),
        "extra": {"$k": [b"x", NOON, None, 1, 1.0]},
    }
    return Everything(**(fields | changes))


def one(kind: ft.FieldType) -> Format:
    return Format("t", (Field("f", kind),))


def to_json(kind: ft.FieldType, value: Any) -> Any:
    return json.loads(mapping_to_json(one(kind), {"f": value}))["f"]


def from_json(kind: ft.FieldType, tree: Any) -> Any:
    return json_to_mapping(one(kind), json.dumps({"f": tree}))["f"]


def test_an_event_becomes_plain_nested_data() -> None:
    event = everything()
    data = event.to_dict()
    assert list(data) == [field.name for field in hg.format_of(Everything).fields]
    assert data["color"] == 2
    assert data["position"] == {"lat": 1.5, "lon": math.inf}
    assert data["path"] == [{"lat": 0.0, "lon": 0.0}]
    assert data["cloud"] is event.cloud
    assert data["tags"] == []


def test_plain_data_becomes_the_same_event() -> None:
    event = everything()
    assert Everything.from_dict(event.to_dict()) == event


def test_json_becomes_the_same_event() -> None:
    event = everything()
    assert Everything.from_json(event.to_json()) == event
    assert Everything.from_json(event.to_json().decode()) == event


def test_missing_fields_take_their_defaults_also_in_nested_events() -> None:
    data = everything().to_dict()
    del data["region"], data["tags"], data["path"][0]["lon"]
    assert Everything.from_dict(data) == everything()
    as_json = json.loads(everything().to_json())
    del as_json["region"], as_json["position"]["lon"]
    assert Everything.from_json(json.dumps(as_json)) == everything(position=Position(lat=1.5))


def test_a_missing_field_without_default_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"'lat' is missing and has no default; needs f64 \(at \$\.lat\)"):
        Position.from_dict({"lon": 1.0})
    with pytest.raises(InvalidEvent, match=r"'lat' is missing and has no default; needs f64 \(at \$\.lat\)"):
        Position.from_json("{}")


def test_all_missing_fields_are_listed_at_once_with_their_types() -> None:
    with pytest.raises(InvalidEvent, match=r"no default: lat \(f64\), lon \(f64\) \(at \$\)"):
        json_to_mapping(hg.format_of(Position), "{}")


def test_without_a_class_every_field_must_be_there() -> None:
    with pytest.raises(InvalidEvent, match=r"is missing.*\$\.lon"):
        json_to_mapping(hg.format_of(Position), '{"lat": 1.0}')
    with pytest.raises(InvalidEvent, match=r"is missing.*\$\.lon"):
        mapping_to_json(hg.format_of(Position), {"lat": 1.0})


def test_an_unknown_field_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(InvalidEvent, match=r"no field of this name; its fields are: lat, lon \(at \$\.alt\)"):
        Position.from_dict({"lat": 1.0, "alt": 2.0})
    with pytest.raises(InvalidEvent, match=r"its fields are: lat, lon \(at \$\.path\[0\]\.alt\)"):
        Everything.from_dict(everything().to_dict() | {"path": [{"alt": 2.0}]})


@pytest.mark.parametrize("data", [None, [], 7, "{}"])
def test_only_a_mapping_can_be_an_event(data: Any) -> None:
    with pytest.raises(InvalidEvent, match="needs a mapping with the fields of Position"):
        Position.from_dict(data)


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[1]", '{"lat": 1e999}', "[" * 100_000])
def test_text_that_is_no_json_object_is_refused(text: bytes | str) -> None:
    with pytest.raises(InvalidEvent):
        Position.from_json(text)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("id", "7", "needs i64 (-9223372036854775808 to 9223372036854775807), not str '7' (at $.id)"),
        ("id", True, "not bool True"),
        ("id", 1.0, "not float 1.0"),
        ("small", 128, "needs i8 (-128 to 127), not int 128 (at $.small)"),
        ("large", -1, "needs u64 (0 to 18446744073709551615)"),
        ("ratio", 1e300, "needs f32 within its range"),
        ("ratio", "1", "needs f32, not str '1'"),
        ("ratio", True, "needs f32, not bool True"),
        ("name", b"x", "needs str, not bytes"),
        ("name", "\ud800", "needs text that has a UTF-8 form"),
        ("raw", "x", "needs bytes, not str"),
        ("flag", 1, "needs bool, not int 1"),
        ("at", datetime(2026, 1, 1), "needs datetime with a time zone"),  # noqa: DTZ001 - the mistake under test
        ("at", 0, "needs datetime with a time zone"),
        ("maybe", 2**15, "needs i16"),
        ("color", 3, "needs a value of enum Color (1, 2), not int 3 (at $.color)"),
        ("color", True, "needs a value of enum Color"),
        ("color", [], "needs a value of enum Color"),
        ("color", Color.RED, "needs a value of enum Color"),
        ("position", None, "needs a mapping with the fields of Position, not NoneType None (at $.position)"),
        ("position", {"lat": "x"}, "(at $.position.lat)"),
        ("path", ({"lat": 1.0},), "needs list[record Position], not tuple"),
        ("path", [{"lat": 1.0}, {"lat": None}], "(at $.path[1].lat)"),
        ("rgb", [1, 2], "needs list[u8; 3], not list [1, 2] (at $.rgb)"),
        ("rgb", [1, 2, 256], "(at $.rgb[2])"),
        ("cloud", [[0.0, 0.0, 0.0]], "needs array[f32; any, 3] (a numpy array of float32), not list"),
        ("cloud", np.zeros((2, 3)), "not array of float64 and shape (2, 3) (at $.cloud)"),
        ("cloud", np.zeros((2, 4), np.float32), "not array of float32 and shape (2, 4)"),
        ("cloud", np.zeros((2, 3), ">f4"), "not array of >f4"),
        ("extra", {"a": [1, object()]}, "needs plain data"),
        ("extra", {1: 2}, "needs plain data"),
        ("extra", 2**64, "needs plain data"),
        ("extra", np.zeros(3), "needs plain data"),
        ("extra", Color.RED, "needs plain data"),
        ("extra", {"a": NOON.replace(tzinfo=None)}, "needs plain data"),
        ("free", np.zeros((1,) * 40, np.int64), "needs array[i64]"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_path(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        Everything.from_dict(everything().to_dict() | {field: value})
    assert sentence in str(caught.value)
    assert caught.value.event == "every.thing"
    assert caught.value.path.startswith(f"$.{field}")


def test_writing_json_checks_values_that_the_constructor_did_not() -> None:
    with pytest.raises(InvalidEvent, match=r"at \$\.small"):
        everything(small=1000).to_json()
    with pytest.raises(InvalidEvent, match=r"at \$\.position"):
        everything(position=None).to_json()


def test_an_integer_in_a_float_field_becomes_a_float() -> None:
    position = Position.from_dict({"lat": 48})
    assert type(position.lat) is float
    with pytest.raises(InvalidEvent, match="within its range"):
        Position.from_dict({"lat": 10**400})


def test_an_f32_is_rounded_to_the_value_that_travels() -> None:
    event = Everything.from_dict(everything().to_dict() | {"ratio": 0.1})
    assert event.ratio == float(np.float32(0.1))


def test_schema_less_data_deeper_than_its_limit_is_refused() -> None:
    deep: Any = 7
    for _ in range(65):
        deep = [deep]
    assert everything(extra=deep[0]).to_dict()["extra"] == deep[0]
    Everything.from_json(everything(extra=deep[0]).to_json())
    with pytest.raises(InvalidEvent, match="nested deeper than 64 levels"):
        everything(extra=deep).to_json()


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_json_deeper_than_schema_less_data_can_be_is_refused_with_its_path(
    opening: str, closing: str
) -> None:
    fmt = Format("t", (Field("f", ft.Anything()),))
    fits = "[" * 64 + "]" * 64
    assert json_to_mapping(fmt, f'{{"f": {fits}}}')
    with pytest.raises(InvalidEvent, match="nested deeper than 64 levels") as caught:
        json_to_mapping(fmt, f'{{"f": {opening * 900}1{closing * 900}}}')
    assert caught.value.path == "$.f" + ("[0]" if opening == "[" else ".a") * 64


def test_data_that_holds_itself_is_refused_with_its_path() -> None:
    itself: list[Any] = []
    itself += [itself, itself]
    mapping: dict[str, Any] = {}
    mapping["me"] = mapping
    for write in (hg.Event.to_json, hg.Event.to_dict):
        for extra in (itself, mapping):
            with pytest.raises(InvalidEvent, match="nested deeper than the 96 levels") as caught:
                write(everything(extra=extra))
            assert caught.value.path == "$.extra"


def test_numpy_scalars_become_python_numbers() -> None:
    data = everything().to_dict()
    data |= {"id": np.int64(7), "ratio": np.float32(0.5), "flag": np.bool_(True)}
    event = Everything.from_dict(data)
    assert (type(event.id), type(event.ratio), event.flag) == (int, float, True)


@pytest.mark.parametrize(
    ("kind", "value", "tree"),
    [
        (ft.Scalar("u64"), 2**64 - 1, 2**64 - 1),
        (ft.Scalar("f64"), math.nan, "NaN"),
        (ft.Scalar("f32"), -math.inf, "-Infinity"),
        (ft.Scalar("bytes"), b"\x00\xff", "AP8="),
        (ft.Scalar("datetime"), NOON, "2026-11-05T12:00:00.000250Z"),
        (ft.Scalar("datetime"), datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
        (ft.Optional(ft.Scalar("i8")), None, None),
        (ft.Enum("Color", "str", (("RED", "r"),)), "r", "r"),
        (ft.Array("bool", (2,)), np.array([True, False]), [True, False]),
        (ft.Array("f32"), np.array([[1.5, np.inf]], np.float32), [[1.5, "Infinity"]]),
        (ft.Array("f64", (None, 3)), np.zeros((0, 3)), {"shape": [0, 3], "data": []}),
        (ft.Array("f64", (None,)), np.zeros(0), []),
        (ft.Array("f64"), np.array(2.5), {"shape": [], "data": [2.5]}),
        (ft.Anything(), b"\x00", {"$bytes": "AA=="}),
        (ft.Anything(), [NOON], [{"$datetime": "2026-11-05T12:00:00.000250Z"}]),
        (ft.Anything(), {"a": math.inf}, {"a": {"$float": "Infinity"}}),
        (ft.Anything(), {"$bytes": "x"}, {"$$bytes": "x"}),
        (ft.Anything(), {"$$": 1}, {"$$$": 1}),
    ],
)
def test_json_looks_as_documented(kind: ft.FieldType, value: Any, tree: Any) -> None:
    assert to_json(kind, value) == tree
    back = from_json(kind, tree)
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert back.shape == value.shape
        assert back.dtype == value.dtype
    assert np.array_equal(back, value, equal_nan=isinstance(value, float))


@pytest.mark.parametrize(
    ("kind", "tree"),
    [
        (ft.Scalar("i64"), "7"),
        (ft.Scalar("i64"), 7.0),
        (ft.Scalar("f64"), "nan"),
        (ft.Scalar("bytes"), "A"),
        (ft.Scalar("bytes"), "ß"),
        (ft.Scalar("bytes"), 1),
        (ft.Scalar("datetime"), "2026-11-05T12:00:00"),
        (ft.Scalar("datetime"), "0001-01-01T00:00:00+01:00"),
        (ft.Scalar("datetime"), 1.5),
        (ft.Array("f64"), 1.0),
        (ft.Array("f64"), [[1.0], [1.0, 2.0]]),
        (ft.Array("f64"), [[1.0], 2.0]),
        (ft.Array("f64"), [1.0, [2.0]]),
        (ft.Array("i8"), [1.5]),
        (ft.Array("i8"), [128]),
        (ft.Array("i8", (2,)), [1]),
        (ft.Array("f64", (None, 3)), []),
        (ft.Array("f64"), {"shape": [2], "data": [1.0]}),
        (ft.Array("f64"), {"shape": [0, 2**31], "data": []}),
        (ft.Array("f64"), {"shape": [0] * 33, "data": []}),
        (ft.Array("f64"), {"shape": [0, 2**31 - 1, 2**31 - 1, 2**31 - 1], "data": []}),
        (ft.Array("f64"), {"shape": [-1, -1], "data": [1.0]}),
        (ft.Array("f64"), {"shape": [0]}),
        (ft.Anything(), {"$bytes": 7}),
        (ft.Anything(), {"$float": []}),
        (ft.Anything(), {"$float": "1"}),
        (ft.Anything(), {"$unknown": 1}),
        (ft.Anything(), {"$bytes": "AA==", "more": 1}),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_path(kind: ft.FieldType, tree: Any) -> None:
    with pytest.raises(InvalidEvent) as caught:
        from_json(kind, tree)
    assert caught.value.path.startswith("$.f")


def test_deeply_nested_arrays_in_json_are_refused() -> None:
    with pytest.raises(InvalidEvent, match="at most 32 dimensions"):
        from_json(ft.Array("f64"), json.loads("[" * 40 + "]" * 40))


def test_a_time_in_another_zone_is_read_and_written_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert (
        to_json(ft.Scalar("datetime"), datetime(2026, 1, 1, 2, tzinfo=east)) == "2026-01-01T00:00:00.000000Z"
    )
    assert from_json(ft.Scalar("datetime"), "2026-01-01T02:00:00+02:00") == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_time_that_has_no_form_in_utc_is_refused() -> None:
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    with pytest.raises(InvalidEvent, match="between the years 1 and 9999"):
        to_json(ft.Scalar("datetime"), early)


def test_describing_a_format_lists_nested_fields_and_marks_the_key() -> None:
    inner = Format("p", (Field("lat", ft.Scalar("f64")),))
    fmt = Format("t", (Field("id", ft.Scalar("i64")), Field("path", ft.List(ft.NestedEvent(inner)))), ("id",))
    assert describe(fmt) == [
        FieldRow("$.id", "i64", key=True, offset=None),
        FieldRow("$.path", "list[record p]", key=False, offset=None),
        FieldRow("$.path[].lat", "f64", key=False, offset=None),
    ]


def test_offsets_of_nested_native_records_count_from_the_start_of_the_body() -> None:
    inner = native_format("p", [("a", ft.Scalar("u8")), ("b", ft.Scalar("f64"))])
    fmt = native_format(
        "t",
        [
            ("n", ft.Scalar("i64")),
            ("plain", ft.NestedEvent(inner)),
            ("maybe", ft.Optional(ft.NestedEvent(inner))),
        ],
    )
    assert {row.path: row.offset for row in describe(fmt)} == {
        "$.n": 0,
        "$.plain": 8,
        "$.plain.a": 8,
        "$.plain.b": 16,
        "$.maybe": 24,
        "$.maybe.a": 32,
        "$.maybe.b": 40,
    }
