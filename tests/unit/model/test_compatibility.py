from __future__ import annotations

import enum
import struct
from datetime import UTC, date, datetime
from itertools import product
from typing import Annotated, Any
from uuid import UUID

import msgspec
import numpy as np  # noqa: TC002 - event classes read their annotations at run time
import pytest
from numpy.typing import NDArray  # noqa: TC002 - as above

import heliograph as hg
from heliograph.errors import IncompatibleFormats
from heliograph.model import field_types as ft
from heliograph.model.compatibility import Widening, check, compare, defaults_of, widens
from heliograph.model.formats import Field, Format
from heliograph.model.layout import native_format


def fmt(key: tuple[str, ...] = (), **fields: ft.FieldType) -> Format:
    return Format("t", tuple(Field(name, kind) for name, kind in fields.items()), key)


def scalar(name: Any) -> ft.Scalar:
    return ft.Scalar(name)


def problem(writer: ft.FieldType, reader: ft.FieldType) -> str | None:
    """The single sentence about reading one type as the other; None when it can be."""
    problems = compare(fmt(f=writer), fmt(f=reader)).problems
    assert len(problems) <= 1
    return problems[0] if problems else None


def extremes(name: str) -> list[Any]:
    """Values of a scalar type that a narrower one loses."""
    if name in ft.INTEGER_RANGES:
        low, high = ft.INTEGER_RANGES[name]
        near = [edge + step for k in range(65) for edge in (-(1 << k), 1 << k) for step in (-1, 0, 1)]
        return [n for n in near if low <= n <= high]
    return {
        "f32": [0.5, struct.unpack("f", struct.pack("f", 0.1))[0], 2.0**100, float("nan"), float("-inf")],
        "f64": [0.5, 0.1, 2.0**1000, float("nan")],
        "bool": [True],
        "str": ["x"],
        "bytes": [b"x"],
        "datetime": [datetime(2026, 1, 1, tzinfo=UTC)],
        "date": [date(2026, 1, 1)],
        "uuid": [UUID(int=1)],
    }[name]


def survives(value: Any, name: str) -> bool:
    """Whether a value can be packed as a type and comes back equal: what a C compiler would say."""
    codes = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
    codes |= {"f32": "f", "f64": "d"}
    if name not in codes:
        plain = {"bool": bool, "str": str, "bytes": bytes, "datetime": datetime, "date": date, "uuid": UUID}
        return type(value) is plain[name]
    if type(value) not in (int, float):
        return False
    try:
        back = struct.unpack(codes[name], struct.pack(codes[name], value))[0]
    except (struct.error, OverflowError):
        return False
    return bool(back == value or (value != value and back != back))  # noqa: PLR0124 - only NaN differs from itself


@pytest.mark.parametrize(("writer", "reader"), list(product(sorted(ft.SCALARS), repeat=2)))
def test_a_scalar_widens_exactly_when_every_extreme_value_survives(writer: Any, reader: Any) -> None:
    expected = all(survives(value, reader) for value in extremes(writer))
    assert widens(writer, reader) is expected
    assert (problem(ft.Scalar(writer), ft.Scalar(reader)) is None) is expected


def test_an_extra_field_of_the_writer_is_ignored() -> None:
    comparison = compare(fmt(a=scalar("i64"), b=scalar("str")), fmt(a=scalar("i64")))
    assert comparison.compatible
    assert comparison.ignored == ("$.b",)
    assert comparison.defaulted == ()
    assert comparison.widened == ()


def test_a_missing_field_takes_the_default_of_the_reader() -> None:
    comparison = compare(fmt(), fmt(region=scalar("str")), has_default={"region"})
    assert comparison.compatible
    assert comparison.defaulted == ("$.region",)


def test_a_missing_field_without_a_default_is_refused_with_its_name_and_type() -> None:
    with pytest.raises(IncompatibleFormats) as caught:
        check(fmt(), fmt(region=scalar("str")))
    assert caught.value.writer == caught.value.reader == "t"
    assert caught.value.problems == (
        "$.region: the reader needs a field 'region' (str), the writer has none, and it has no default",
    )


def test_a_missing_field_is_refused_in_any_case_when_the_policy_says_so() -> None:
    comparison = compare(fmt(), fmt(region=scalar("str")), has_default={"region"}, missing="refuse")
    assert len(comparison.problems) == 1
    assert comparison.problems[0].endswith("the writer has none, and missing fields are refused here")
    assert comparison.defaulted == ()


def test_a_probable_rename_is_hinted_at_and_refused() -> None:
    writer, reader = fmt(velocity=scalar("f64"), n=scalar("i64")), fmt(speed=scalar("f64"), n=scalar("i64"))
    (sentence,) = compare(writer, reader).problems
    assert "is it the writer's 'velocity' (f64) under a new name? then keep the old name" in sentence


def test_an_extra_field_of_another_type_is_no_probable_rename() -> None:
    (sentence,) = compare(fmt(velocity=scalar("f32")), fmt(speed=scalar("f64"))).problems
    assert "velocity" not in sentence


def test_narrowing_names_the_field_and_both_types() -> None:
    assert problem(scalar("i64"), scalar("i32")) == (
        "$.f: i64 of the writer cannot be read as i32: it does not hold all values"
    )


def test_retyping_names_the_field_and_both_types() -> None:
    assert problem(scalar("i64"), scalar("str")) == (
        "$.f: i64 of the writer cannot be read as str: it is another type"
    )


def test_a_value_becomes_optional_but_not_the_reverse() -> None:
    i64 = scalar("i64")
    assert compare(fmt(f=i64), fmt(f=ft.Optional(i64))).widened == (Widening("$.f", "i64", "i64 | None"),)
    assert "None would have no place" in (problem(ft.Optional(i64), i64) or "")
    assert problem(ft.Optional(scalar("i8")), ft.Optional(i64)) is None
    assert problem(ft.Optional(i64), ft.Optional(scalar("i8"))) is not None


RED, BLUE = ("RED", 1), ("BLUE", 2)


def test_an_enum_is_read_by_one_that_knows_all_its_values() -> None:
    small, large = ft.Enum("Color", "i64", (RED,)), ft.Enum("Color", "i64", (RED, BLUE))
    assert problem(small, large) is None
    assert problem(large, small) == (
        "$.f: enum Color of the writer cannot be read as enum Color: the reader does not know BLUE (2)"
    )


def test_a_renamed_member_with_the_same_value_is_the_same_member() -> None:
    comparison = compare(
        fmt(f=ft.Enum("Color", "i64", (RED,))), fmt(f=ft.Enum("Colour", "i64", (("ROUGE", 1),)))
    )
    assert comparison.compatible
    assert comparison.widened == ()


def test_an_enum_is_read_as_the_type_of_its_values_only() -> None:
    color = ft.Enum("Color", "i64", (RED,))
    assert problem(color, scalar("i64")) is None
    assert problem(color, scalar("str")) is not None
    assert problem(color, scalar("i32")) is not None
    assert problem(scalar("i64"), color) is not None
    assert problem(color, ft.Enum("Color", "str", (("RED", "1"),))) is not None


def test_a_fixed_list_becomes_free_but_not_the_reverse() -> None:
    fixed, free = ft.List(scalar("u8"), 3), ft.List(scalar("u16"))
    assert problem(fixed, free) is None
    assert problem(free, fixed) is not None
    assert problem(ft.List(scalar("u8"), 3), ft.List(scalar("u8"), 4)) is not None


def test_both_the_length_and_the_items_of_a_list_may_widen() -> None:
    comparison = compare(fmt(f=ft.List(scalar("u8"), 3)), fmt(f=ft.List(scalar("u16"))))
    assert comparison.widened == (
        Widening("$.f[]", "u8", "u16"),
        Widening("$.f", "list[u8; 3]", "list[u16]"),
    )


@pytest.mark.parametrize(
    ("writer", "reader", "fits"),
    [
        ((4, 4), (4, 4), True),
        ((4, 4), (None, 4), True),
        ((4, 4), None, True),
        ((None, 3), None, True),
        ((None, 3), (None, 3), True),
        ((None, 3), (4, 3), False),
        ((4, 4), (16,), False),
        (None, (None,), False),
    ],
)
def test_dimensions_of_an_array_may_become_free(writer: Any, reader: Any, fits: bool) -> None:
    assert (problem(ft.Array("f64", writer), ft.Array("f64", reader)) is None) is fits


def test_items_of_an_array_follow_the_rules_of_scalars() -> None:
    assert problem(ft.Array("i8"), ft.Array("i32")) is None
    assert problem(ft.Array("i32"), ft.Array("i8")) is not None
    assert problem(ft.Array("bool"), ft.Array("u8")) is not None


def test_an_array_and_a_list_are_different_types() -> None:
    assert problem(ft.Array("f64", (None,)), ft.List(scalar("f64"))) is not None
    assert problem(ft.List(scalar("f64")), ft.Array("f64", (None,))) is not None


def test_all_but_arrays_can_be_read_as_any() -> None:
    record = ft.NestedEvent(fmt(a=scalar("u64")))
    plain: list[ft.FieldType] = [
        scalar("bytes"),
        ft.Optional(scalar("i8")),
        ft.Enum("E", "i64", (RED,)),
        ft.List(record),
    ]
    for kind in plain:
        assert problem(kind, ft.Anything()) is None
        assert problem(ft.Anything(), kind) is not None
    array = ft.Array("f64")
    for holder in (array, ft.Optional(array), ft.NestedEvent(fmt(a=ft.List(array)))):
        assert "any holds no arrays" in (problem(holder, ft.Anything()) or "")


def test_problems_inside_records_and_lists_carry_the_path() -> None:
    writer = fmt(
        pos=ft.NestedEvent(fmt(lat=scalar("f64"))), track=ft.List(ft.NestedEvent(fmt(t=scalar("i64"))))
    )
    reader = fmt(
        pos=ft.NestedEvent(fmt(lat=scalar("f32"))), track=ft.List(ft.NestedEvent(fmt(t=scalar("str"))))
    )
    first, second = compare(writer, reader).problems
    assert first.startswith("$.pos.lat: f64 of the writer cannot be read as f32")
    assert second.startswith("$.track[].t: i64 of the writer cannot be read as str")


def test_defaults_inside_records_are_found_by_dotted_path() -> None:
    writer, reader = (
        fmt(pos=ft.List(ft.NestedEvent(fmt()))),
        fmt(pos=ft.List(ft.NestedEvent(fmt(lon=scalar("f64"))))),
    )
    assert compare(writer, reader, has_default={"pos.lon"}).defaulted == ("$.pos[].lon",)
    assert not compare(writer, reader, has_default={"lon"}).compatible


def test_another_key_is_refused() -> None:
    a, b = scalar("i64"), scalar("str")
    (sentence,) = compare(fmt(("a",), a=a, b=b), fmt(("b", "a"), a=a, b=b)).problems
    assert "the key is (a i64) for the writer and (b str, a i64) for the reader" in sentence
    assert not compare(fmt(("a",), a=a), fmt(a=a)).compatible


def test_the_key_of_a_nested_record_does_not_matter() -> None:
    assert problem(ft.NestedEvent(fmt(("a",), a=scalar("i64"))), ft.NestedEvent(fmt(a=scalar("i64")))) is None


def test_body_kind_byte_order_and_order_of_fields_do_not_matter() -> None:
    fields: list[tuple[str, ft.FieldType]] = [("a", scalar("i64")), ("b", scalar("f32"))]
    little, big = native_format("t", fields), native_format("t", fields[::-1], byte_order=">")
    packed = fmt(a=scalar("i64"), b=scalar("f32"))
    for writer, reader in product([little, big, packed], repeat=2):
        check(writer, reader)
        assert compare(writer, reader).widened == ()


def test_all_problems_are_told_at_once() -> None:
    writer = fmt(a=scalar("i64"), b=scalar("str"))
    reader = fmt(a=scalar("i8"), b=scalar("bytes"), c=scalar("bool"))
    assert [sentence.split(":")[0] for sentence in compare(writer, reader).problems] == ["$.a", "$.b", "$.c"]


class Color(enum.Enum):
    RED = 1


class Position(hg.Event):
    lat: float
    lon: float = 0.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    position: Position
    maybe: Position | None
    path: list[Position]
    samples: Annotated[NDArray[np.float64], hg.Shape(3)]
    region: str = "unknown"
    tags: list[str] = msgspec.field(default_factory=list)
    color: Color = Color.RED


def test_defaults_are_found_in_nested_event_classes() -> None:
    assert defaults_of(Track) == {
        "region", "tags", "color", "position.lon", "maybe.lon", "path.lon"
    }  # fmt: skip


def test_defaults_are_inherited() -> None:
    class Special(Track, kw_only=True):
        note: str = ""

    assert defaults_of(Special) == defaults_of(Track) | {"note"}


def test_what_is_said_about_a_wide_stranger_stays_short() -> None:
    names = [f"{i:03}{'n' * 250}" for i in range(1000)]
    stranger = Format("t", tuple(Field(name, scalar("f64")) for name in names))
    reader = Format("t", tuple(Field(f"wanted_{i}", scalar("f64")) for i in range(100)))
    with pytest.raises(IncompatibleFormats) as caught:
        check(stranger, reader)
    assert len(caught.value.problems) == 100
    assert "and 992 more (f64) under a new name?" in caught.value.problems[0]
    assert max(map(len, caught.value.problems)) < 3_000
    assert str(caught.value).endswith(" and 92 more")
    assert len(str(caught.value)) < 30_000


def test_of_many_unknown_enum_values_the_first_are_named_and_the_rest_counted() -> None:
    members = tuple((f"M{i}", "v" * 1000 + str(i)) for i in range(300))
    sentence = problem(ft.Enum("E", "str", members), ft.Enum("E", "str", members[:1]))
    assert sentence is not None
    assert "does not know M1 ('vvv" in sentence
    assert sentence.endswith("and 291 more")
    assert len(sentence) < 1_000


@pytest.mark.parametrize("name", ["date", "uuid"])
def test_any_holds_no_date_and_no_uuid_so_none_is_read_as_any(name: Any) -> None:
    for kind in (scalar(name), ft.Optional(scalar(name)), ft.List(scalar(name))):
        assert str(problem(kind, ft.Anything())).endswith(
            "any holds no arrays, decimals, dates and UUIDs, and maps with text as keys only"
        )
