"""Encodes large events for the ring: metadata apart from the body, which is read where it lies.

    u8 APART, u32 stream, 3 bytes, u32 size, msgpack of that size, padding to 8, body

The msgpack is `[supplier, epoch, sequence, source_ts, priority, station_seq, correlation_id, headers]`. A
body begins at a multiple of eight bytes, as the arrays in it do: where it lies in the ring, numpy finds them
aligned.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.runtime.ports import Buffer

APART: Final = 4
"""The form of such a record, beside that of a lone event and those of runs."""
LARGE: Final = 1 << 15
"""Bytes from which on an event is written from where its arrays lie, and no sum is taken over it."""

_HEAD: Final = Struct("<BI3xI")
_REST: Final = Struct("<3xI")
_BEFORE: Final = _HEAD.size - _REST.size
_ALIGNMENT: Final = 8


def encode_large(stream: int, said: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    """A record, in parts: those of the body are as they were given."""
    padding = bytes(-(_HEAD.size + len(said)) % _ALIGNMENT)
    return [_HEAD.pack(APART, stream, len(said)) + said + padding, *body]


def decode_large(record: memoryview) -> tuple[memoryview, memoryview]:
    """What is said of an event, and its body; ValueError if there are none.

    Args:
        record: without its form and stream.
    """
    size = _REST.unpack_from(record)[0] if len(record) >= _REST.size else len(record)
    end = _HEAD.size + size
    begin = end + -end % _ALIGNMENT
    if begin - _BEFORE > len(record):
        raise ValueError(f"a large event of {len(record)} bytes says {size} bytes of itself")
    return record[_REST.size : end - _BEFORE], record[begin - _BEFORE :]
