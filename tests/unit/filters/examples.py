"""A format that has a bit of everything, for tests of the filter language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.filters.check import check, check_value
from heliograph.filters.parser import parse
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format

if TYPE_CHECKING:
    from heliograph.filters import typed

_F64 = ft.Scalar("f64")
_TEXT = ft.Scalar("str")

POSITION = Format("position", (Field("lat", _F64), Field("lon", ft.Optional(_F64))))
TRACK = Format(
    "air.track",
    (
        Field("id", ft.Scalar("i64")),
        Field("speed", _F64),
        Field("region", _TEXT),
        Field("alt", ft.Optional(_F64)),
        Field("count", ft.Optional(ft.Scalar("i64"))),
        Field("serial", ft.Scalar("u64")),
        Field("gain", ft.Scalar("f32")),
        Field("active", ft.Scalar("bool")),
        Field("seen", ft.Scalar("datetime")),
        Field("raw", ft.Scalar("bytes")),
        Field("position", ft.Optional(ft.NestedEvent(POSITION))),
        Field("samples", ft.List(_F64)),
        Field("rgb", ft.List(ft.Scalar("u8"), 3)),
        Field("line", ft.Array("f64", (None,))),
        Field("grid", ft.Array("f64", (2, None))),
        Field("free", ft.Array("i32")),
        Field("state", ft.Enum("State", "i64", (("OFF", 0), ("ON", 1)))),
        Field("band", ft.Enum("Band", "str", (("LOW", "low"), ("HIGH", "high")))),
        Field("extra", ft.Anything()),
        Field("header", _TEXT),
        Field("end", ft.Scalar("i64")),
        Field("price", ft.Decimal(18, 4)),
        Field("total", ft.Decimal(38, 20)),
        Field("tags", ft.Map(_TEXT, _TEXT)),
        Field("slots", ft.Map(ft.Scalar("u8"), _F64)),
        Field("states", ft.Map(ft.Enum("State", "i64", (("OFF", 0), ("ON", 1))), _TEXT)),
    ),
)


def condition(text: str, **params: object) -> typed.Checked:
    return check(parse(text, params), TRACK)


def value(text: str, **params: object) -> typed.Checked:
    return check_value(parse(text, params), TRACK)
