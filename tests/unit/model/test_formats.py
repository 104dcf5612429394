"""Formats: their ids, their descriptions, and descriptions that were forged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph import codec
from heliograph.errors import TooManyFormats
from heliograph.model import field_types as ft
from heliograph.model.formats import FORMAT_ID_SIZE, MAX_ALL_FIELDS, MAX_DESCRIPTION, Field, FormatRegistry
from heliograph.model.layout import native_format
from tests.support import examples


class Inner(hg.Event, name="inner"):
    a: hg.u8
    b: str | None


class Outer(hg.Event, name="outer", key=("id", "name")):
    id: int
    name: str
    inner: Inner
    many: list[Inner]
    extra: hg.Any


class NativeOuter(hg.Event, name="outer", body="native"):
    id: int
    flag: bool
    text: str | None


FORMATS = [hg.format_of(cls) for cls in (Inner, Outer, NativeOuter)]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_a_description_gives_the_format_back(fmt: hg.Format) -> None:
    again = hg.Format.from_description(fmt.description)
    assert again == fmt
    assert again.id == fmt.id
    assert len(fmt.id) == FORMAT_ID_SIZE


def test_the_id_covers_names_types_keys_and_layout_and_nothing_else() -> None:
    class Same(hg.Event, name="inner"):
        """Another doc, and a default."""

        a: hg.u8 = 5
        b: str | None = "x"

    base = hg.format_of(Inner)
    assert hg.format_of(Same).id == base.id
    fields = base.fields
    others = [
        hg.Format("other", fields),
        hg.Format("inner", fields[::-1]),
        hg.Format("inner", fields[:1]),
        hg.Format("inner", (Field("a", ft.Scalar("u16")), fields[1])),
        hg.Format("inner", (Field("x", ft.Scalar("u8")), fields[1])),
        hg.Format("inner", fields, ("a",)),
        native_format("inner", [(field.name, field.type) for field in fields]),
        native_format("inner", [(field.name, field.type) for field in fields], (), ">"),
    ]
    assert len({fmt.id for fmt in others} | {base.id}) == len(others) + 1


def test_a_format_has_no_two_fields_of_one_name() -> None:
    with pytest.raises(hg.FormatError, match="two fields named 'a'"):
        hg.Format("x", (Field("a", ft.Scalar("i8")), Field("a", ft.Scalar("i8"))))


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "\ud800"], ids=["empty", "long", "nul", "surrogate"])
def test_names_that_cannot_travel_are_refused(name: str) -> None:
    with pytest.raises(hg.FormatError, match="1 to 255 characters"):
        hg.Format("x", (Field(name, ft.Scalar("i8")),))
    with pytest.raises(hg.FormatError, match="1 to 255 characters"):
        hg.Format(name, ())


def test_fields_are_limited_also_with_nested_ones() -> None:
    with pytest.raises(hg.FormatError, match="at most 1000"):
        hg.Format("x", tuple(Field(f"f{n}", ft.Scalar("i8")) for n in range(1001)))
    wide = hg.Format("wide", tuple(Field(f"f{n}", ft.Scalar("i8")) for n in range(999)))
    assert wide.count_all == 999
    with pytest.raises(hg.FormatError, match=f"at most {MAX_ALL_FIELDS}"):
        hg.Format("x", tuple(Field(f"r{n}", ft.List(ft.Optional(ft.NestedEvent(wide)))) for n in range(5)))


def test_the_largest_format_can_be_read() -> None:
    wide = hg.Format("wide", tuple(Field(f"f{n}", ft.Scalar("i8")) for n in range(999)))
    fmt = hg.Format("x", tuple(Field(f"r{n}", ft.NestedEvent(wide)) for n in range(4)))
    body = msgspec.msgpack.encode([[1] * 999] * 4)
    assert codec.make_decoder(fmt, None)(body)["r3"]["f998"] == 1


def forged(*changes: tuple[int, Any]) -> bytes:
    """The description of Inner with some of its parts exchanged."""
    parts: list[Any] = msgspec.msgpack.decode(hg.format_of(Inner).description)
    for index, value in changes:
        parts[index] = value
    return msgspec.msgpack.encode(parts)


def typed(kind: Any, offset: Any = None) -> bytes:
    return forged((7, [["a", kind, offset]]))


def deep(depth: int) -> Any:
    kind: Any = "i8"
    for _ in range(depth):
        kind = ["list", kind, None]
    return kind


FORGED = {
    "empty": b"",
    "no list": b"\xc0",
    "empty list": b"\x90",
    "version": forged((0, 2)),
    "short": msgspec.msgpack.encode([1, "x"]),
    "name": forged((1, 5)),
    "empty name": forged((1, "")),
    "body kind": forged((2, "zipped")),
    "byte order": forged((3, "=")),
    "size of packed": forged((4, 8)),
    "size is bool": forged((4, False)),
    "align": forged((5, 2)),
    "align is bool": forged((5, True)),
    "key": forged((6, ["zz"])),
    "key is no text": forged((6, [1])),
    "fields": forged((7, 5)),
    "field": forged((7, [["a", "i8"]])),
    "field name": forged((7, [[1, "i8", None]])),
    "two of one name": forged((7, [["a", "i8", None]] * 2)),
    "offset in packed": typed("i8", 0),
    "offset is bool": typed("i8", True),
    "unknown type": typed("i128"),
    "type is number": typed(5),
    "optional of optional": typed(["optional", ["optional", "i8"]]),
    "empty enum": typed(["enum", "E", "i64", []]),
    "enum base": typed(["enum", "E", "f64", [["A", 1.5]]]),
    "enum value": typed(["enum", "E", "i64", [["A", "x"]]]),
    "enum value is bool": typed(["enum", "E", "i64", [["A", True]]]),
    "enum value too large": typed(["enum", "E", "i64", [["A", 2**64 - 1]]]),
    "enum labels": typed(["enum", "E", "i64", [["A", 1], ["A", 2]]]),
    "list length": typed(["list", "i8", -1]),
    "list length is bool": typed(["list", "i8", True]),
    "array item": typed(["array", "str", None]),
    "array shape": typed(["array", "i8", []]),
    "array dimension": typed(["array", "i8", [2**31]]),
    "array dimensions": typed(["array", "i8", [1] * 33]),
    "nested record": typed(["record", "x"]),
    "too deep": typed(deep(40)),
    "much too deep": b"\x91" * 100_000,
    "trailing": hg.format_of(Inner).description + b"\0",
    "not canonical": b"\xdc\x00\x08" + hg.format_of(Inner).description[1:],
    "too long": bytes(MAX_DESCRIPTION + 1),
    "bad text": forged((1, "abc")).replace(b"abc", b"\xff\xff\xff"),
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_a_forged_description_is_refused(data: bytes) -> None:
    with pytest.raises(hg.FormatError):
        hg.Format.from_description(data)


def test_every_change_of_a_byte_in_a_description_is_refused_or_gives_another_format() -> None:
    for fmt in FORMATS:
        for place in range(len(fmt.description)):
            for value in range(256):
                data = bytearray(fmt.description)
                data[place] = value
                try:
                    other = hg.Format.from_description(bytes(data))
                except hg.FormatError:
                    continue
                assert (other.id == fmt.id) == (data == fmt.description)


@given(st.binary(max_size=100))
@settings(max_examples=examples(200))
def test_random_bytes_are_no_description(data: bytes) -> None:
    with pytest.raises(hg.FormatError):
        hg.Format.from_description(data)


def test_a_registry_keeps_formats_by_id() -> None:
    registry = FormatRegistry()
    fmt = hg.format_of(Outer)
    assert registry.register(fmt) == registry.register(fmt) == fmt.id
    assert registry[fmt.id] is fmt
    assert fmt.id in registry
    assert len(registry) == 1
    assert registry.formats() == (fmt,)


def test_an_id_that_nobody_described_is_unknown() -> None:
    with pytest.raises(hg.UnknownFormat, match="000102") as caught:
        FormatRegistry()[bytes(range(12))]
    assert caught.value.format_id == bytes(range(12))


def test_a_registry_learns_only_descriptions_that_fit_their_id() -> None:
    registry = FormatRegistry()
    fmt = hg.format_of(Outer)
    assert registry.learn(fmt.id, fmt.description) == fmt
    with pytest.raises(hg.FormatError, match="came under the id"):
        registry.learn(bytes(12), fmt.description)
    assert len(registry) == 1


@pytest.mark.parametrize(
    ("limit", "value", "unit"), [("MAX_FORMATS", 1, "formats"), ("MAX_ALL_DESCRIPTIONS", 200, "bytes")]
)
def test_a_registry_keeps_no_more_than_its_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, unit: str
) -> None:
    monkeypatch.setattr(f"heliograph.model.formats.{limit}", value)
    registry = FormatRegistry()
    inner, outer = hg.format_of(Inner), hg.format_of(Outer)
    registry.learn(inner.id, inner.description)
    assert registry.learn(inner.id, inner.description) == inner
    with pytest.raises(TooManyFormats) as caught:
        registry.learn(outer.id, outer.description)
    assert caught.value.limit == value
    assert caught.value.unit.startswith(unit)
    assert outer.id not in registry


def test_types_are_written_as_people_say_them() -> None:
    assert str(ft.Optional(ft.List(ft.Scalar("i8"), 3))) == "list[i8; 3] | None"
    assert str(ft.Array("f64", (None, 3))) == "array[f64; any, 3]"
    assert str(ft.Array("f64")) == "array[f64]"
    assert str(ft.NestedEvent(hg.format_of(Inner))) == "record inner"
    assert str(ft.Anything()) == "any"
    assert str(hg.format_of(Inner)).startswith("inner ")
