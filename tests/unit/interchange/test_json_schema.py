"""The JSON Schema of an event type takes what the JSON of its events is, and refuses what it is not."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Annotated

import jsonschema  # type: ignore[import-untyped]  # it has none
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg
from heliograph.codec.dynamic.reflect import event_to_json, mapping_to_json
from heliograph.interchange.json_schema import schema_of
from tests.strategies import formats, rows
from tests.support import examples


class Status(Enum):
    CIVIL = "civil"
    MILITARY = "military"


class Position(hg.Event):
    lat: float
    height: hg.f32 | None = None


class Track(hg.Event, name="air.track", key="id"):
    id: hg.u16
    position: Position
    seen: datetime
    status: Status = Status.CIVIL
    tags: Annotated[list[str], hg.Length(2)] = msgspec.field(default_factory=lambda: ["a", "b"])
    samples: Annotated[NDArray[np.float32], hg.Shape(None, 2)] = np.zeros((0, 2), np.float32)
    extra: hg.Any = None


TRACK = Track(7, Position(float("nan")), datetime(2026, 11, 5, tzinfo=UTC))


def check(document: object, schema: object) -> None:
    jsonschema.Draft202012Validator(schema).validate(document)


def test_an_event_in_json_is_as_its_schema_says() -> None:
    schema = schema_of(hg.format_of(Track))
    jsonschema.Draft202012Validator.check_schema(schema)
    check(msgspec.json.decode(event_to_json(TRACK)), schema)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", -1),
        ("id", 1 << 16),
        ("status", "lost"),
        ("tags", ["a"]),
        ("position", {"lat": "x"}),
        ("new", 1),
    ],
)
def test_what_would_be_refused_is_not_as_the_schema_says(field: str, value: object) -> None:
    document = {**msgspec.json.decode(event_to_json(TRACK)), field: value}
    with pytest.raises(jsonschema.ValidationError):
        check(document, schema_of(hg.format_of(Track)))


def test_fields_with_a_default_may_be_left_out_where_that_is_known() -> None:
    document = msgspec.json.decode(event_to_json(TRACK))
    del document["status"]
    check(document, schema_of(hg.format_of(Track), frozenset({"status"})))
    with pytest.raises(jsonschema.ValidationError):
        check(document, schema_of(hg.format_of(Track)))


@given(st.data())
@settings(max_examples=examples(50))
def test_any_event_is_as_the_schema_of_its_format_says(data: st.DataObject) -> None:
    fmt = data.draw(formats())
    row = data.draw(rows(fmt))
    check(msgspec.json.decode(mapping_to_json(fmt, row)), schema_of(fmt))
