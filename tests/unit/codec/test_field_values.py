"""Dates and UUIDs as values of fields: what is taken, what is refused, and the way there and back."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa
import pytest

import heliograph as hg
from heliograph import codec
from heliograph.codec.columnar.columns import from_batch, schema, to_batch
from heliograph.codec.dynamic.classes import class_for
from heliograph.codec.interpret import interpreted_decoder
from heliograph.codec.sizes import fixed_size
from heliograph.codec.validate import validate

ORDER = UUID("12345678-90ab-cdef-1234-567890abcdef")


class Order(hg.Event, name="shop.order", key=("order", "day")):
    order: UUID
    day: date
    due: date | None = None
    parts: list[UUID] = msgspec.field(default_factory=list)


class Booking(hg.Event, name="shop.booking", body="native"):
    order: UUID
    day: date
    due: date | None = None
    other: UUID | None = None


FULL = Order(ORDER, date(2026, 11, 18), date.max, [UUID(int=0)])


@pytest.mark.parametrize(
    "event",
    [
        FULL,
        Order(uuid4(), date.min),
        Booking(ORDER, date(1969, 12, 31), date.min, UUID(int=(1 << 128) - 1)),
        Booking(ORDER, date.max),
    ],
)
def test_a_date_and_a_uuid_come_back_as_they_were(event: Any) -> None:
    cls: Any = type(event)
    fmt = hg.format_of(event)
    validate(event)
    body = codec.encoder(cls).encode(event)
    assert codec.decoder(fmt, cls)(body) == event == interpreted_decoder(fmt, cls)(body)
    assert codec.mapping_decoder(fmt)(body) == event.to_dict()
    assert cls.from_dict(event.to_dict()) == cls.from_json(event.to_json()) == event
    again = hg.Format.from_description(fmt.description)
    assert again == fmt
    assert class_for(again).from_json(event.to_json()).to_dict() == event.to_dict()
    for spark_safe in (False, True):
        assert from_batch(fmt, to_batch(fmt, [event], spark_safe=spark_safe)) == [event.to_dict()]


def test_a_packed_body_has_them_as_text_that_every_reader_of_msgpack_knows() -> None:
    body = codec.encoder(Order).encode(FULL)
    assert msgspec.msgpack.decode(body) == [str(ORDER), "2026-11-18", "9999-12-31", [str(UUID(int=0))]]


def test_a_native_body_has_days_since_1970_and_the_sixteen_bytes() -> None:
    fmt = hg.format_of(Booking)
    assert [field.offset for field in fmt.fields] == [0, 16, 20, 28]
    assert fmt.size == 48
    body = codec.encoder(Booking).encode(Booking(ORDER, date(1970, 1, 3)))
    assert body[:16] == ORDER.bytes
    assert int.from_bytes(body[16:20], "little" if fmt.byte_order == "<" else "big") == 2


@pytest.mark.parametrize("days", [-719163, 2932897, -(2**31), 2**31 - 1])
def test_days_outside_of_the_calendar_are_refused_with_their_path(days: int) -> None:
    order: Any = "little" if hg.format_of(Booking).byte_order == "<" else "big"
    body = bytearray(codec.encoder(Booking).encode(Booking(ORDER, date.min)))
    body[16:20] = days.to_bytes(4, order, signed=True)
    with pytest.raises(hg.DecodeError, match=r"\$\.day"):
        codec.decoder(hg.format_of(Booking), Booking)(bytes(body))


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("day", datetime(2026, 11, 18, tzinfo=UTC), "is no date; write .date() (at $.day)"),
        ("day", "2026-11-18", "is no date; write date.fromisoformat(...) (at $.day)"),
        ("day", 20410, "20410 is no date (at $.day)"),
        ("order", str(ORDER), "is no uuid; write uuid.UUID(...) (at $.order)"),
        ("order", 7, "7 is no uuid (at $.order)"),
        ("parts", [ORDER, None], "None is no uuid (at $.parts[1])"),
    ],
)
def test_what_is_no_date_or_uuid_is_refused_with_its_path(field: str, value: Any, sentence: str) -> None:
    event = Order(ORDER, date(2026, 11, 18))
    setattr(event, field, value)
    with pytest.raises(hg.InvalidEvent) as caught:
        validate(event)
    assert str(caught.value).endswith(sentence)
    with pytest.raises(hg.InvalidEvent, match="needs"):
        Order.from_dict(event.to_dict())


def test_a_subclass_of_date_or_uuid_becomes_the_plain_value() -> None:
    class Day(date):
        pass

    class Id(UUID):
        pass

    event = Order(Id(int=5), Day(2026, 11, 18))
    validate(event)
    assert type(event.day) is date
    assert type(event.order) is UUID
    assert event == Order(UUID(int=5), date(2026, 11, 18))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"order":"x","day":"2026-11-18"}', "$.order"),
        (b'{"order":"12345678-90ab-cdef-1234-567890abcdef","day":"2026-02-30"}', "$.day"),
        (b'{"order":"12345678-90ab-cdef-1234-567890abcdef","day":20410}', "$.day"),
    ],
)
def test_json_that_writes_no_date_or_uuid_is_refused_with_its_path(text: bytes, path: str) -> None:
    with pytest.raises(hg.InvalidEvent) as caught:
        Order.from_json(text)
    assert caught.value.path == path


def test_columns_are_date32_and_text_for_spark_has_no_uuid() -> None:
    kinds = schema(hg.format_of(Order), spark_safe=True)
    assert kinds.field("day").type == pa.date32()
    assert kinds.field("order").type == pa.string()
    batch = to_batch(hg.format_of(Order), [FULL])
    assert batch.column("order").to_pylist() == [str(ORDER)]
    wrong = batch.set_column(0, "order", pa.array(["no uuid"]))
    with pytest.raises(hg.InvalidEvent, match=r"no UUID \(at \$\.order\)"):
        from_batch(hg.format_of(Order), wrong)
    far = batch.set_column(1, "day", pa.array([2**31 - 1], pa.int32()).cast(pa.date32()))
    with pytest.raises(hg.InvalidEvent, match="outside the years 1 to 9999"):
        from_batch(hg.format_of(Order), far)


def test_a_uuid_takes_sixteen_bytes_and_a_date_those_of_a_number() -> None:
    assert fixed_size(Booking) == 16 + 8 + 8 + 16


def test_keys_are_dates_and_uuids_as_they_are() -> None:
    with hg.Station() as station:
        orders = station.channel("orders", Order)
        keys: list[tuple[Any, ...]] = []
        orders.subscribe(lambda _, header: keys.append(header.key), inline=True)
        orders.push(FULL)
    assert keys == [(ORDER, date(2026, 11, 18))]
