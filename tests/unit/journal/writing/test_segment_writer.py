"""Columns of sealed segments: the fast way and the general way say the same."""

from __future__ import annotations

import math

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.codec.columnar.body_columns import columns_decoder
from heliograph.journal.format.frames import checksum
from heliograph.journal.format.records import Record, Rows
from heliograph.journal.writing import segment_writer as segmentwriter
from heliograph.journal.writing.segment_writer import pieces_of, segment_file
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format, FormatRegistry
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
    assert columns_decoder(PLAIN) is not None
    fast = columns(bodies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmentwriter, "columns_decoder", lambda _: None)
        general = columns(bodies)
    assert fast.schema == general.schema
    assert str(fast.to_pylist()) == str(general.to_pylist())  # as text, in which NaN equals NaN


def test_two_values_in_one_body_cannot_stand_for_the_next_row() -> None:
    row = msgspec.msgpack.encode([1, 2, 3.0, 4.0, "x", True, b""])
    other = msgspec.msgpack.encode([9, 2, 3.0, 4.0, "x", True, b""])
    assert columns([row + other, row, b""]).column("i").to_pylist() == [None, 1, None]


def test_a_float_column_has_statistics_unless_nan_is_in_it() -> None:
    fmt = Format("reading", tuple(Field(name, ft.Scalar("f64")) for name in ("plain", "with_nan")))
    formats = FormatRegistry()
    formats.register(fmt)
    bodies = [[1.0, 2.0], [3.0, math.nan]]
    records = [Record("s", 1, n, 0, fmt.id, msgspec.msgpack.encode(body)) for n, body in enumerate(bodies)]
    data, _ = segment_file([Rows(0, 9, records)], formats)
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    assert (columns["plain"].statistics.min, columns["plain"].statistics.max) == (1.0, 3.0)
    assert columns["with_nan"].statistics is None
    assert columns["_offset"].statistics.max == 1


def test_what_ends_with_the_first_footer_is_a_whole_file_too() -> None:
    formats = FormatRegistry()
    formats.register(PLAIN)
    data, _ = segment_file([Rows(0, 9, [Record("s", 1, 0, 0, PLAIN.id, b"\x90")])], formats)
    *_, (first_end, _), (second_end, _) = pieces_of(data)
    assert second_end == len(data)
    assert pq.read_table(pa.BufferReader(data[:first_end])) == pq.read_table(pa.BufferReader(data))


def test_pieces_cover_a_file_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentwriter, "ROW_GROUP", 2)
    formats = FormatRegistry()
    formats.register(PLAIN)
    records = [Record("s", 1, n, 0, PLAIN.id, b"\x90") for n in range(5)]
    data, _ = segment_file([Rows(0, 9, records)], formats)
    pieces = pieces_of(data)
    assert len(pieces) == 3 + 2
    start = 0
    for end, crc in pieces:
        assert checksum(data[start:end]) == crc
        assert end > start
        start = end
    assert start == len(data)
