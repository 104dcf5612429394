from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.codec.dynamic.plain import ValuePath, check_record
from heliograph.codec.dynamic.reflect import describe, json_to_mapping, mapping_to_json
from heliograph.errors import InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format
from tests.strategies import anything, field_types, formats, rows, same
from tests.support import examples


def refuse_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


@given(st.data())
@settings(max_examples=examples(500))
def test_json_keeps_every_value_of_every_format(data: st.DataObject) -> None:
    fmt = data.draw(formats())
    row = data.draw(rows(fmt))
    assert same(json_to_mapping(fmt, mapping_to_json(fmt, row)), row, nan_bits=False)


@given(anything)
@settings(max_examples=examples(500))
def test_json_keeps_schema_less_data(value: Any) -> None:
    fmt = Format("t", (Field("f", ft.Anything()),))
    assert same(json_to_mapping(fmt, mapping_to_json(fmt, {"f": value})), {"f": value}, nan_bits=False)


@given(st.data())
@settings(max_examples=examples(200))
def test_other_programs_can_read_the_json(data: st.DataObject) -> None:
    fmt = data.draw(formats())
    text = mapping_to_json(fmt, data.draw(rows(fmt)))
    assert list(json.loads(text, parse_constant=refuse_constant)) == [field.name for field in fmt.fields]


@given(st.data())
@settings(max_examples=examples(200))
def test_values_that_fit_pass_the_check_unchanged(data: st.DataObject) -> None:
    fmt = data.draw(formats())
    row = data.draw(rows(fmt))
    assert same(check_record(fmt, row, ValuePath("t")), row)


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["f", "a", "shape", "data", "$bytes", "$float", "$datetime", "$"]), inner
        )
    ),
    max_leaves=8,
)


@given(field_types(1), trees)
@settings(max_examples=examples(1000))
def test_foreign_json_is_read_or_refused_by_name(kind: ft.FieldType, tree: Any) -> None:
    fmt = Format("t", (Field("f", kind),))
    try:
        row = json_to_mapping(fmt, json.dumps({"f": tree}))
    except InvalidEvent:
        return
    check_record(fmt, row, ValuePath("t"))


def count_fields(kind: ft.FieldType) -> int:
    match kind:
        case ft.NestedEvent(format=fmt):
            return sum(1 + count_fields(field.type) for field in fmt.fields)
        case ft.Optional(item=item) | ft.List(item=item) | ft.Map(value=item):
            return count_fields(item)
        case _:
            return 0


@given(formats())
@settings(max_examples=examples(100))
def test_a_description_has_a_row_for_every_field_at_every_depth(fmt: Format) -> None:
    assert len(describe(fmt)) == count_fields(ft.NestedEvent(fmt))
