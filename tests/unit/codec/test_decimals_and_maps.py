"""Decimals and maps as values of fields: what is taken, what is refused, and the way there and back."""

from __future__ import annotations

import decimal
import enum
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg
from heliograph import codec
from heliograph.codec.columnar.body_columns import Bodies, NotPlain, columns_decoder
from heliograph.codec.columnar.columns import from_batch, schema, to_batch
from heliograph.codec.columnar.unify import unified
from heliograph.codec.dynamic.classes import class_for
from heliograph.codec.dynamic.reflect import describe
from heliograph.codec.interpret import interpreted_decoder
from heliograph.codec.sizes import fixed_size, size_of
from heliograph.codec.validate import validate
from heliograph.journal.format.keys import key_bytes
from heliograph.model import field_types as ft
from heliograph.model.compatibility import compare
from heliograph.model.formats import Field, Format


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(hg.Event):
    price: Annotated[Decimal, hg.Digits(10, 2)]
    note: str = ""


class Item(hg.Event, name="shop.item", key="price"):
    price: Annotated[Decimal, hg.Digits(18, 4)]
    weight: Decimal | None = None
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    stock: dict[hg.u8, int | None] = msgspec.field(default_factory=dict)
    parts: dict[Colour, Part] = msgspec.field(default_factory=dict)
    samples: dict[str, NDArray[np.float32]] = msgspec.field(default_factory=dict)


class Quote(hg.Event, name="shop.quote", body="native"):
    price: Annotated[Decimal, hg.Digits(18, 4)]
    total: Annotated[Decimal, hg.Digits(38, 10)]
    fee: Annotated[Decimal, hg.Digits(5, 5)] | None = None


FULL = Item(
    Decimal("10.2500"),
    Decimal("-1.000000000000000001"),
    {"colour": "red", "größe": ""},
    {0: 1, 255: None},
    {Colour.BLUE: Part(Decimal("99999999.99"))},
    {"a": np.zeros(2, np.float32)},
)
NUMBERS = Quote(Decimal("-99999999999999.9999"), Decimal(10) ** 27, Decimal("0.00001"))


@pytest.mark.parametrize("event", [FULL, Item(Decimal("0.0000")), NUMBERS, Quote(Decimal(1), Decimal(-1))])
def test_a_decimal_and_a_map_come_back_as_they_were(event: Any) -> None:
    cls: Any = type(event)
    fmt = hg.format_of(event)
    validate(event)
    body = codec.encoder(cls).encode(event)
    assert codec.decoder(fmt, cls)(body) == event == interpreted_decoder(fmt, cls)(body)
    assert cls.from_dict(event.to_dict()) == cls.from_json(event.to_json()) == event
    again = hg.Format.from_description(fmt.description)
    assert again == fmt
    assert class_for(again).from_json(event.to_json()).to_json() == event.to_json()
    for spark_safe in (False, True):
        (back,) = from_batch(fmt, to_batch(fmt, [event], spark_safe=spark_safe))
        assert cls.from_dict(back) == event


def test_a_value_gets_the_digits_of_its_field_so_that_equal_values_have_equal_bytes() -> None:
    bodies = set()
    for value in (Decimal("10.25"), Decimal("10.250000"), Decimal("1025E-2")):
        event = Item(value)
        validate(event)
        assert str(event.price) == "10.2500"
        bodies.add(codec.encoder(Item).encode(event))
    assert len(bodies) == 1
    for zero in (Decimal("-0"), Decimal("0E+9"), 0):
        event = Item(zero)  # type: ignore[arg-type]
        validate(event)
        assert str(event.price) == "0.0000"


def test_what_a_thread_has_set_for_decimals_changes_nothing() -> None:
    event = Quote(Decimal("12345678901234.5678"), Decimal("1234567890123456789012345678.0123456789"))
    with decimal.localcontext(decimal.Context(prec=3, traps=[decimal.Inexact, decimal.Rounded])):
        validate(event)
        body = codec.encoder(Quote).encode(event)
        assert codec.decoder(hg.format_of(Quote), Quote)(body) == event


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (Decimal("1.00001"), "has more than the 4 digits behind the point that decimal(18, 4) holds"),
        (Decimal("1E+14"), "has more than the 14 digits before the point that decimal(18, 4) holds"),
        (10**5000, "has more digits than decimal(18, 4) holds"),
        (Decimal("NaN"), "is no number that decimal(18, 4) holds"),
        (Decimal("Infinity"), "is no number that decimal(18, 4) holds"),
        (10.25, "10.25 is no decimal(18, 4); write Decimal('...')"),
        ("10.25", "'10.25' is no decimal(18, 4); write Decimal('...')"),
        (True, "True is no decimal(18, 4)"),
        (None, "None is no decimal(18, 4)"),
    ],
    ids=lambda value: str(value)[:12] if not isinstance(value, int) else "int",
)
def test_what_does_not_fit_is_refused_with_its_path_and_never_rounded(value: Any, sentence: str) -> None:
    with pytest.raises(hg.InvalidEvent) as caught:
        validate(Item(value))
    assert sentence in str(caught.value)
    assert caught.value.path == "$.price"

    class Strict(hg.Event, strict=True):
        price: Annotated[Decimal, hg.Digits(18, 4)]

    with pytest.raises(hg.InvalidEvent) as caught:
        Strict(value)
    assert caught.value.path == "$.price"
    assert Strict(Decimal("1.5")).price == Decimal("1.5")


@pytest.mark.parametrize(
    ("field", "value", "path", "sentence"),
    [
        ("attributes", [], "$.attributes", "[] is no map[str, str]"),
        ("attributes", {"a": 1}, "$.attributes['a']", "1 is no str"),
        ("attributes", {1: "a"}, "$.attributes[1]", "1 is no str"),
        ("stock", {256: 1}, "$.stock[256]", "256 is out of range for u8"),
        ("parts", {"blue": Part(Decimal(1))}, "$.parts['blue']", "is no enum Colour"),
        ("parts", {Colour.RED: Part(Decimal("0.001"))}, "$.parts[<Colour.RED: 'red'>].price", "2 digits"),
        ("attributes", {str(n): "" for n in range(65_537)}, "$.attributes", "at most 65536"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused_with_its_key(
    field: str, value: Any, path: str, sentence: str
) -> None:
    event = Item(Decimal(1))
    setattr(event, field, value)
    with pytest.raises(hg.InvalidEvent) as caught:
        validate(event)
    assert (caught.value.path, sentence in str(caught.value)) == (path, True)


def test_a_map_of_the_user_stays_as_it_was_when_a_value_is_put_right() -> None:
    mine = {Colour.RED: Part(Decimal("1.5"))}
    stock: dict[Any, Any] = {np.int64(3): 1}
    event = Item(Decimal(1), parts=mine)
    validate(event)
    assert event.parts is mine
    assert str(mine[Colour.RED].price) == "1.50"
    with pytest.raises(hg.InvalidEvent):
        validate(Item(Decimal(1), stock=stock))


def test_a_packed_body_has_decimals_as_text_and_maps_as_maps() -> None:
    event = Item(Decimal("10.25"), attributes={"colour": "red"})
    validate(event)
    size = int.from_bytes(codec.encoder(Item).encode(event)[:4], "little")
    body = codec.encoder(Item).encode(event)[4 : 4 + size]
    assert msgspec.msgpack.decode(body) == ["10.2500", None, {"colour": "red"}, {}, {}, {}]


def test_a_native_body_has_the_integer_without_its_point() -> None:
    fmt = hg.format_of(Quote)
    assert [field.offset for field in fmt.fields] == [0, 8, 24]
    body = codec.encoder(Quote).encode(Quote(Decimal("1.0002"), Decimal(-1)))
    order: Any = "little" if fmt.byte_order == "<" else "big"
    assert int.from_bytes(body[:8], order) == 10002
    assert int.from_bytes(body[8:24], order, signed=True) == -(10**10)
    with pytest.raises(hg.FormatError, match=r"has no native form, for it has no fixed size.*\$\.tags"):

        class Refused(hg.Event, body="native"):
            tags: dict[str, int]


@pytest.mark.parametrize(
    "text",
    ["1.00000", "1", "NaN", "1e9", " 1.0000", "1_0.0000", "+1.0000", f"1{'0' * 14}.0000", "", "\u0661.0000"],
)
def test_text_that_is_no_such_decimal_is_refused_with_its_path(text: str) -> None:
    fmt = Format("t", (Field("price", ft.Decimal(18, 4)),))
    body = msgspec.msgpack.encode([text])
    with pytest.raises(hg.DecodeError) as caught:
        codec.mapping_decoder(fmt)(body)
    assert caught.value.path == "$.price"


def test_a_native_integer_with_too_many_digits_is_refused() -> None:
    body = bytearray(codec.encoder(Quote).encode(NUMBERS))
    body[8:24] = (10**38).to_bytes(16, "little", signed=True)
    with pytest.raises(hg.DecodeError, match=r"more digits than decimal\(38, 10\)"):
        codec.decoder(hg.format_of(Quote), Quote)(bytes(body))


def test_a_body_that_announces_too_many_entries_is_refused_before_they_are_made() -> None:
    fmt = Format("t", (Field("m", ft.Map(ft.Scalar("str"), ft.Scalar("i64"))),))
    with pytest.raises(hg.DecodeError, match=r"\$\.m"):
        codec.mapping_decoder(fmt)(b"\x91\xdf\x00\x01\x00\x01" + b"\xa0\x00" * 10)


def test_a_key_that_a_foreign_sender_wrote_twice_counts_once() -> None:
    fmt = Format("t", (Field("m", ft.Map(ft.Scalar("str"), ft.Scalar("i64"))),))
    body = b"\x91\x82\xa1a\x01\xa1a\x02"
    assert codec.mapping_decoder(fmt)(body) == {"m": {"a": 2}} == interpreted_decoder(fmt, None)(body)
    decode = columns_decoder(fmt)
    assert decode is not None
    with pytest.raises(NotPlain):
        decode(Bodies([body]), ["m"])


def scalar(name: Any) -> ft.Scalar:
    return ft.Scalar(name)


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        (ft.Decimal(10, 2), ft.Decimal(12, 4), None),
        (ft.Decimal(10, 2), ft.Decimal(38, 2), None),
        (scalar("i64"), ft.Decimal(19, 0), None),
        (scalar("u64"), ft.Decimal(22, 2), None),
        (ft.Map(scalar("i8"), scalar("i8")), ft.Map(scalar("i64"), ft.Optional(scalar("f64"))), None),
        (ft.Map(scalar("str"), scalar("i8")), ft.Anything(), None),
        (ft.Decimal(10, 2), ft.Decimal(10, 4), "6 digits before the point where 8 may be sent"),
        (ft.Decimal(10, 2), ft.Decimal(38, 1), "1 digits behind the point where 2 may be sent"),
        (scalar("i64"), ft.Decimal(18, 0), "18 digits before the point where 19 may be sent"),
        (scalar("f64"), ft.Decimal(38, 18), "a float is no exact decimal"),
        (ft.Decimal(5, 2), scalar("f64"), "a float rounds decimals"),
        (ft.Decimal(5, 0), scalar("i64"), "it does not hold all values"),
        (ft.Decimal(5, 2), scalar("str"), "it is another type"),
        (scalar("str"), ft.Decimal(5, 2), "it is another type"),
        (ft.Decimal(5, 2), ft.Anything(), "any holds no arrays, decimals"),
        (ft.Map(scalar("i64"), scalar("i8")), ft.Anything(), "maps with text as keys only"),
        (ft.Map(scalar("i64"), scalar("i8")), ft.Map(scalar("i8"), scalar("i8")), "of its keys it does not"),
        (ft.Map(scalar("str"), scalar("i64")), ft.Map(scalar("str"), scalar("i8")), "does not hold all"),
        (ft.Map(scalar("str"), scalar("i64")), ft.List(scalar("i64")), "it is another type"),
    ],
    ids=str,
)
def test_what_widens_is_read_and_what_does_not_has_a_sentence(
    writer: ft.FieldType, reader: ft.FieldType, reason: str | None
) -> None:
    one, other = (Format("t", (Field("f", kind),)) for kind in (writer, reader))
    problems = compare(one, other).problems
    assert (problems == ()) if reason is None else (len(problems) == 1 and reason in problems[0])


def test_older_events_are_read_with_the_digits_and_values_of_the_newer_class() -> None:
    class Old(hg.Event, name="t"):
        price: Annotated[Decimal, hg.Digits(6, 2)]
        count: hg.i32
        marks: dict[hg.i8, hg.i8]

    class New(hg.Event, name="t"):
        price: Annotated[Decimal, hg.Digits(20, 4)] | None
        count: Annotated[Decimal, hg.Digits(12, 1)]
        marks: dict[int, float]

    old = Old(Decimal("1.25"), 7, {1: 2})
    validate(old)
    new = codec.decoder(hg.format_of(Old), New)(codec.encoder(Old).encode(old))
    assert new == New(Decimal("1.25"), Decimal(7), {1: 2.0})
    assert (str(new.price), str(new.count)) == ("1.2500", "7.0")
    validate(new)
    joined = unified([hg.format_of(Old), hg.format_of(New)])
    assert [str(field.type) for field in joined.fields] == [
        "decimal(20, 4) | None",
        "decimal(12, 1)",
        "map[i64, f64]",
    ]


def test_types_that_need_more_than_38_digits_together_have_no_common_one() -> None:
    formats = [Format("t", (Field("f", ft.Decimal(*digits)),)) for digits in ((38, 0), (38, 38))]
    with pytest.raises(hg.FormatError, match=r"decimal\(38, 0\) and decimal\(38, 38\) have no common one"):
        unified(formats)


def test_json_has_decimals_as_text_and_keys_that_are_numbers_as_text() -> None:
    event = Item(Decimal("1.5"), stock={3: None}, parts={Colour.RED: Part(Decimal(2))})
    validate(event)
    tree = msgspec.json.decode(event.to_json())
    assert (tree["price"], tree["stock"], tree["parts"]["red"]["price"]) == ("1.5000", {"3": None}, "2.00")
    assert Item.from_json('{"price": 7}').price == 7
    for bad, path in [
        ('{"price": 1.5}', "$.price"),
        ('{"price": "1E3"}', "$.price"),
        ('{"price": "1.00005"}', "$.price"),
        ('{"price": "1", "stock": {"03": 1}}', "$.stock['03']"),
        ('{"price": "1", "stock": {"300": 1}}', "$.stock[300]"),
        ('{"price": "1", "attributes": {"a": 1}}', "$.attributes['a']"),
        ('{"price": "1", "attributes": []}', "$.attributes"),
    ]:
        with pytest.raises(hg.InvalidEvent) as caught:
            Item.from_json(bad)
        assert caught.value.path == path, bad


def test_columns_are_decimal128_and_maps() -> None:
    kinds = schema(hg.format_of(Item), spark_safe=True)
    assert kinds.field("price").type == pa.decimal128(18, 4)
    assert kinds.field("weight").type == pa.decimal128(38, 18)
    assert kinds.field("stock").type == pa.map_(pa.int16(), pa.int64())
    fmt = Format("t", (Field("price", ft.Decimal(6, 2)), Field("m", ft.Map(scalar("str"), scalar("i64")))))
    maps = pa.array([[("a", 1), ("b", 2)]] * 3, pa.map_(pa.string(), pa.int64()))
    wider = pa.array([Decimal("1.2500")] * 3, pa.decimal128(30, 4))
    batch = pa.RecordBatch.from_arrays([wider, maps], ["price", "m"]).slice(1, 1)
    assert from_batch(fmt, batch) == [{"price": Decimal("1.25"), "m": {"a": 1, "b": 2}}]
    whole = pa.array([7] * 3, pa.int64())
    assert from_batch(fmt, pa.RecordBatch.from_arrays([whole, maps], ["price", "m"]))[0]["price"] == 7
    for column, reason in [
        (pa.array([Decimal("1.255")] * 3), "more digits than decimal"),
        (pa.array([10_000] * 3), "more digits than decimal"),
        (pa.array([1.25] * 3), r"a column of double; decimal\(6, 2\) needs"),
    ]:
        with pytest.raises(hg.InvalidEvent, match=reason):
            from_batch(fmt, pa.RecordBatch.from_arrays([column, maps], ["price", "m"]))
    twice = pa.MapArray.from_arrays([0, 2], ["a", "a"], [1, 2])
    with pytest.raises(hg.InvalidEvent, match="a key twice"):
        from_batch(fmt, pa.RecordBatch.from_arrays([whole[:1], twice], ["price", "m"]))


def test_keys_can_be_decimals_and_cannot_be_maps() -> None:
    with hg.Station() as station:
        items = station.channel("items", Item)
        keys: list[tuple[Any, ...]] = []
        items.subscribe(lambda _, header: keys.append(header.key), inline=True)
        items.push(Item(Decimal("1.5")))
    assert keys == [(Decimal("1.5"),)]
    with pytest.raises(hg.FormatError, match=r"not map\[str, i64\]: what is kept by key has to be"):

        class Refused(hg.Event, key="tags"):
            tags: dict[str, int]


@pytest.mark.parametrize("digits", [(0, 0), (39, 0), (5, 6), (5, -1), (True, 0), (5.0, 1)])
def test_digits_that_no_decimal_has_are_refused(digits: tuple[Any, Any]) -> None:
    with pytest.raises(hg.FormatError, match="Digits takes a precision of 1 to 38"):
        hg.Digits(*digits)
    with pytest.raises(hg.FormatError):
        hg.Digits(0)


def test_digits_go_with_decimals_only_and_a_bare_one_has_those_of_spark() -> None:
    with pytest.raises(hg.FormatError, match=r"Digits goes with decimal.Decimal only"):

        class Wrong(hg.Event):
            price: Annotated[float, hg.Digits(5, 2)]

    class Bare(hg.Event):
        price: Decimal

    assert hg.format_of(Bare).fields[0].type == ft.Decimal(38, 18)


def test_sizes_count_decimals_as_sixteen_bytes_and_each_entry_of_a_map() -> None:
    assert fixed_size(Quote) == 48
    assert fixed_size(Item) is None
    empty = size_of(Item(Decimal(1)))
    assert size_of(Item(Decimal(1), attributes={"ab": "cde"})) == empty + 32 + 5


def test_a_description_names_digits_keys_and_what_is_inside() -> None:
    rows = {row.path: row.type for row in describe(hg.format_of(Item))}
    assert rows["$.price"] == "decimal(18, 4)"
    assert rows["$.parts"] == "map[enum Colour, record Part]"
    assert rows["$.parts[].price"] == "decimal(10, 2)"


@pytest.mark.parametrize(
    "kind",
    [
        ["decimal", 39, 0],
        ["decimal", 5, 6],
        ["decimal", True, 0],
        ["map", "f64", "i64"],
        ["map", ["list", "str", None], "i64"],
    ],
)
def test_a_forged_description_of_a_decimal_or_map_is_refused(kind: Any) -> None:
    forged = msgspec.msgpack.encode([1, "t", "packed", "<", 0, 1, [], [["f", kind, None]]])
    with pytest.raises(hg.FormatError):
        Format.from_description(forged)


def test_a_key_is_the_same_in_every_version_of_its_class() -> None:
    same = {key_bytes([value]) for value in (7, Decimal(7), Decimal("7.00"), Decimal("7.0000"))}
    assert len(same) == 1
    assert key_bytes([Decimal("7.50")]) == key_bytes([Decimal("7.5")]) != key_bytes([Decimal("7.51")])
    assert key_bytes([Decimal(10) ** 30]) == key_bytes([Decimal("1" + "0" * 30 + ".00")])
