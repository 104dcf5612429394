"""What `validate` refuses, what it puts right, and where it says so."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg
from heliograph.codec.coerce import _Mender
from heliograph.codec.validate import validate, validate_all, validator


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(hg.Event):
    lat: float
    lon: float


class Higher(Point):
    height: float = 0.0


class Everything(hg.Event, name="test.everything"):
    number: int = 0
    small: hg.i8 = 0
    huge: hg.u64 = 0
    ratio: float = 0.0
    single: hg.f32 = 0.0
    text: str = ""
    data: bytes = b""
    flag: bool = False
    when: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    color: Color = Color.RED
    level: Level = Level.LOW
    maybe: int | None = None
    point: Point = msgspec.field(default_factory=lambda: Point(1.0, 2.0))
    points: list[Point] = msgspec.field(default_factory=list)
    ratios: list[float] = msgspec.field(default_factory=list)
    rgb: Annotated[list[hg.u8], hg.Length(3)] = msgspec.field(default_factory=lambda: [0, 0, 0])
    extra: hg.Any = None


class Arrays(hg.Event, name="test.arrays"):
    free: NDArray[np.float64]
    pose: Annotated[NDArray[np.float32], hg.Shape(2, 2)]
    cloud: Annotated[NDArray[np.int16], hg.Shape(None, 3)] | None = None


class Unzoned(tzinfo):
    """A time zone that does not know its offset, which Python counts as none."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> None:
        return None

    def dst(self, _: datetime | None) -> None:
        return None


class Int(int):
    """A subclass that must not travel as such."""


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


GOOD: list[dict[str, Any]] = [
    {},
    {"number": -(2**63)},
    {"number": 2**63 - 1},
    {"huge": 2**64 - 1},
    {"small": -128},
    {"ratio": float("nan")},
    {"single": float("nan")},
    {"single": float("inf")},
    {"text": "Grüße 🌍"},
    {"when": datetime(1, 1, 1, tzinfo=UTC)},
    {"when": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)},
    {"when": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
    {"maybe": 7},
    {"points": [Point(0.0, 0.0)]},
    {"extra": {"a": [None, True, 2**64 - 1, -(2**63), 1.5, "x", b"y", datetime(2026, 1, 1, tzinfo=UTC), {}]}},
    {"extra": nested(64)},
]

BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"number": "7"}, "$.number", "'7' is no i64"),
    ({"number": 7.0}, "$.number", "7.0 is no i64"),
    ({"number": True}, "$.number", "True is no i64"),
    ({"number": Level.LOW}, "$.number", "is no i64"),
    ({"number": np.int64(7)}, "$.number", r"write int\(...\)"),
    ({"number": 2**63}, "$.number", "out of range for i64"),
    ({"number": -(2**63) - 1}, "$.number", "out of range"),
    ({"number": None}, "$.number", "None is no i64"),
    ({"small": 128}, "$.small", "-128 to 127"),
    ({"huge": -1}, "$.huge", "0 to 18446744073709551615"),
    ({"huge": 2**64}, "$.huge", "out of range"),
    ({"ratio": "1"}, "$.ratio", "is no f64"),
    ({"ratio": False}, "$.ratio", "False is no f64"),
    ({"ratio": 10**400}, "$.ratio", "out of range"),
    ({"single": 1e39}, "$.single", "out of range for f32"),
    ({"text": b"x"}, "$.text", "is no str"),
    ({"text": Color.RED}, "$.text", "is no str"),
    ({"text": "\ud800"}, "$.text", "surrogate"),
    ({"data": "x"}, "$.data", "is no bytes"),
    ({"data": bytearray(b"x")}, "$.data", "is no bytes"),
    ({"flag": 1}, "$.flag", "1 is no bool"),
    ({"when": datetime(2026, 1, 1)}, "$.when", "no time zone"),  # noqa: DTZ001 - a naive time is the point
    ({"when": datetime(2026, 1, 1, tzinfo=Unzoned())}, "$.when", "no time zone"),
    ({"when": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, "$.when", "outside"),
    ({"when": datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2)))}, "$.when", "outside"),
    ({"when": 1.0}, "$.when", "is no datetime"),
    ({"color": "red"}, "$.color", "Color.RED, Color.BLUE"),
    ({"level": 1}, "$.level", "1 is no enum Level"),
    ({"maybe": "x"}, "$.maybe", "is no i64"),
    ({"point": None}, "$.point", "None is no record Point"),
    ({"point": Higher(1.0, 2.0)}, "$.point", "exactly Point"),
    ({"point": Point(1.0, "x")}, "$.point.lon", "is no f64"),  # type: ignore[arg-type]
    ({"points": [Point(0.0, 0.0), 5]}, "$.points[1]", "5 is no record Point"),
    ({"points": (Point(0.0, 0.0),)}, "$.points", "is no list"),
    ({"ratios": [1.0, "x"]}, "$.ratios[1]", "is no f64"),
    ({"rgb": [1, 2]}, "$.rgb", "2 items where"),
    ({"rgb": [1, 2, 256]}, "$.rgb[2]", "out of range for u8"),
    ({"extra": object()}, "$.extra", "nothing that hg.Any holds"),
    ({"extra": {"a": [1, {2: 3}]}}, "$.extra.a[1]", "cannot be the key"),
    ({"extra": {"\ud800": 1}}, "$.extra", "cannot be the key"),
    ({"extra": [2**64]}, "$.extra[0]", "nothing that hg.Any holds"),
    ({"extra": {"t": datetime(2026, 1, 1)}}, "$.extra.t", "nothing that hg.Any"),  # noqa: DTZ001 - as above
    ({"extra": Level.LOW}, "$.extra", "nothing that hg.Any holds"),
    ({"extra": ("tuple",)}, "$.extra", "nothing that hg.Any holds"),
    ({"extra": nested(65)}, "$.extra" + "[0]" * 64, "deeper than 64"),
]


@pytest.mark.parametrize("values", GOOD, ids=str)
def test_values_that_fit_pass(values: dict[str, Any]) -> None:
    event = Everything(**values)
    validate(event)
    for name, value in values.items():
        assert getattr(event, name) is value


@pytest.mark.parametrize(("values", "path", "reason"), BAD, ids=range(len(BAD)))
def test_a_value_that_does_not_fit_is_refused_with_its_path(
    values: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(hg.InvalidEvent, match=reason) as caught:
        validate(Everything(**values))
    assert caught.value.path == path
    assert caught.value.event == "test.everything"
    assert str(caught.value).endswith(f"(at {path})")
    with pytest.raises(hg.InvalidEvent, match=reason):
        validate_all(Everything, [Everything(), Everything(**values)])


def test_many_are_put_right_like_one() -> None:
    events = [Everything(), Everything(ratio=7)]
    validate_all(Everything, events)
    assert type(events[1].ratio) is float


def test_many_are_looked_at_up_to_one_of_another_class() -> None:
    class Other(hg.Event):
        ratio: float

    events: list[Any] = [Everything(ratio=7), Other(7), Everything(ratio=7)]
    assert validate_all(Everything, events[:1])
    assert not validate_all(Everything, events)
    assert [type(event.ratio) for event in events] == [float, int, int]
    assert validate_all(Everything, [])


def test_an_int_in_a_float_field_is_stored_as_float() -> None:
    event = Everything(ratio=7, single=3, point=Point(1, 2), ratios=[1, 2.5], maybe=None)
    validate(event)
    assert [type(v) for v in (event.ratio, event.single, event.point.lat, *event.ratios)] == [float] * 5
    assert event == Everything(ratio=7.0, single=3.0, point=Point(1.0, 2.0), ratios=[1.0, 2.5])


def test_an_int_in_a_float_field_of_a_frozen_event_is_stored_as_float() -> None:
    class Fixed(hg.Event, frozen=True):
        ratio: float

    event = Fixed(7)
    validate(event)
    assert type(event.ratio) is float


def test_values_of_subclasses_are_stored_plain() -> None:
    event = Everything(number=Int(7), ratio=np.float64(1.5), extra=[np.float64(2.5), Int(3)])
    validate(event)
    assert [type(v) for v in (event.number, event.ratio, *event.extra)] == [int, float, float, int]


def test_an_f32_is_rounded_to_what_travels() -> None:
    event = Everything(single=0.1)
    validate(event)
    assert event.single == float(np.float32(0.1))
    validate(event)
    assert event.single == float(np.float32(0.1))


def test_lists_and_dicts_of_the_caller_stay_as_they_are() -> None:
    class Lists(hg.Event):
        floats: list[list[float]]
        extra: hg.Any

    floats: list[list[float]] = [[1.5], [1, 2]]
    extra: dict[str, Any] = {"a": [np.float64(1.5), 2], "b": {"c": np.float64(3.0)}}
    inner = extra["a"]
    event = Lists(floats, extra)
    validate(event)
    assert repr((floats[1], type(extra["a"][0]))) == "([1, 2], <class 'numpy.float64'>)"
    assert extra["a"] is inner
    assert repr(event.floats) == "[[1.5], [1.0, 2.0]]"
    assert repr(event.extra) == "{'a': [1.5, 2], 'b': {'c': 3.0}}"
    assert event.floats[0] is floats[0]


def test_a_strict_frozen_event_keeps_its_hash_when_it_is_pushed() -> None:
    class Frozen(hg.Event, frozen=True, strict=True):
        single: hg.f32

    event = Frozen(0.1)
    known = {event}
    validate(event)
    assert event in known


def test_usual_values_need_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_event: hg.Event) -> None:
        raise AssertionError("looked at twice")

    monkeypatch.setattr("heliograph.codec.validate.coerce_event", never)

    class Usual(hg.Event):
        single: hg.f32
        when: datetime

    for single in (float("nan"), float("inf"), 1.5):
        for zone in (UTC, timezone(timedelta(hours=2))):
            validate(Usual(single, datetime(2026, 1, 1, tzinfo=zone)))
    with pytest.raises(AssertionError, match="twice"):
        validate(Usual(0.1, datetime(2026, 1, 1, tzinfo=UTC)))


def test_arrays_of_the_declared_type_and_shape_pass() -> None:
    pose = np.zeros((2, 2), np.float32)
    validate(Arrays(np.zeros(3), pose))
    validate(Arrays(np.zeros((0, 5, 1)), pose, np.zeros((4, 3), np.int16)))
    validate(Arrays(np.array(1.5), pose, np.zeros((0, 3), np.int16)))
    validate(Arrays(np.zeros((4, 4))[::2, ::2], pose))


@pytest.mark.parametrize(
    ("values", "path", "reason"),
    [
        ({"free": [1.0]}, "$.free", r"is no array.*; write np.array\(..., np.float64\)"),
        ({"free": np.zeros(3, np.float32)}, "$.free", r"astype\(np.float64\)"),
        ({"free": np.zeros(3, ">f8")}, "$.free", ">f8"),
        ({"free": np.zeros(3).view(np.recarray)}, "$.free", r"np.asarray\(...\)"),
        ({"free": np.zeros((1,) * 33)}, "$.free", "shape"),
        ({"pose": np.zeros((2, 3), np.float32)}, "$.pose", r"shape \(2, 3\)"),
        ({"pose": np.zeros(4, np.float32)}, "$.pose", r"shape \(4,\)"),
        ({"cloud": np.zeros((4, 2), np.int16)}, "$.cloud", r"shape \(4, 2\)"),
        ({"cloud": np.zeros((4, 3, 1), np.int16)}, "$.cloud", "shape"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_an_array_of_another_type_byte_order_or_shape_is_refused(
    values: dict[str, Any], path: str, reason: str
) -> None:
    good = {"free": np.zeros(3), "pose": np.zeros((2, 2), np.float32)}
    with pytest.raises(hg.InvalidEvent, match=reason) as caught:
        validate(Arrays(**{**good, **values}))
    assert caught.value.path == path


def test_a_strict_class_checks_when_it_is_built() -> None:
    class Strict(hg.Event, strict=True):
        number: int
        ratio: float = 0.0

    with pytest.raises(hg.InvalidEvent):
        Strict("x")  # type: ignore[arg-type]
    assert type(Strict(1, 2).ratio) is float


def test_a_class_without_fields_always_passes() -> None:
    class Empty(hg.Event):
        pass

    validate(Empty())


def test_the_validator_of_a_class_is_what_validate_calls() -> None:
    check = validator(Point)
    point = Point(1, 2.0)
    check(point)
    assert type(point.lat) is float
    assert validator(Point) is check


def test_something_that_is_no_event_is_refused() -> None:
    with pytest.raises(hg.FormatError, match="no event class"):
        validate("event")  # type: ignore[arg-type]


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(hg.InvalidEvent, match="deeper than 64"):
        validate(Everything(extra=loop))


def test_an_int_in_a_float_field_is_put_right_without_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner(hg.Event, name="validate.inner"):
        depth: float

    class Mixed(hg.Event, name="validate.mixed", frozen=True):
        speed: float
        inner: Inner
        height: float | None = None

    monkeypatch.setattr(_Mender, "event", lambda *_: pytest.fail("it was looked at twice"))
    mixed = Mixed(410, Inner(-3))
    validate(mixed)
    assert (mixed.speed, mixed.inner.depth) == (410.0, -3.0)
    assert (type(mixed.speed), type(mixed.inner.depth)) == (float, float)


def test_an_int_that_no_float_holds_exactly_is_looked_at_twice() -> None:
    class Large(hg.Event, name="validate.large"):
        speed: float

    large = Large(1 << 60)
    validate(large)
    assert type(large.speed) is float
    with pytest.raises(hg.InvalidEvent):
        validate(Large(1 << 2000))
    with pytest.raises(hg.InvalidEvent):
        validate(Large(True))
