"""Which annotations are fields, what they become, and what is said about the others."""

from __future__ import annotations

import enum
import typing
from datetime import datetime
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import heliograph as hg
from heliograph.model import field_types as ft
from heliograph.model.annotations import Length, Shape, Width, field_type, wire_annotation


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Mixed(enum.Enum):
    A = 1
    B = "b"


class Huge(enum.Enum):
    A = 2**63


class Bits(enum.Flag):
    A = 1


class Empty(enum.Enum):
    pass


class Point(hg.Event):
    lat: float


GOOD: list[tuple[Any, ft.FieldType]] = [
    (int, ft.Scalar("i64")),
    (float, ft.Scalar("f64")),
    (str, ft.Scalar("str")),
    (bytes, ft.Scalar("bytes")),
    (bool, ft.Scalar("bool")),
    (datetime, ft.Scalar("datetime")),
    *[(getattr(hg, name), ft.Scalar(name)) for name in sorted(ft.NUMBERS)],  # type: ignore[arg-type]
    (Annotated[int, "a remark"], ft.Scalar("i64")),
    (int | None, ft.Optional(ft.Scalar("i64"))),
    (typing.Optional[int], ft.Optional(ft.Scalar("i64"))),  # noqa: UP045 - the old spelling
    (hg.u8 | None, ft.Optional(ft.Scalar("u8"))),
    (Any, ft.Anything()),
    (Any | None, ft.Anything()),
    (Color, ft.Enum("Color", "str", (("RED", "red"), ("BLUE", "blue")))),
    (Level, ft.Enum("Level", "i64", (("LOW", 1),))),
    (Point, ft.NestedEvent(hg.format_of(Point))),
    (list[int], ft.List(ft.Scalar("i64"))),
    (list[list[Point | None]], ft.List(ft.List(ft.Optional(ft.NestedEvent(hg.format_of(Point)))))),
    (Annotated[list[hg.u8], Length(3)], ft.List(ft.Scalar("u8"), 3)),
    (NDArray[np.float64], ft.Array("f64")),
    (NDArray[np.bool_], ft.Array("bool")),
    (NDArray[np.uint16] | None, ft.Optional(ft.Array("u16"))),
    (Annotated[NDArray[np.float32], Shape(None, 3)], ft.Array("f32", (None, 3))),
    (Annotated[NDArray[np.int8], Shape(0)], ft.Array("i8", (0,))),
]

BAD: list[tuple[Any, str]] = [
    (dict, r"dict needs the types of its keys and values"),
    (dict[float, int], r"the keys of a map are str, integers or an enum, not f64"),
    (tuple[int, int], r"is no type for a field.*allowed are int, float"),
    (set[int], r"is no type for a field"),
    (object, r"object is no type"),
    (complex, r"complex is no type"),
    (None, r"None is no type"),
    (int | str, r"a union is allowed only with None"),
    (int | str | None, r"a union is allowed only with None"),
    (list, r"list needs the type of its items"),
    (np.ndarray, r"an array needs the type of its items"),
    (NDArray[np.complex128], r"an array holds one of bool, float32"),
    (NDArray[Any], r"an array holds one of"),
    (Mixed, r"all str or all 64-bit int"),
    (Huge, r"all str or all 64-bit int"),
    (Bits, r"cannot be a Flag"),
    (Empty, r"needs members"),
    (hg.Event, r"Event is no type"),
    (Annotated[str, Width("i8")], r"i8 does not go with str"),
    (Annotated[int, Width("f32")], r"f32 does not go with int"),
    (list[set[int]], r"set\[int\] is no type"),
    (Annotated[list[int], Shape(3)], r"Shape goes with a numpy NDArray only"),
    (Annotated[int, Length(3)], r"Length goes with a list only"),
    (Annotated[list[int], Length(-1)], r"not negative"),
]


@pytest.mark.parametrize(("annotation", "kind"), GOOD, ids=str)
def test_an_annotation_becomes_a_type(annotation: Any, kind: ft.FieldType) -> None:
    assert field_type(annotation, "$.a") == kind


@pytest.mark.parametrize(("annotation", "reason"), BAD, ids=str)
def test_an_annotation_that_is_no_type_is_refused_with_what_is_allowed(annotation: Any, reason: str) -> None:
    with pytest.raises(hg.FormatError, match=reason) as caught:
        field_type(annotation, "$.a")
    assert caught.value.path.startswith("$.a")


def test_the_path_leads_into_lists() -> None:
    with pytest.raises(hg.FormatError) as caught:
        field_type(list[list[object]], "$.a")
    assert caught.value.path == "$.a[][]"


@pytest.mark.parametrize("dimensions", [(), (-1,), (1 << 31,), (1,) * 33], ids=str)
def test_shapes_that_cannot_be_are_refused(dimensions: tuple[int, ...]) -> None:
    with pytest.raises(hg.FormatError, match="Shape takes 1 to 32 dimensions"):
        Shape(*dimensions)


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (hg.i8, [-128, 127], [-129, 128, True, 1.5]),
        (hg.u64, [0, 2**64 - 1], [-1]),
        (int, [-(2**63), 2**63 - 1], [2**63]),
        (hg.f32, [1.5], ["x"]),
        (hg.u8 | None, [None, 255], [256]),
        (list[hg.u8], [[255]], [[256], 5]),
        (Annotated[list[int], Length(2)], [[1, 2]], [[1], [1, 2, 3]]),
        (Color, ["red"], ["green"]),
    ],
    ids=str,
)
def test_msgspec_itself_refuses_what_is_out_of_range(
    annotation: Any, good: list[Any], bad: list[Any]
) -> None:
    decoder = msgspec.msgpack.Decoder(wire_annotation(annotation, field_type(annotation, "$.a")))
    for value in good:
        decoder.decode(msgspec.msgpack.encode(value))
    for value in bad:
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(msgspec.msgpack.encode(value))


def test_a_shape_prints_as_it_is_written() -> None:
    assert repr(Shape(None, 3)) == "Shape(None, 3)"
