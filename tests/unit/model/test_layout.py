"""Native layouts: the same places that a C compiler chooses, and refusal of places that cannot be."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import heliograph as hg
from heliograph.model import field_types as ft
from heliograph.model.formats import Field
from heliograph.model.layout import check_layout, native_format, round_up, size_and_align

C_TYPES: dict[str, Any] = {
    "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "f32": ctypes.c_float, "f64": ctypes.c_double, "bool": ctypes.c_bool, "datetime": ctypes.c_int64,
}  # fmt: skip


def scalars(*names: Any) -> list[tuple[str, ft.FieldType]]:
    return [(f"f{index}", ft.Scalar(name)) for index, name in enumerate(names)]


@pytest.mark.parametrize(
    "names",
    [
        ("i8", "i64", "i8"),
        ("i8", "i16", "i32", "i64"),
        ("f64", "bool", "f32", "u16", "u8"),
        ("u8", "u8", "u8"),
        ("i32", "datetime", "bool"),
        tuple(C_TYPES),
    ],
    ids=lambda names: "-".join(names)[:30],
)
def test_numbers_stand_where_c_puts_them(names: tuple[str, ...]) -> None:
    fmt = native_format("x", scalars(*names))
    members = [(f"f{index}", C_TYPES[name]) for index, name in enumerate(names)]
    structure = type("S", (ctypes.Structure,), {"_fields_": members})
    assert [field.offset for field in fmt.fields] == [getattr(structure, name).offset for name, _ in members]
    assert (fmt.size, fmt.align) == (ctypes.sizeof(structure), ctypes.alignment(structure))


@pytest.mark.parametrize(
    ("kind", "size", "align"),
    [
        (ft.Scalar("str"), 8, 4),
        (ft.Scalar("bytes"), 8, 4),
        (ft.Enum("E", "i64", (("A", 1),)), 8, 8),
        (ft.Enum("E", "str", (("A", "a"),)), 8, 4),
        (ft.Optional(ft.Scalar("i8")), 2, 1),
        (ft.Optional(ft.Scalar("f64")), 16, 8),
        (ft.Optional(ft.Scalar("str")), 12, 4),
        (ft.Array("i16", (2, 3)), 12, 2),
        (ft.Array("f64", (0,)), 0, 8),
        (ft.Array("i16", (None, 3)), 8, 4),
        (ft.Array("i16"), 8, 4),
        (ft.NestedEvent(native_format("r", scalars("i8", "i32"))), 8, 4),
        (ft.NestedEvent(native_format("r", [])), 0, 1),
    ],
    ids=str,
)
def test_each_type_has_its_size_and_alignment(kind: ft.FieldType, size: int, align: int) -> None:
    assert size_and_align(kind, "$", "<") == (size, align)


@pytest.mark.parametrize(
    "kind", [ft.List(ft.Scalar("i8")), ft.Anything(), ft.Optional(ft.Anything())], ids=str
)
def test_lists_and_any_have_no_native_form(kind: ft.FieldType) -> None:
    with pytest.raises(hg.FormatError, match="has no native form") as caught:
        native_format("x", [("a", kind)])
    assert caught.value.path == "$.a"


@pytest.mark.parametrize(
    "inner", [hg.Format("r", (Field("a", ft.Scalar("i8")),)), native_format("r", scalars("i8"), (), ">")]
)
def test_a_native_record_holds_only_native_ones_of_its_byte_order(inner: hg.Format) -> None:
    with pytest.raises(hg.FormatError, match="its own byte order"):
        native_format("x", [("a", ft.NestedEvent(inner))])


def placed(
    *places: int | None, size: int = 16, align: int = 8, kind: ft.FieldType | None = None
) -> hg.Format:
    kind = kind or ft.Scalar("i32")
    fields = tuple(Field(f"f{index}", kind, place) for index, place in enumerate(places))
    return hg.Format("x", fields, (), "native", "<", size, align)


@pytest.mark.parametrize(
    "fmt",
    [placed(0, 4), placed(4, 0), placed(12, 3), placed(0), placed(), placed(0, 0, kind=ft.Array("i8", (0,)))],
)
def test_gaps_and_any_order_are_fine(fmt: hg.Format) -> None:
    check_layout(fmt, "$")


def test_overlap_is_found_behind_a_field_without_size() -> None:
    nothing, four = ft.Array("i8", (0,)), ft.Array("i8", (8,))
    fields = (Field("a", four, 0), Field("b", nothing, 2), Field("c", ft.Scalar("i32"), 4))
    with pytest.raises(hg.FormatError, match="overlaps") as caught:
        check_layout(hg.Format("x", fields, (), "native", "<", 16, 8), "$")
    assert caught.value.path == "$.c"


@pytest.mark.parametrize(
    ("fmt", "reason"),
    [
        (placed(0, 2), "overlaps"),
        (placed(8, 5), "overlaps"),
        (placed(0, 0), "overlaps"),
        (placed(13), "outside the fixed part"),
        (placed(-4), "outside the fixed part"),
        (placed(None), "needs an offset"),
        (placed(0, size=15), "not possible"),
        (placed(0, align=3), "not possible"),
        (placed(0, align=16), "not possible"),
        (placed(0, size=-8), "not possible"),
        (placed(0, size=1 << 27), "not possible"),
    ],
)
def test_places_that_cannot_be_are_refused(fmt: hg.Format, reason: str) -> None:
    with pytest.raises(hg.FormatError, match=reason):
        check_layout(fmt, "$")


def test_packed_formats_have_no_places() -> None:
    with pytest.raises(hg.FormatError, match="no offsets"):
        check_layout(hg.Format("x", (Field("a", ft.Scalar("i8"), 0),)), "$")


def test_rounding_up() -> None:
    assert [round_up(n, 8) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]
