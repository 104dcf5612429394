"""The table of header fields is about the header there is."""

from __future__ import annotations

from heliograph.filters.schema import HEADER_FIELDS
from heliograph.model.event import Header


def test_every_header_field_is_an_attribute_of_the_header() -> None:
    assert {field.attribute for field in HEADER_FIELDS.values()} <= set(Header.__struct_fields__)


def test_header_fields_that_can_be_none_are_nullable() -> None:
    header = Header("c", "t", "s", 1, 1, 0, b"")
    for field in HEADER_FIELDS.values():
        if getattr(header, field.attribute) is None:
            assert field.nullable, field.name
