from __future__ import annotations

import math
import struct
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.model import field_types as ft
from heliograph.model.compatibility import compare
from heliograph.model.formats import Field, Format
from tests.strategies import (
    DTYPES,
    array_items,
    decimal_types,
    field_types,
    formats,
    rows,
    scalar_names,
    shapes,
)
from tests.support import examples

_CLASSES = {"bool": bool, "str": str, "bytes": bytes, "datetime": datetime, "date": date, "uuid": UUID}


def fits(value: Any, kind: ft.FieldType) -> bool:
    """Whether a plain value is, unchanged, one of the values of a type."""
    match kind:
        case ft.Anything():
            return _any_fits(value)
        case ft.Optional(item=item):
            return value is None or fits(value, item)
        case ft.Scalar(name=name):
            return _scalar_fits(value, name)
        case ft.Enum():
            return type(value) is (int if kind.base == "i64" else str) and value in kind.values
        case ft.NestedEvent(format=fmt):
            return isinstance(value, dict) and all(fits(value[f.name], f.type) for f in fmt.fields)
        case ft.List():
            return (
                isinstance(value, list)
                and kind.length in (None, len(value))
                and all(fits(item, kind.item) for item in value)
            )
        case ft.Decimal():
            return _decimal_fits(value, kind)
        case ft.Map():
            return isinstance(value, dict) and all(
                fits(key, kind.key) and fits(item, kind.value) for key, item in value.items()
            )
        case ft.Array():
            return _array_fits(value, kind)


def _decimal_fits(value: Any, kind: ft.Decimal) -> bool:
    if type(value) not in (int, Decimal):
        return False
    _, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * 10 ** (exponent + 40)
    return bool(number % 10 ** (40 - kind.scale) == 0 and number < 10 ** (kind.whole_digits + 40))


def _any_fits(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_any_fits, value.values()))
    if isinstance(value, list):
        return all(map(_any_fits, value))
    return value is None or type(value) in (bool, int, float, str, bytes, datetime)


def _scalar_fits(value: Any, name: str) -> bool:
    if name in ft.INTEGER_RANGES:
        low, high = ft.INTEGER_RANGES[name]
        return type(value) is int and low <= value <= high
    if name in ft.FLOATS:
        if type(value) not in (int, float):
            return False
        if not math.isfinite(value):
            return True
        code = "f" if name == "f32" else "d"
        try:
            return bool(struct.unpack(code, struct.pack(code, value))[0] == value)
        except OverflowError:
            return False
    return type(value) is _CLASSES[name]


def _array_fits(value: Any, kind: ft.Array) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    wanted = kind.shape if kind.shape is not None else (None,) * value.ndim
    if len(wanted) != value.ndim or any(n not in (None, m) for n, m in zip(wanted, value.shape, strict=True)):
        return False
    with np.errstate(all="ignore"):
        back = value.astype(DTYPES[kind.item]).astype(value.dtype)
    return bool(np.array_equal(back, value, equal_nan=value.dtype.kind == "f"))


@st.composite
def relatives(draw: st.DrawFn, kind: ft.FieldType) -> ft.FieldType:
    """A type that is often, but not always, one that `kind` can be read as."""
    choice = draw(st.integers(0, 5))
    if choice == 0:
        return draw(field_types(1))
    if choice == 1 and not isinstance(kind, ft.Optional):
        return ft.Optional(draw(relatives(kind)))
    match kind:
        case ft.Scalar():
            if draw(st.integers(0, 3)) == 0:
                return draw(decimal_types())
            return ft.Scalar(draw(scalar_names)) if draw(st.booleans()) else kind
        case ft.Optional(item=item):
            return ft.Optional(item) if choice < 4 else item
        case ft.Enum():
            return ft.Enum("E", kind.base, kind.members[: draw(st.integers(1, len(kind.members)))])
        case ft.NestedEvent(format=fmt):
            return ft.NestedEvent(draw(evolved(fmt)))
        case ft.List(item=item):
            return ft.List(draw(relatives(item)), None if draw(st.booleans()) else kind.length)
        case ft.Decimal(precision=precision, scale=scale):
            wider = draw(st.integers(min(precision + 2, 38), 38)), draw(st.integers(0, 2))
            return ft.Decimal(wider[0], min(scale + wider[1], wider[0]))
        case ft.Map(key=key, value=value):
            other = draw(relatives(key) if draw(st.booleans()) else st.just(key))
            return ft.Map(
                other if isinstance(other, ft.Enum | ft.Scalar) and ft.is_map_key(other) else key,
                draw(relatives(value)),
            )
        case ft.Array():
            return ft.Array(draw(array_items | st.just(kind.item)), draw(shapes() | st.just(kind.shape)))
        case ft.Anything():
            return kind


@st.composite
def evolved(draw: st.DrawFn, fmt: Format) -> Format:
    """A later or earlier version of a format."""
    fields = [Field(f.name, draw(relatives(f.type))) for f in fmt.fields if draw(st.integers(0, 5))]
    if not draw(st.integers(0, 5)):
        fields.append(Field("added", draw(field_types(0))))
    return Format(fmt.name, tuple(draw(st.permutations(fields))))


@given(formats())
@settings(max_examples=examples(200))
def test_every_format_can_be_read_as_itself_without_any_change(fmt: Format) -> None:
    again = Format.from_description(fmt.description)
    comparison = compare(fmt, again, missing="refuse")
    assert comparison.compatible
    assert comparison.ignored == comparison.defaulted == ()
    assert comparison.widened == ()


@given(st.data())
@settings(max_examples=examples(800))
def test_compatible_means_that_every_value_fits(data: st.DataObject) -> None:
    kind = data.draw(field_types())
    writer, reader = Format("t", (Field("f", kind),)), Format("t", (Field("f", data.draw(relatives(kind))),))
    if compare(writer, reader).compatible:
        assert fits(data.draw(rows(writer)), ft.NestedEvent(reader))


@given(st.data())
@settings(max_examples=examples(200))
def test_an_evolved_format_that_is_compatible_takes_every_event(data: st.DataObject) -> None:
    writer = data.draw(formats())
    reader = data.draw(evolved(writer))
    if compare(writer, reader).compatible:
        assert fits(data.draw(rows(writer)), ft.NestedEvent(reader))


@given(st.data())
@settings(max_examples=examples(200))
def test_every_field_of_both_formats_is_accounted_for(data: st.DataObject) -> None:
    writer = data.draw(formats(0))
    reader = data.draw(evolved(writer))
    defaults = {f.name for f in reader.fields if data.draw(st.booleans())}
    comparison = compare(writer, reader, has_default=defaults)
    only_writer = {f"$.{f.name}" for f in writer.fields if f.name not in reader.by_name}
    only_reader = {f.name for f in reader.fields if f.name not in writer.by_name}
    assert set(comparison.ignored) == only_writer
    assert set(comparison.defaulted) == {f"$.{name}" for name in only_reader & defaults}
    assert sum("the writer has none" in sentence for sentence in comparison.problems) == len(
        only_reader - defaults
    )
