"""Runs as columns: the same as of the records that they stand for, however they are cut."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.journal.format.records import (
    Piece,
    Record,
    RecordRun,
    StoredRows,
    count_events,
    decode_large,
    first_of,
    without_first,
)
from heliograph.journal.reading.head_columns import HeadColumns, grouped
from tests.support import examples

INTEGERS = ("epoch", "sequence", "source_ts", "priority", "station_seq", "lifetime_ns", "hops", "kind")
small = st.integers(0, 3)
bodies = st.binary(max_size=3)


@st.composite
def runs(draw: st.DrawFn) -> RecordRun:
    body: Any = draw(bodies | st.lists(bodies, min_size=1, max_size=5))
    count = 1 if isinstance(body, bytes) else len(body)
    places = small if isinstance(body, bytes) else small | st.lists(small, min_size=count, max_size=count + 1)
    return RecordRun(
        draw(st.sampled_from(["a", "b"])), draw(small), draw(small), draw(small), b"f", body, 3, draw(places),
        draw(st.none() | small), None, draw(st.none() | st.just({"k": "v"})),
    )  # fmt: skip


records = st.builds(Record, st.just("s"), small, small, small, st.just(b"f"), bodies)
stored: st.SearchStrategy[StoredRows] = st.lists(runs(), min_size=1, max_size=4) | st.lists(
    records, min_size=1, max_size=4
)


def pieces_from(frames: list[StoredRows]) -> list[Piece]:
    found, first = [], 10
    for time, rows in enumerate(frames):
        found.append((first, time, rows))
        first += count_events(rows)
    return found


def expected(pieces: list[Piece]) -> list[tuple[int, int, Record]]:
    return [
        (offset, time, record)
        for first, time, rows in pieces
        for offset, record in enumerate(decode_large(rows), first)
    ]


def found_in(pieces: list[Piece]) -> list[tuple[int, int, Record]]:
    columns = HeadColumns(pieces)
    return list(zip(columns.offsets().tolist(), columns.append_ts().tolist(), columns.records(), strict=True))


@given(st.lists(stored, min_size=1, max_size=4))
@settings(max_examples=examples(60))
def test_columns_of_runs_are_those_of_their_records(frames: list[StoredRows]) -> None:
    pieces = pieces_from(frames)
    columns = HeadColumns(pieces)
    rows = [record for _, _, record in expected(pieces)]
    assert len(columns) == len(rows)
    assert found_in(pieces) == expected(pieces)
    assert columns.bodies() == [record.body for record in rows]
    for name in INTEGERS:
        assert columns.integers(name).to_pylist() == [getattr(record, name) for record in rows]
    assert columns.column(columns.of("supplier"), pa.string()).to_pylist() == [r.supplier for r in rows]
    headers = [None if one is None else list(one.items()) for one in columns.of("headers")]
    kind = pa.map_(pa.string(), pa.string())
    assert [one and dict(one) for one in columns.column(headers, kind).to_pylist()] == [
        record.headers for record in rows
    ]


def test_events_are_found_by_their_format() -> None:
    runs = [
        RecordRun("s", 1, 0, 0, b"f", [b"", b""]),
        RecordRun("s", 1, 2, 0, b"g", b""),
        RecordRun("s", 1, 3, 0, b"f", b""),
    ]
    found = HeadColumns([(0, 0, runs)]).by_format()
    assert {format_id: places.tolist() for format_id, places in found.items()} == {b"f": [0, 1, 3], b"g": [2]}


@given(st.lists(stored, min_size=1, max_size=4), st.integers(1, 7))
@settings(max_examples=examples(60))
def test_groups_have_their_size_and_lose_nothing(frames: list[StoredRows], size: int) -> None:
    pieces = pieces_from(frames)
    groups = list(grouped(pieces, size))
    assert all(len(HeadColumns(group)) == size for group in groups[:-1])
    assert 0 < len(HeadColumns(groups[-1])) <= size
    assert [one for group in groups for one in found_in(group)] == expected(pieces)


@given(stored, st.integers(0, 25))
@settings(max_examples=examples(60))
def test_what_comes_first_and_what_is_left_are_all(rows: StoredRows, events: int) -> None:
    parts = decode_large(first_of(rows, events)), decode_large(without_first(rows, events))
    assert parts[0] + parts[1] == decode_large(rows)
    assert len(parts[0]) == min(events, count_events(rows))


def test_a_group_ends_behind_the_piece_with_which_it_has_too_many_bytes() -> None:
    pieces = pieces_from([[Record("s", 1, n, 0, b"f", bytes(10))] for n in range(4)])
    assert [len(HeadColumns(group)) for group in grouped(pieces, 100, most_bytes=15)] == [2, 2]


def test_numbers_that_64_bits_do_not_hold_are_not_wrapped() -> None:
    run = RecordRun("s", 1, (1 << 63) - 1, 0, b"f", [b"", b""])
    with pytest.raises(OverflowError):
        HeadColumns([(0, 0, [run])]).integers("sequence")
    with pytest.raises(OverflowError):
        HeadColumns([(0, 0, [Record("s", 1 << 63, 0, 0, b"f", b"")])]).integers("epoch")
