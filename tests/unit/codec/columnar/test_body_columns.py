"""Bodies decoded side by side: the values that the codec would have found, or nothing at all."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.codec import mapping_decoder
from heliograph.codec.columnar import body_columns as bodycolumns
from heliograph.codec.columnar.body_columns import Bodies, NotPlain, columns_decoder, columns_of, fits
from heliograph.codec.columnar.columns import to_batch, unify
from heliograph.codec.columnar.unify import unified
from heliograph.errors import DecodeError, InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format
from tests.random_formats import Case, random_case, random_record
from tests.support import examples

if TYPE_CHECKING:
    from random import Random

    from heliograph.codec.columnar.body_columns import Decoder

encode = msgspec.msgpack.encode

SCALARS = cast("list[ft.ScalarName]", sorted(ft.SCALARS - {"datetime"}))
ANY_OF: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(*limits) | st.integers(0, 127) for name, limits in ft.INTEGER_RANGES.items()},
    "f32": st.floats(width=32) | st.integers(-1000, 1000),
    "f64": st.floats() | st.integers(-(2**53), 2**53),
    "bool": st.booleans(),
    "str": st.text(max_size=4) | st.sampled_from(["x" * 31, "x" * 32, "ü" * 200]),
    "bytes": st.binary(max_size=4) | st.just(bytes(300)),
    "date": st.dates(),
    "uuid": st.uuids(),
}


@st.composite
def plain_formats(draw: st.DrawFn) -> Format:
    kinds = draw(st.lists(st.tuples(st.sampled_from(SCALARS), st.booleans()), min_size=1, max_size=17))
    return Format(
        "plain",
        tuple(
            Field(f"f{n}", ft.Optional(ft.Scalar(name)) if optional else ft.Scalar(name))
            for n, (name, optional) in enumerate(kinds)
        ),
    )


def row_of(fmt: Format) -> st.SearchStrategy[list[Any]]:
    values = []
    for field in fmt.fields:
        optional = isinstance(field.type, ft.Optional)
        item = field.type.item if isinstance(field.type, ft.Optional) else field.type
        assert isinstance(item, ft.Scalar)
        values.append(st.none() | ANY_OF[item.name] if optional else ANY_OF[item.name])
    return st.tuples(*values).map(list)


def decoded(fmt: Format, bodies: list[bytes], wanted: list[str] | None = None) -> dict[str, pa.Array]:
    decode = columns_decoder(fmt)
    assert decode is not None
    return decode(Bodies(bodies), [field.name for field in fmt.fields] if wanted is None else wanted)


@given(st.data())
@settings(max_examples=examples(60))
def test_columns_are_those_that_the_codec_finds(data: st.DataObject) -> None:
    fmt = data.draw(plain_formats())
    bodies = [encode(row) for row in data.draw(st.lists(row_of(fmt), min_size=1, max_size=6))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodycolumns, "AT_ONCE", 4)
        found = decoded(fmt, bodies)
    expected = to_batch(fmt, list(map(mapping_decoder(fmt), bodies)), spark_safe=True)
    for name, array in found.items():
        array.validate(full=True)
        assert array.type == expected.schema.field(name).type
        assert str(array.to_pylist()) == str(expected.column(name).to_pylist())  # as text: NaN is NaN


@given(st.data())
@settings(max_examples=examples(60))
def test_a_body_that_the_codec_refuses_is_never_decoded(data: st.DataObject) -> None:
    fmt = data.draw(plain_formats())
    good = encode(data.draw(row_of(fmt)))
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    changed = data.draw(st.sampled_from([good[:at], good + good[at:], flipped, good * 2]))
    try:
        to_batch(fmt, [mapping_decoder(fmt)(changed)], spark_safe=True)
    except (DecodeError, InvalidEvent):
        for bodies in ([changed], [good, changed, good], [changed, good]):
            with pytest.raises(NotPlain):
                decoded(fmt, bodies)


def test_two_values_in_one_body_do_not_stand_for_the_next() -> None:
    fmt = Format("x", (Field("a", ft.Scalar("i64")),))
    one = encode([1])
    with pytest.raises(NotPlain):
        decoded(fmt, [one + one, b""])
    with pytest.raises(NotPlain):
        decoded(fmt, [one, b"", one + one])


def test_only_the_columns_that_are_wanted_are_made() -> None:
    fmt = Format("x", tuple(Field(name, ft.Scalar("str")) for name in ("a", "b", "c")))
    assert list(decoded(fmt, [encode(["1", "2", "3"])], ["b"])) == ["b"]


def test_data_without_a_schema_and_events_without_fields_have_no_such_decoder() -> None:
    assert columns_decoder(Format("x", (Field("a", ft.Optional(ft.List(ft.Anything()))),))) is None
    assert columns_decoder(Format("x", ())) is None


def random_bodies(rng: Random) -> tuple[Format, list[bytes]]:
    """Some bodies of a random format, packed or native, that a foreign sender has written."""
    while True:
        fmt = random_case(rng).fmt
        if not ft.holds(ft.NestedEvent(fmt), ft.Anything):
            count = rng.randint(1, 6)
            return fmt, [Case(fmt, random_record(rng, fmt)).body(rng.randint(0, 255)) for _ in range(count)]


def slowly(fmt: Format, bodies: list[bytes]) -> pa.RecordBatch:
    return to_batch(fmt, list(map(mapping_decoder(fmt), bodies)), spark_safe=True)


def insist_on_equal(fmt: Format, found: dict[str, pa.Array], bodies: list[bytes]) -> None:
    expected = slowly(fmt, bodies)
    assert found.keys() <= set(expected.schema.names)
    for name, array in found.items():
        array.validate(full=True)
        assert array.type == expected.schema.field(name).type
        assert str(array.to_pylist()) == str(expected.column(name).to_pylist())  # as text: NaN is NaN


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(400))
def test_columns_of_every_format_are_those_that_the_codec_finds(rng: Random) -> None:
    fmt, bodies = random_bodies(rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodycolumns, "AT_ONCE", 4)
        found = decoded(fmt, bodies)
        some = [field.name for field in fmt.fields if rng.random() < 0.5]
        part = decoded(fmt, bodies, some)
    assert list(found) == [field.name for field in fmt.fields]
    assert list(part) == some
    insist_on_equal(fmt, found, bodies)
    insist_on_equal(fmt, part, bodies)


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(400))
def test_a_changed_body_of_any_format_is_decoded_as_the_codec_does_or_not_at_all(rng: Random) -> None:
    fmt, bodies = random_bodies(rng)
    at = rng.randrange(len(bodies))
    good = bodies[at]
    place = rng.randrange(len(good)) if good else 0
    flipped = good[:place] + bytes([good[place] ^ rng.randint(1, 255)]) + good[place + 1 :] if good else b"x"
    bodies[at] = rng.choice([flipped, flipped, flipped, good[:place], good + good[place:] + b"x"])
    try:
        slowly(fmt, bodies)
    except (DecodeError, InvalidEvent, pa.ArrowInvalid):  # the last: a dimension that no column can hold
        with pytest.raises(NotPlain):
            decoded(fmt, bodies)
    else:
        with suppress(NotPlain):
            insist_on_equal(fmt, decoded(fmt, bodies), bodies)


def test_long_lists_are_read_when_many_events_have_them() -> None:
    texts = Format("x", (Field("a", ft.List(ft.Scalar("str"))), Field("b", ft.List(ft.Scalar("f64")))))
    rows = [[["x" * (n % 3)] * 40, [1.5, 2] * (30 + n % 5)] for n in range(300)]
    found = decoded(texts, list(map(encode, rows)))
    assert found["a"].to_pylist() == [row[0] for row in rows]
    assert found["b"].to_pylist() == [row[1] for row in rows]
    with pytest.raises(NotPlain):  # one by one is quicker
        decoded(texts, [encode([["x"] * 1000, []]), encode([[], []])])


def test_an_announced_length_costs_no_memory() -> None:
    fmt = Format("x", (Field("a", ft.List(ft.Scalar("i64"))),))
    with pytest.raises(NotPlain):
        decoded(fmt, [b"\x91\xdd\xff\xff\xff\xff\x01"])
    arrays = Format("x", (Field("a", ft.Array("f64")),))
    for shape in ([2**31], [2**32 - 1], [0, 2**31, 2**31], [65_536] * 4):
        descriptor = struct.pack(f"<{1 + len(shape)}I", 0, *shape)
        packed = encode([descriptor])
        with pytest.raises(NotPlain):
            decoded(arrays, [struct.pack("<I", len(packed)) + packed + bytes(64)])


def test_arrays_that_share_their_data_are_refused() -> None:
    fmt = Format("x", (Field("a", ft.Array("u8", (8,))), Field("b", ft.Array("u8", (8,)))))
    descriptor = struct.pack("<2I", 0, 8)
    packed = encode([descriptor, descriptor])
    head = struct.pack("<I", len(packed)) + packed
    body = head + bytes(-len(head) % 8) + bytes(8)
    with pytest.raises(NotPlain):
        decoded(fmt, [body])


@pytest.mark.parametrize(
    "time",
    [b"\xd6\xff" + struct.pack(">I", 5), b"\xd7\xff" + struct.pack(">Q", (999_999_000 << 34) | 7),
     b"\xc7\x0c\xff" + struct.pack(">Iq", 1_000, -62_135_596_800)],
)  # fmt: skip
def test_every_form_of_a_time_is_read(time: bytes) -> None:
    fmt = Format("x", (Field("a", ft.Scalar("datetime")),))
    body = b"\x91" + time
    assert decoded(fmt, [body])["a"].to_pylist() == slowly(fmt, [body]).column("a").to_pylist()


@pytest.mark.parametrize(
    "time",
    [b"\xd6\xfe" + bytes(4), b"\xd7\xff" + struct.pack(">Q", 10**9 << 34), encode("2026-01-01T00:00:00Z"),
     b"\xc7\x0c\xff" + struct.pack(">Iq", 0, 253_402_300_800),
     b"\xc7\x0c\xff" + struct.pack(">Iq", 0, 2**62)],
)  # fmt: skip
def test_times_that_are_none_or_written_otherwise_are_left_to_the_codec(time: bytes) -> None:
    with pytest.raises(NotPlain):
        decoded(Format("x", (Field("a", ft.Scalar("datetime")),)), [b"\x91" + time])


@pytest.mark.parametrize(
    ("name", "value"),
    [("i8", 128), ("u8", -1), ("u64", -1), ("i64", 2**63), ("f32", 1e300), ("f64", 2**63), ("bool", 1),
     ("str", b"x"), ("bytes", "x"), ("i64", 1.0), ("i64", None), ("f64", "1"), ("i64", [1])],
)  # fmt: skip
def test_what_a_field_does_not_hold_is_left_to_the_codec(name: ft.ScalarName, value: object) -> None:
    with pytest.raises(NotPlain):
        decoded(Format("x", (Field("a", ft.Scalar(name)),)), [encode([value])])


def test_a_text_that_says_it_is_longer_than_all_bodies_is_refused() -> None:
    fmt = Format("x", (Field("a", ft.Scalar("str")), Field("b", ft.Scalar("i64"))))
    with pytest.raises(NotPlain):
        decoded(fmt, [b"\x92\xdb\xff\xff\xff\xff", encode(["", 1])])


def test_bytes_that_are_no_text_are_refused() -> None:
    fmt = Format("x", (Field("a", ft.Scalar("str")),))
    with pytest.raises(NotPlain):
        decoded(fmt, [b"\x91\xa1\xff"])


def test_texts_and_bytes_of_all_sizes_are_kept() -> None:
    sizes = [0, 31, 32, 255, 256, 65_535, 65_536]
    fmt = Format("x", (Field("a", ft.Scalar("str")), Field("b", ft.Scalar("bytes"))))
    found = decoded(fmt, [encode(["x" * size, bytes(size)]) for size in sizes])
    assert found["a"].to_pylist() == ["x" * size for size in sizes]
    assert found["b"].to_pylist() == [bytes(size) for size in sizes]


def test_bodies_as_they_are_make_a_column_too() -> None:
    bodies = [b"", b"abc", b"\x00"]
    array = Bodies(bodies).array()
    array.validate(full=True)
    assert array.to_pylist() == bodies


def test_the_smallest_and_the_largest_numbers_of_each_tag_are_kept() -> None:
    fmt = Format("x", (Field("a", ft.Scalar("i64")),))
    edges = [sign * (1 << bits) + more for bits in range(63) for sign in (1, -1) for more in (-1, 0, 1)]
    edges += [-(2**63), 2**63 - 1]
    assert decoded(fmt, [encode([edge]) for edge in edges])["a"].to_pylist() == edges
    floats = [0.0, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]
    fmt = Format("x", (Field("a", ft.Scalar("f64")),))
    assert decoded(fmt, [encode([one]) for one in floats])["a"].to_pylist() == floats


def test_bodies_of_several_formats_share_their_columns() -> None:
    old = Format("x", (Field("a", ft.Scalar("i8")), Field("c", ft.Scalar("str"))))
    new = Format("x", (Field("b", ft.Scalar("bool")), Field("a", ft.Scalar("i64"))))
    joined = unified([old, new])
    bodies = Bodies([encode([1, "x"]), encode([True, 300]), encode([False, 7]), encode([2, "y"])])
    decoders = {b"old": columns_decoder(old), b"new": columns_decoder(new)}
    groups = {b"old": np.array([0, 3]), b"new": np.array([1, 2])}
    assert fits(old, joined)
    arrays = columns_of(bodies, groups, cast("dict[bytes, Decoder]", decoders), list(unify([old, new])))
    assert [array.to_pylist() for array in arrays] == [
        [1, 300, 7, 2],
        ["x", None, None, "y"],
        [None, True, False, None],
    ]


def test_a_field_without_a_schema_takes_no_column_of_text_for_its_own() -> None:
    text = Format("x", (Field("a", ft.Scalar("str")),))
    assert fits(text, text)
    assert not fits(text, Format("x", (Field("a", ft.Anything()),)))
    assert not fits(text, Format("x", (Field("a", ft.Scalar("i64")),)))
