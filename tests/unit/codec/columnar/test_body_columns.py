"""Bodies decoded side by side: the values that the codec would have found, or nothing at all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.codec import mapping_decoder
from heliograph.codec.columnar import body_columns as bodycolumns
from heliograph.codec.columnar.body_columns import Bodies, NotPlain, columns_decoder
from heliograph.codec.columnar.columns import to_batch
from heliograph.errors import DecodeError, InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format
from tests.support import examples

if TYPE_CHECKING:
    import pyarrow as pa

encode = msgspec.msgpack.encode

SCALARS = cast("list[ft.ScalarName]", sorted(ft.SCALARS - {"datetime"}))
ANY_OF: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(*limits) | st.integers(0, 127) for name, limits in ft.INTEGER_RANGES.items()},
    "f32": st.floats(width=32) | st.integers(-1000, 1000),
    "f64": st.floats() | st.integers(-(2**53), 2**53),
    "bool": st.booleans(),
    "str": st.text(max_size=4) | st.sampled_from(["x" * 31, "x" * 32, "ü" * 200]),
    "bytes": st.binary(max_size=4) | st.just(bytes(300)),
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


@pytest.mark.parametrize(
    "kind",
    [ft.Scalar("datetime"), ft.List(ft.Scalar("i64")), ft.Anything(), ft.Enum("E", "i64", (("A", 1),))],
    ids=str,
)
def test_formats_with_more_than_numbers_and_text_have_no_such_decoder(kind: ft.FieldType) -> None:
    assert columns_decoder(Format("x", (Field("a", kind),))) is None
    assert columns_decoder(Format("x", ())) is None
    native = Format("x", (Field("a", ft.Scalar("i64")),), body="native")
    assert columns_decoder(native) is None


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
