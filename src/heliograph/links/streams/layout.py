"""What is put into a stream: a head, then runs of events as sessions have them.

    u8 kind, u8 zero, u16 zero, u32 stream, u32 count, u64 first number       little-endian, 20 bytes

    EVENTS      that many events from the first number on, as runs: see `heliograph.links.session.messages`
    PIECE       a part of such a put that is too large for one: u64 size of all, u64 place, then bytes
    HEARTBEAT   nothing follows: the last event so far has the first number; the count is 0

Which events a stream has is its derivation: a digest of all that was asked for of the channel.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import BadFrame
from heliograph.links.contract import LANES
from heliograph.links.session.messages import MAX_EVENT, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.links.session.messages import Want

EVENTS, PIECE, HEARTBEAT = 1, 2, 3
_HEAD: Final = struct.Struct("<BBHIIQ")
_PIECE: Final = struct.Struct("<QQ")
HEAD_SIZE: Final = _HEAD.size
PIECE_BYTES: Final = 512 << 10
"""Bytes of a put from which on it goes in pieces, so that the loss of one costs little."""
NO_NUMBERS: Final = (0,) * LANES


class StreamPut(msgspec.Struct, frozen=True, gc=False):
    """One of them, taken apart."""

    kind: int
    number: int
    count: int
    first: int
    payload: Any
    """A view of bytes."""


def derivation_of(wants: Iterable[Want]) -> str:
    """What was asked for of a channel, as 32 hexadecimal digits: who asks for the same shares a stream."""
    asked = sorted({encode(want) for want in wants})
    return blake2b(encode(asked), digest_size=16).hexdigest()


def events_put(number: int, first: int, count: int, payload: bytes) -> bytes:
    return _HEAD.pack(EVENTS, 0, 0, number, count, first) + payload


def heartbeat_put(number: int, last: int) -> bytes:
    return _HEAD.pack(HEARTBEAT, 0, 0, number, 0, last)


def pieces_of(number: int, first: int, count: int, payload: bytes) -> list[bytes]:
    """A payload that is too large for one put."""
    view, head = memoryview(payload), _HEAD.pack(PIECE, 0, 0, number, count, first)
    places = range(0, len(payload), PIECE_BYTES)
    return [
        b"".join((head, _PIECE.pack(len(payload), place), view[place : place + PIECE_BYTES]))
        for place in places
    ]


def read_put(data: bytes, peer: str) -> StreamPut:
    """BadFrame for what no station puts."""
    if len(data) < HEAD_SIZE:
        raise BadFrame(peer, "what it puts into a stream is cut short")
    kind, zero, zeros, number, count, first = _HEAD.unpack_from(data)
    payload = memoryview(data)[HEAD_SIZE:]
    is_sound = count > 0 and first > 0 and len(payload) > 0
    if kind == HEARTBEAT:
        is_sound = count == 0 and not payload
    if kind not in (EVENTS, PIECE, HEARTBEAT) or zero or zeros or not is_sound or first >= 1 << 62:
        raise BadFrame(peer, f"puts {count} events of the kind {kind} into a stream, from number {first} on")
    return StreamPut(kind, number, count, first, payload)


def read_piece(put: StreamPut, peer: str) -> tuple[int, int, memoryview]:
    """The size of the whole payload, where a piece begins in it, and the piece."""
    if len(put.payload) <= _PIECE.size:
        raise BadFrame(peer, "a piece of an event is cut short")
    whole, place = _PIECE.unpack_from(put.payload)
    part = put.payload[_PIECE.size :]
    if whole > MAX_EVENT or place + len(part) > whole or place % PIECE_BYTES:
        raise BadFrame(peer, f"a piece of {len(part)} bytes at {place} of {whole}")
    return whole, place, part
