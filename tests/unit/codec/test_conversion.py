"""Receivers whose class is not the sender's: other fields, other widths, another byte order."""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg
from heliograph import codec
from heliograph.codec import packed
from heliograph.codec.conversion_plan import make_plan
from heliograph.codec.interpret import interpreted_decoder
from heliograph.model import field_types as ft
from heliograph.model.event import EventMeta
from heliograph.model.formats import Field
from heliograph.model.layout import native_format, size_and_align

if TYPE_CHECKING:
    from heliograph.model.formats import BodyKind


class Color(enum.Enum):
    RED = 1


class MoreColors(enum.Enum):
    RED = 1
    BLUE = 2


class OldPoint(hg.Event, name="point"):
    lat: float
    extra: str


class NewPoint(hg.Event, name="point"):
    height: float = 9.5
    lat: float = 0.0


class Old(hg.Event, name="track"):
    id: hg.i32
    dropped: str
    color: Color
    point: OldPoint
    path: list[OldPoint]
    speed: hg.f32
    count: hg.u8
    maybe: int


class New(hg.Event, name="track"):
    id: int
    color: MoreColors
    point: NewPoint
    path: list[NewPoint]
    speed: float
    count: float
    maybe: int | None
    label: str = "new"
    tags: list[str] = msgspec.field(default_factory=lambda: ["fresh"])


OLD = Old(7, "x", Color.RED, OldPoint(1.0, "y"), [OldPoint(2.0, "z")], 1.5, 200, 3)
NEW = New(7, MoreColors.RED, NewPoint(lat=1.0), [NewPoint(lat=2.0)], 1.5, 200.0, 3)


def decode_as(event: hg.Event, cls: type[hg.Event]) -> hg.Event:
    return codec.decoder(hg.format_of(event), cls)(codec.encoder(type(event)).encode(event))


def test_fields_are_matched_by_name_at_every_level() -> None:
    decoded = decode_as(OLD, New)
    assert decoded == NEW
    assert type(decoded.count) is float
    assert interpreted_decoder(hg.format_of(Old), New)(codec.encoder(Old).encode(OLD)) == NEW


def test_each_event_gets_a_default_of_its_own() -> None:
    first, second = decode_as(OLD, New), decode_as(OLD, New)
    assert first.tags == ["fresh"]  # type: ignore[attr-defined]
    assert first.tags is not second.tags  # type: ignore[attr-defined]


def test_a_missing_field_without_default_is_refused_when_the_decoder_is_made() -> None:
    class Needs(hg.Event, name="track"):
        id: int
        wanted: float

    with pytest.raises(hg.IncompatibleFormats, match=r"\$.wanted.*'wanted' \(f64\).*no default"):
        codec.decoder(hg.format_of(Old), Needs)


def test_missing_fields_can_be_refused_by_policy() -> None:
    class WithDefault(hg.Event, name="track"):
        id: int
        label: str = "x"

    body = codec.encoder(Old).encode(OLD)
    assert codec.decoder(hg.format_of(Old), WithDefault)(body) == WithDefault(7)
    with pytest.raises(hg.IncompatibleFormats, match="label"):
        codec.decoder(hg.format_of(Old), WithDefault, missing="refuse")


def test_narrowing_is_refused_with_the_field_and_both_types() -> None:
    class Narrow(hg.Event, name="track"):
        id: hg.i16

    with pytest.raises(hg.IncompatibleFormats, match=r"\$.id: i32 .* i16"):
        codec.decoder(hg.format_of(Old), Narrow)


def test_a_receiver_with_no_field_of_the_wire_takes_its_defaults() -> None:
    class Other(hg.Event, name="track"):
        label: str = "x"

    assert decode_as(OLD, Other) == Other()


def test_a_sender_with_fewer_fields_at_the_end_is_read_by_msgspec_itself() -> None:
    class Longer(hg.Event, name="point"):
        lat: float
        extra: str
        height: int = 5

    plan = make_plan(hg.format_of(OldPoint), Longer)
    assert packed.reads_directly(plan)
    assert decode_as(OldPoint(1.0, "y"), Longer) == Longer(1.0, "y")


def test_a_body_with_fewer_fields_than_its_format_is_refused_although_there_are_defaults() -> None:
    class Two(hg.Event):
        a: int = 1
        b: int = 2

    decode = codec.decoder(hg.format_of(Two), Two)
    assert decode(b"\x92\5\6") == Two(5, 6)
    for body in (b"\x90", b"\x91\5", b"\x93\5\6\7", b"\xdc\0\2\5\6"):
        with pytest.raises(hg.DecodeError):
            decode(body)


def test_many_fields_with_defaults_are_counted_too() -> None:
    names = [f"f{n}" for n in range(20)]
    many: Any = EventMeta("Many", (hg.Event,), {"__annotations__": dict.fromkeys(names, int), "f19": 0})
    decode = codec.decoder(hg.format_of(many), many)
    assert decode(codec.encoder(many).encode(many(*range(20)))) == many(*range(20))
    with pytest.raises(hg.DecodeError):
        decode(msgspec.msgpack.encode(list(range(19))))


# Foreign senders: bytes made by struct alone


def foreign(order: Any, fields: list[tuple[str, ft.FieldType]]) -> hg.Format:
    return hg.Format.from_description(native_format("reading", fields, (), order).description)


class Reading(hg.Event, name="reading"):
    id: int
    value: float
    label: str
    flag: bool = False
    count: hg.u64 = 0


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("width", "code"), [("i32", "i4x"), ("i64", "q")])
def test_integers_of_four_and_eight_bytes_in_both_byte_orders(
    order: str, width: ft.ScalarName, code: str
) -> None:
    wire = foreign(
        order,
        [
            ("id", ft.Scalar(width)),
            ("value", ft.Scalar("f64")),
            ("unknown", ft.Scalar("i16")),
            ("flag", ft.Scalar("bool")),
            ("label", ft.Scalar("str")),
            ("count", ft.Scalar("u32")),
        ],
    )
    text = "größe".encode()
    body = struct.pack(f"{order}{code}dh?xIII", -5, 2.5, 99, True, wire.size, len(text), 4_000_000_000) + text
    expected = Reading(-5, 2.5, "größe", flag=True, count=4_000_000_000)
    assert codec.decoder(wire, Reading)(body) == expected
    assert interpreted_decoder(wire, Reading)(body) == expected


def test_a_numeric_record_of_a_foreign_sender_is_read_in_place() -> None:
    wire = foreign(">", [("a", ft.Scalar("u8")), ("b", ft.Scalar("i64")), ("c", ft.Scalar("f32"))])
    body = struct.pack(">B7xqf4x", 255, -(2**63), 1.5)
    assert codec.mapping_decoder(wire)(body) == {"a": 255, "b": -(2**63), "c": 1.5}
    for wrong in (body[:-1], body + b"\0"):
        with pytest.raises(hg.DecodeError):
            codec.mapping_decoder(wire)(wrong)


def test_fields_may_stand_anywhere_in_the_fixed_part() -> None:
    wire = hg.Format(
        "odd", (Field("b", ft.Scalar("i32"), 5), Field("a", ft.Scalar("u16"), 1)), (), "native", ">", 12, 1
    )
    assert codec.mapping_decoder(wire)(struct.pack(">xHxxi3x", 258, -2)) == {"b": -2, "a": 258}


class Signal(hg.Event, name="signal"):
    free: NDArray[np.float64]
    fixed: Annotated[NDArray[np.int64], hg.Shape(None)]


def test_arrays_of_a_foreign_sender_are_converted_and_read_only() -> None:
    wire = foreign(">", [("free", ft.Array("f32")), ("fixed", ft.Array("i16", (2,)))])
    shape = struct.pack(">2I", 1, 3)
    body = struct.pack(">2I2h4x", 16, 20, 1, -2) + shape + struct.pack(">3f", 1.5, 2.5, 3.5)
    narrow = hg.Format(
        wire.name, (Field("free", ft.Array("f32", (None,)), 0), wire.fields[1]), (), "native", ">", 16, 4
    )
    for fmt in (wire, narrow):
        signal = codec.decoder(fmt, Signal)(body)
        assert signal == Signal(np.array([1.5, 2.5, 3.5]), np.array([1, -2]))
        assert not signal.free.flags.writeable
        assert not signal.fixed.flags.writeable


def test_a_native_wire_can_be_read_as_a_packed_class_and_back() -> None:
    class Native(hg.Event, name="reading", body="native"):
        id: int
        value: float
        label: str

    class Packed(hg.Event, name="reading"):
        label: str
        value: float

    assert decode_as(Native(1, 2.0, "x"), Packed) == Packed("x", 2.0)
    with pytest.raises(hg.IncompatibleFormats):
        codec.decoder(hg.format_of(Packed), Native)
    assert decode_as(Reading(1, 2.0, "x"), Native) == Native(1, 2.0, "x")


def test_all_but_arrays_can_be_read_as_any() -> None:
    class Loose(hg.Event, name="track"):
        point: hg.Any
        path: hg.Any
        color: hg.Any

    loose = decode_as(OLD, Loose)
    assert loose == Loose({"lat": 1.0, "extra": "y"}, [{"lat": 2.0, "extra": "z"}], 1)


def test_what_is_read_as_any_is_held_to_the_type_of_the_wire() -> None:
    class Narrow(hg.Event, name="reading"):
        level: hg.u8
        label: str

    class Loose(hg.Event, name="reading"):
        level: hg.Any
        label: str

    decode = codec.decoder(hg.format_of(Narrow), Loose)
    assert decode(msgspec.msgpack.encode([7, "x"])) == Loose(7, "x")
    for wrong in (-1, 256, None, "7"):
        with pytest.raises(hg.DecodeError, match=r"\$\.level"):
            decode(msgspec.msgpack.encode([wrong, "x"]))


def test_a_constructor_that_refuses_the_values_is_a_decode_error() -> None:
    class Picky(hg.Event, name="track", strict=True):
        id: int

        def __post_init__(self) -> None:
            raise ValueError("never")

    with pytest.raises(hg.DecodeError, match="never"):
        decode_as(OLD, Picky)


class Divider(hg.Event):
    number: int

    def __post_init__(self) -> None:
        self.number = 10 // self.number


@pytest.mark.parametrize("filling", [b"", bytes(20_000)], ids=["small", "large"])
def test_whatever_a_constructor_raises_is_a_decode_error_with_that_as_its_cause(filling: bytes) -> None:
    class Direct(hg.Event):
        filling: bytes
        inner: Divider

    class Converted(hg.Event, name="Direct"):
        inner: Divider

    body = msgspec.msgpack.encode([filling, [0]])
    for cls in (Direct, Converted):
        with pytest.raises(hg.DecodeError, match="division") as caught:
            codec.decoder(hg.format_of(Direct), cls)(body)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        if not filling:
            assert caught.value.path == "$.inner"


def test_a_field_that_a_class_inside_refuses_is_named() -> None:
    class Picky(hg.Event):
        number: int

        def __post_init__(self) -> None:
            if self.number == 7:
                raise hg.InvalidEvent("Picky", "no sevens", path="$.number")

    class Outer(hg.Event):
        inner: list[Picky]

    with pytest.raises(hg.DecodeError, match="no sevens") as caught:
        codec.decoder(hg.format_of(Outer), Outer)(b"\x91\x92\x91\1\x91\7")
    assert caught.value.path == "$.inner[1].number"


def test_running_out_of_memory_is_no_fault_of_the_bytes() -> None:
    class Exhausted(hg.Event):
        number: int

        def __post_init__(self) -> None:
            raise MemoryError

    with pytest.raises(MemoryError):
        codec.decoder(hg.format_of(Exhausted), Exhausted)(b"\x91\1")


@pytest.mark.parametrize("body", ["packed", "native"])
def test_a_signalling_nan_arrives_as_nan_without_a_warning(body: BodyKind) -> None:
    class Single(hg.Event, name="signal", body=body):
        samples: NDArray[np.float32]

    class Double(hg.Event, name="signal"):
        samples: NDArray[np.float64]

    signalling = np.array([0x7F800001], np.uint32).view(np.float32)
    data = codec.encoder(Single).encode(Single(signalling))
    for decode in (codec.decoder, interpreted_decoder):
        assert np.isnan(decode(hg.format_of(Single), Double)(data).samples).all()


# Bytes are checked against what the wire declares, although the receiver could take more.


class Narrow(hg.Event, name="checked"):
    value: hg.i8


class Wide(hg.Event, name="checked"):
    value: int


class Maybe(hg.Event, name="checked"):
    value: hg.i8 | None


class Few(enum.Enum):
    A = 1


class More(enum.Enum):
    A = 1
    B = 2


class FewMembers(hg.Event, name="checked"):
    value: Few


class MoreMembers(hg.Event, name="checked"):
    value: More


class Pair(hg.Event, name="checked"):
    value: Annotated[list[int], hg.Length(2)]


class Free(hg.Event, name="checked"):
    value: list[int]


class WithDefault(hg.Event):
    first: int
    second: int = 7


class Holder(hg.Event, name="checked"):
    value: WithDefault


class Holders(hg.Event, name="checked"):
    value: list[WithDefault | None]


@pytest.mark.parametrize(
    ("wire", "cls", "value"),
    [
        (Narrow, Wide, 1000),
        (Narrow, Maybe, None),
        (FewMembers, MoreMembers, 2),
        (Pair, Free, [1, 2, 3]),
        (Holder, Holder, [1]),
        (Holder, Holder, [1, 2, 3]),
        (Holders, Holders, [None, [1]]),
    ],
    ids=["width", "nil", "enum", "length", "short record", "long record", "record in a list"],
)
def test_what_the_wire_does_not_allow_is_refused_by_both_decoders(
    wire: type[hg.Event], cls: type[hg.Event], value: Any
) -> None:
    body = msgspec.msgpack.encode([value])
    for decode in (codec.decoder, interpreted_decoder):
        with pytest.raises(hg.DecodeError) as caught:
            decode(hg.format_of(wire), cls)(body)
        assert caught.value.path.startswith("$.value")


def test_an_enum_with_more_members_reads_the_old_values() -> None:
    assert decode_as(FewMembers(Few.A), MoreMembers) == MoreMembers(More.A)


def test_damage_in_fields_that_nobody_wants_is_not_looked_for() -> None:
    class Reader(hg.Event, name="track"):
        last: int

    wire = hg.Format("track", (Field("text", ft.Scalar("str")), Field("last", ft.Scalar("i64"))))
    for decode in (codec.decoder, interpreted_decoder):
        assert decode(wire, Reader)(b"\x92\xa1\xff\5") == Reader(5)
        with pytest.raises(hg.DecodeError):
            decode(wire, Reader)(b"\x92\xa5\xff\5")


def test_what_stands_behind_an_absent_native_optional_is_not_looked_at() -> None:
    class Inner(hg.Event, body="native"):
        text: str | None
        samples: NDArray[np.float64] | None

    class Outer(hg.Event, body="native"):
        text: str | None
        inner: Inner | None
        number: int

    wire = hg.format_of(Outer)
    body = bytearray(codec.encoder(Outer).encode(Outer(None, None, 5)))
    for name in ("text", "inner"):
        field = wire.by_name[name]
        size, _ = size_and_align(field.type, "$", wire.byte_order)
        assert field.offset is not None
        body[field.offset + 1 : field.offset + size] = b"\xff" * (size - 1)
    for decode in (codec.decoder, interpreted_decoder):
        assert decode(wire, Outer)(bytes(body)) == Outer(None, None, 5)
    mapping = codec.mapping_decoder(wire)(bytes(body))
    assert mapping == {"text": None, "inner": None, "number": 5}
    body[wire.by_name["text"].offset or 0] = 1
    with pytest.raises(hg.DecodeError) as caught:
        codec.decoder(wire, Outer)(bytes(body))
    assert caught.value.path == "$.text"


def test_a_large_bad_body_names_the_field_too() -> None:
    class Large(hg.Event):
        data: bytes
        point: OldPoint
        path: list[OldPoint | None]

    decode = codec.decoder(hg.format_of(Large), Large)
    body = msgspec.msgpack.encode([bytes(20_000), [1.0, "x"], [None, [1.0, 5]]])
    with pytest.raises(hg.DecodeError, match="Expected `str`, got `int`") as caught:
        decode(body)
    assert caught.value.path == "$.path[1].extra"
