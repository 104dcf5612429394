"""Derivations: digests, the types of columns, classes that are made or given, and versions."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
import pytest

import heliograph as hg
from heliograph.errors import BadFrame, ExpressionError, FormatError
from heliograph.filters.derivation import Derivation
from heliograph.filters.parser import parse, parse_projection
from heliograph.links.interest.derivation_wire import read_derivation


class Colour(Enum):
    RED = "red"


class Point(hg.Event, name="point"):
    lat: hg.f32
    lon: hg.f32


class Track(hg.Event, name="air.track", key="id"):
    id: hg.u32
    speed: float
    alt: float | None = None
    at: Point | None = None
    tags: list[str] = []  # noqa: RUF012 - events copy their defaults
    colour: Colour = Colour.RED
    big: hg.u64 = 0
    since: datetime = datetime(2026, 1, 1, tzinfo=UTC)


FORMAT = hg.format_of(Track)


def derivation(select: str, where: str | None = None, **more: Any) -> Derivation:
    condition = None if where is None else parse(where)
    return Derivation("air.tracks", "air.track", parse_projection(select), condition, **more)


def types(select: str) -> dict[str, str]:
    return {field.name: str(field.type) for field in derivation(select).over(FORMAT).format.fields}


def test_the_digest_is_of_what_is_meant_and_not_of_how_it_is_written() -> None:
    one = derivation("id, speed*1.852 AS kmh", "speed > 300")
    assert one.digest == derivation("id,  speed * 1.852 as kmh", "(speed > 300)").digest
    others = [
        derivation("id, speed * 1.852 AS kph", "speed > 300"),
        derivation("speed * 1.852 AS kmh, id", "speed > 300"),
        derivation("id, speed * 1.852 AS kmh", "speed >= 300"),
        derivation("id, speed * 1.852 AS kmh", "speed > 300.0"),
        derivation("id, speed * 1.852 AS kmh"),
        derivation("id, speed * 1.852 AS kmh", "speed > 300", sources=("radar",)),
        msgspec.structs.replace(one, channel="air.other"),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_a_column_has_the_type_of_its_field_or_of_its_kind_and_is_optional_where_it_can_be_null() -> None:
    assert types("id, alt, at, at.lat, tags, colour, big, since") == {
        "id": "u32",
        "alt": "f64 | None",
        "at": "record point | None",
        "lat": "f32 | None",
        "tags": "list[str]",
        "colour": "str",
        "big": "u64",
        "since": "datetime",
    }
    assert types("id + 1 AS a, speed * 2 AS b, speed / 2 AS c, speed > 1 AS d, alt > 1 AS e") == {
        "a": "i64 | None",
        "b": "f64",
        "c": "f64 | None",
        "d": "bool",
        "e": "bool | None",
    }
    assert types(
        "header.supplier AS who, header.offset AS place, header.source_ts AS began, tags[0] AS t"
    ) == {
        "who": "str",
        "place": "i64 | None",
        "began": "datetime | None",
        "t": "str | None",
    }
    assert types("coalesce(alt, 0.0) AS alt, upper(colour) AS c, NULL AS nothing") == {
        "alt": "f64",
        "c": "str",
        "nothing": "bool | None",
    }


def test_the_key_is_kept_where_all_its_fields_are_among_the_columns_as_they_are() -> None:
    assert derivation("speed, id").over(FORMAT).format.key == ("id",)
    assert derivation("speed, id + 0 AS id").over(FORMAT).format.key == ()
    assert derivation("speed, id AS number").over(FORMAT).format.key == ()


def test_an_event_of_the_made_class_has_the_values_and_an_error_is_none() -> None:
    made = derivation("id, speed / alt AS ratio, at, colour").over(FORMAT)
    derive: Any = made.function(made.class_made())
    first = derive(Track(1, 10.0, alt=4.0, at=Point(1.0, 2.0)), None)
    assert (first.id, first.ratio, first.at, first.colour) == (1, 2.5, Point(1.0, 2.0), "red")
    assert derive(Track(1, 10.0, alt=0.0), None).ratio is None
    assert derive(Track(1, 10.0), None).ratio is None


def test_a_class_of_the_users_own_gets_the_columns_by_name() -> None:
    class Fast(hg.Event, name="fast", kw_only=True):
        kmh: float
        ratio: float | None
        id: int
        note: str = "none"

        def slow(self) -> bool:
            return self.kmh < 10

    made = derivation("id, speed * 1.852 AS kmh, speed / alt AS ratio").over(FORMAT)
    cls = made.class_into(Fast)
    event = made.function(cls)(Track(7, 100.0), None)
    assert isinstance(event, Fast)
    assert (event.id, event.kmh, event.ratio, event.note) == (7, 100.0 * 1.852, None, "none")
    assert not event.slow()
    assert hg.format_of(cls).name == made.format.name


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"id": int}, "no field for kmh"),
        ({"id": int, "kmh": int}, "f64 of the writer cannot be read as i64"),
        ({"id": int, "kmh": float, "ratio": float}, "None would have no place"),
        ({"id": int, "kmh": float, "ratio": float | None, "other": int}, "other"),
    ],
)
def test_a_class_that_does_not_fit_is_refused_with_the_field(annotations: dict[str, Any], said: str) -> None:
    columns = "id, speed * 1.852 AS kmh, speed / alt AS ratio" if "ratio" in annotations else None
    made = derivation(columns or "id, speed * 1.852 AS kmh").over(FORMAT)
    meta: Any = type(hg.Event)
    bad = meta("Bad", (hg.Event,), {"__annotations__": annotations, "__module__": __name__})
    with pytest.raises(FormatError, match=said.replace("|", r"\|")):
        made.class_into(bad)


@pytest.mark.parametrize(
    ("select", "column"),
    [("id, nothing", 5), ("id, speed + tags AS x", 5), ("id, speed * 2", 5), ("id, id", 5), ("id, *", 5)],
)
def test_what_is_wrong_is_pointed_at(select: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        derivation(select).over(FORMAT)
    assert caught.value.column >= column


def test_a_name_that_events_cannot_have_is_refused() -> None:
    with pytest.raises(ExpressionError, match="to_dict"):
        derivation("id AS to_dict").over(FORMAT).class_made()


def test_a_derivation_crosses_as_data_and_comes_out_equal() -> None:
    one = derivation("id, CASE WHEN speed > 1 THEN 'a' END AS c", "id IN (1, 2) AND tags[0] LIKE 'x%'")
    data = msgspec.msgpack.decode(msgspec.msgpack.encode(one.as_data()))
    assert read_derivation(data, "peer").digest == one.digest


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        ["c", "t", [], None, None],
        ["c", "t", [["a", ["Name", "x", False]]], 3, None],
        ["c", "t", [["a", ["Import", "os"]]], None, None],
        ["c", "t", [["", ["Name", "x", False]]], None, None],
        ["c", "t", [["a"]], None, None],
        ["", "t", [["a", ["Name", "x", False]]], None, None],
        ["c", "t", [["a", ["Name", "x", False]]], None, [1]],
        ["c", "t", [["a", ["Name", "x", False]]] * 1_001, None, None],
        ["c", "t", [["a", ["Call", "abs", ["", *[["Name", "x", False]] * 2]]]], None, None],
        ["c", "t", [[f"a{n}", ["And", ["", *[["Name", "x", False]] * 200]]] for n in range(60)], None, None],
    ],
)
def test_what_is_no_derivation_is_a_bad_frame(data: Any) -> None:
    with pytest.raises(BadFrame):
        read_derivation(data, "peer")
