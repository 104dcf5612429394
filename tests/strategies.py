"""Random formats, and random values that fit them, in the plain form of
`heliograph.codec.dynamic.reflect`."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, cast

import numpy as np
from hypothesis import strategies as st

from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format

DTYPES: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "f32": np.float32,
    "f64": np.float64,
    **{f"i{bits}": np.dtype(f"int{bits}").type for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}").type for bits in (8, 16, 32, 64)},
}

scalar_names = cast("st.SearchStrategy[ft.ScalarName]", st.sampled_from(sorted(ft.SCALARS)))
array_items = cast("st.SearchStrategy[ft.ScalarName]", st.sampled_from(sorted(ft.ARRAY_ITEMS)))
field_names = st.sampled_from(["a", "b", "c", "lat", "lon", "größe", "class", "x.y", "$ref"]) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8
)
datetimes = st.datetimes(timezones=st.just(UTC))
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | datetimes,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["$bytes", "$$", "$float"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@st.composite
def enums(draw: st.DrawFn) -> ft.Enum:
    values: list[int] | list[str] = draw(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4, unique=True)
        | st.lists(st.text(max_size=4), min_size=1, max_size=4, unique=True)
    )
    members: tuple[tuple[str, int | str], ...] = tuple(zip(("M0", "M1", "M2", "M3"), values, strict=False))
    return ft.Enum("E", "i64" if isinstance(values[0], int) else "str", members)


def shapes() -> st.SearchStrategy[tuple[int | None, ...] | None]:
    return st.none() | st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=3).map(tuple)


map_keys = enums() | st.sampled_from(["str", *ft.INTEGER_RANGES]).map(
    lambda name: ft.Scalar(cast("ft.ScalarName", name))
)


@st.composite
def decimal_types(draw: st.DrawFn) -> ft.Decimal:
    precision = draw(st.sampled_from([1, 18, 19, 38]) | st.integers(1, 38))
    return ft.Decimal(precision, draw(st.integers(0, precision)))


def decimals(kind: ft.Decimal) -> st.SearchStrategy[Decimal]:
    top = 10**kind.precision - 1
    return st.integers(-top, top).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -kind.scale))
    )


@cache
def field_types(depth: int = 2) -> st.SearchStrategy[ft.FieldType]:
    leaves = (
        scalar_names.map(ft.Scalar)
        | enums()
        | st.builds(ft.Array, array_items, shapes())
        | st.just(ft.Anything())
        | decimal_types()
    )
    if depth == 0:
        return leaves
    inner = st.deferred(lambda: field_types(depth - 1))
    not_optional = inner.filter(lambda kind: not isinstance(kind, ft.Optional | ft.Anything))
    return (
        leaves
        | st.builds(ft.Optional, not_optional)
        | st.builds(ft.List, inner, st.none() | st.integers(0, 3))
        | st.builds(ft.Map, map_keys, inner)
        | st.deferred(lambda: formats(depth - 1).map(ft.NestedEvent))
    )


@st.composite
def formats(draw: st.DrawFn, depth: int = 2) -> Format:
    names = draw(st.lists(field_names, max_size=4, unique=True))
    return Format("random.event", tuple(Field(name, draw(field_types(depth))) for name in names))


def values(kind: ft.FieldType) -> st.SearchStrategy[Any]:
    """Values of a type: records as dicts, enums by value, arrays as numpy arrays."""
    match kind:
        case ft.Scalar(name=name):
            return _scalars(name)
        case ft.Optional(item=item):
            return st.none() | values(item)
        case ft.Enum():
            return st.sampled_from([value for _, value in kind.members])
        case ft.NestedEvent(format=fmt):
            return rows(fmt)
        case ft.List(item=item, length=length):
            return st.lists(values(item), min_size=length or 0, max_size=4 if length is None else length)
        case ft.Decimal():
            return decimals(kind)
        case ft.Map():
            return st.dictionaries(values(kind.key), values(kind.value), max_size=3)
        case ft.Array():
            return arrays(kind)
        case ft.Anything():
            return anything


def rows(fmt: Format) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values(field.type) for field in fmt.fields})


@st.composite
def arrays(draw: st.DrawFn, kind: ft.Array) -> Any:
    wanted = kind.shape if kind.shape is not None else (None,) * draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(0, 3)) if n is None else n for n in wanted)
    count = math.prod(shape)
    items = draw(st.lists(_scalars(kind.item), min_size=count, max_size=count))
    return np.array(items, dtype=DTYPES[kind.item]).reshape(shape)


def _scalars(name: ft.ScalarName) -> st.SearchStrategy[Any]:
    if name in ft.INTEGER_RANGES:
        return st.integers(*ft.INTEGER_RANGES[name])
    return {
        "f32": st.floats(width=32),
        "f64": st.floats(),
        "bool": st.booleans(),
        "str": st.text(max_size=8),
        "bytes": st.binary(max_size=8),
        "datetime": datetimes,
        "date": st.dates() | st.sampled_from([date.min, date.max]),
        "uuid": st.uuids(),
    }[name]


def same(a: Any, b: Any, *, nan_bits: bool = True) -> bool:
    """Equality that also holds for arrays and NaN, and tells 1 from 1.0 and True.

    Arrays are compared bit by bit; JSON, which has one NaN only, asks with `nan_bits=False`.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], nan_bits=nan_bits) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y, nan_bits=nan_bits) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        if not nan_bits and a.dtype.kind == b.dtype.kind == "f":
            a, b = (np.where(np.isnan(array), array.dtype.type("nan"), array) for array in (a, b))
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, datetime):
        return bool(a == b) and a.utcoffset() == b.utcoffset()
    return bool(a == b)
