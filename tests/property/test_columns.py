from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.codec.columnar.columns import columns_to_batch, from_batch, schema, to_batch
from heliograph.codec.columnar.unify import unified
from heliograph.errors import FormatError
from heliograph.model import field_types as ft
from heliograph.model.compatibility import compare
from heliograph.model.formats import Field, Format
from tests.strategies import field_types, formats, rows, same
from tests.support import examples


@given(st.data(), st.booleans())
@settings(max_examples=examples(400))
def test_a_batch_keeps_every_value_of_every_format(data: st.DataObject, spark_safe: bool) -> None:
    fmt = data.draw(formats())
    events = data.draw(st.lists(rows(fmt), max_size=5))
    batch = to_batch(fmt, events, spark_safe=spark_safe)
    batch.validate(full=True)
    assert batch.schema == schema(fmt, spark_safe=spark_safe)
    assert same(from_batch(fmt, batch), events)


@given(st.data())
@settings(max_examples=examples(200))
def test_a_slice_of_a_batch_has_the_rows_of_the_slice(data: st.DataObject) -> None:
    fmt = data.draw(formats())
    events = data.draw(st.lists(rows(fmt), max_size=5))
    start = data.draw(st.integers(0, len(events)))
    length = data.draw(st.integers(0, len(events) - start))
    part = to_batch(fmt, events).slice(start, length)
    assert same(from_batch(fmt, part), events[start : start + length])


@given(st.data())
@settings(max_examples=examples(200))
def test_columns_give_the_same_batch_as_rows(data: st.DataObject) -> None:
    fmt = data.draw(formats().filter(lambda fmt: fmt.fields))
    events = data.draw(st.lists(rows(fmt), max_size=5))
    columns = [[event[field.name] for event in events] for field in fmt.fields]
    assert same(from_batch(fmt, columns_to_batch(fmt, columns)), events)


def carries(back: Any, value: Any) -> bool:
    """Whether a value came back, perhaps in a wider type and with None for fields that it did not have."""
    if isinstance(value, dict):
        extra = [back[name] for name in back if name not in value]
        return all(carries(back[name], value[name]) for name in value) and all(v is None for v in extra)
    if isinstance(value, list):
        return len(back) == len(value) and all(map(carries, back, value))
    if isinstance(value, np.ndarray):
        return np.array_equal(back, value, equal_nan=value.dtype.kind == "f")
    return bool(back == value or same(back, value))


@given(st.data())
@settings(max_examples=examples(200))
def test_a_unified_format_holds_the_rows_of_each_format(data: st.DataObject) -> None:
    first, second = data.draw(field_types(1)), data.draw(field_types(1))
    old = Format("t", (Field("f", first), Field("old", ft.Scalar("u8"))))
    new = Format("t", (Field("f", second), Field("new", ft.Scalar("str"))))
    try:
        both = unified([old, new])
    except FormatError:
        return
    for fmt, absent in ((old, "new"), (new, "old")):
        assert all("the writer has none" in problem for problem in compare(fmt, both).problems)
        event: dict[str, Any] = data.draw(rows(fmt))
        (back,) = from_batch(both, to_batch(both, [event]))
        assert list(back) == ["f", "old", "new"]
        assert back[absent] is None
        assert carries(back, event)


@given(st.data())
@settings(max_examples=examples(300))
def test_formats_in_any_order_are_unified_to_the_same_types(data: st.DataObject) -> None:
    narrow = st.sampled_from(sorted(ft.SCALARS)).map(ft.Scalar)  # type: ignore[arg-type]  # the names are the scalar names
    kinds = st.one_of(narrow, narrow.map(ft.Optional), narrow.map(ft.List), field_types(1))
    given_formats = [
        Format(
            "t", tuple(Field(name, data.draw(kinds)) for name in data.draw(st.sets(st.sampled_from("ab"))))
        )
        for _ in range(data.draw(st.integers(2, 4)))
    ]
    shuffled = data.draw(st.permutations(given_formats))
    assert types_of(given_formats) == types_of(shuffled)


def types_of(formats: list[Format]) -> dict[str, Any] | None:
    """What unifying gives, without the names and the order that are those of the first format."""
    try:
        return nameless(unified(formats))
    except FormatError:
        return None


def nameless(fmt: Format) -> dict[str, Any]:
    return {field.name: nameless_type(field.type) for field in fmt.fields}


def nameless_type(kind: ft.FieldType) -> Any:
    match kind:
        case ft.NestedEvent(format=fmt):
            return nameless(fmt)
        case ft.Optional(item=item):
            return ("optional", nameless_type(item))
        case ft.List(item=item, length=length):
            return ("list", nameless_type(item), length)
        case _:
            return kind
