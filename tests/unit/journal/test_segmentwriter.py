"""Columns of sealed segments: the fast way and the general way say the same."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph import fieldtypes as ft
from heliograph.formats import Field, Format, FormatRegistry
from heliograph.journal import segmentwriter
from heliograph.journal.records import Record, Rows
from heliograph.journal.segmentwriter import plain_decoder, segment_file
from tests.support import examples

PLAIN = Format(
    "plain",
    (
        Field("i", ft.Scalar("i8")),
        Field("u", ft.Scalar("u64")),
        Field("f", ft.Scalar("f64")),
        Field("g", ft.Scalar("f32")),
        Field("s", ft.Optional(ft.Scalar("str"))),
        Field("b", ft.Scalar("bool")),
        Field("y", ft.Scalar("bytes")),
    ),
)
good_rows = st.tuples(
    st.integers(-128, 127),
    st.integers(0, 2**64 - 1),
    st.floats(),
    st.floats(width=32),
    st.none() | st.text(max_size=5),
    st.booleans(),
    st.binary(max_size=5),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=10,
)
bodies = st.one_of(
    good_rows.map(msgspec.msgpack.encode), anything.map(msgspec.msgpack.encode), st.binary(max_size=12)
)


def columns(bodies: list[bytes]) -> pa.Table:
    formats = FormatRegistry()
    formats.register(PLAIN)
    records = [Record("s", 1, n, 0, PLAIN.id, body) for n, body in enumerate(bodies)]
    data, _ = segment_file([Rows(0, 5, records)], formats)
    return pq.read_table(pa.BufferReader(data))


@given(st.lists(bodies, min_size=1, max_size=8))
@settings(max_examples=examples(100))
def test_the_fast_way_gives_the_same_columns_as_the_general_one(bodies: list[bytes]) -> None:
    assert plain_decoder(PLAIN) is not None
    fast = columns(bodies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmentwriter, "plain_decoder", lambda _: None)
        general = columns(bodies)
    assert fast.schema == general.schema
    assert str(fast.to_pylist()) == str(general.to_pylist())  # as text, in which NaN equals NaN


def test_formats_with_more_than_numbers_and_text_go_the_general_way() -> None:
    for kind in (ft.List(ft.Scalar("i64")), ft.Scalar("datetime"), ft.Anything()):
        assert plain_decoder(Format("x", (Field("a", kind),))) is None


def test_two_values_in_one_body_cannot_stand_for_the_next_row() -> None:
    row = msgspec.msgpack.encode([1, 2, 3.0, 4.0, "x", True, b""])
    other = msgspec.msgpack.encode([9, 2, 3.0, 4.0, "x", True, b""])
    assert columns([row + other, row, b""]).column("i").to_pylist() == [None, 1, None]
