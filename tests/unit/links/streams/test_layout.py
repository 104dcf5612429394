"""What is put into a stream, as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import BadFrame
from heliograph.links.session import messages as m
from heliograph.links.streams.layout import (
    EVENTS,
    HEARTBEAT,
    PIECE_BYTES,
    derivation_of,
    events_put,
    heartbeat_put,
    pieces_of,
    read_piece,
    read_put,
)

NUMBERS = st.integers(1, (1 << 32) - 1)
PLACES = st.integers(1, (1 << 62) - 1)


@given(NUMBERS, PLACES, NUMBERS, st.binary(min_size=1, max_size=50))
def test_what_was_put_is_read(number: int, first: int, count: int, payload: bytes) -> None:
    put = read_put(events_put(number, first, count, payload), "peer")
    assert (put.kind, put.number, put.first, put.count) == (EVENTS, number, first, count)
    assert put.payload == payload
    beat = read_put(heartbeat_put(number, first), "peer")
    assert (beat.kind, beat.number, beat.first) == (HEARTBEAT, number, first)


@given(st.binary(max_size=60))
def test_anything_else_is_refused_or_is_a_put(data: bytes) -> None:
    try:
        put = read_put(data, "peer")
    except BadFrame:
        return
    assert put.first < 1 << 62


@pytest.mark.parametrize("size", [1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 1])
def test_pieces_are_put_together(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    parts = {}
    for data in pieces_of(3, 7, 1, payload):
        whole, place, part = read_piece(read_put(data, "peer"), "peer")
        assert whole == size
        parts[place] = bytes(part)
    assert b"".join(parts[place] for place in sorted(parts)) == payload


def test_who_asks_for_the_same_in_another_order_shares_a_stream_and_nobody_else_does() -> None:
    fast, slow = (m.Want("air.track", b"f", ["Compare", op, [], []]) for op in ("<", ">"))
    assert derivation_of([fast, slow]) == derivation_of([slow, fast, fast])
    others = [[fast], [slow], [fast, slow], [m.Want("air.track", b"f")], [m.Want("air.track", b"g")]]
    assert len({derivation_of(wants) for wants in others}) == len(others)
