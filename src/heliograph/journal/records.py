"""What a journal keeps of an event, and how rows become bytes.

A journal looks into no body. A `Record` is the event's bytes with the part of its header that cannot be found
elsewhere; channel, event type and key fields follow from the folder, the format and the body.

On disk a row is a msgpack array of the fields below, in this order. New fields go to the end with a default:
older rows then read as if they had it, and older programs skip what they do not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

EVENT: Final = 0
TOMBSTONE: Final = 1
"""What a record says about its key: a new value, or that there is none any more."""


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One event as it is kept."""

    supplier: str
    epoch: int
    """The life of the supplier; with supplier and sequence it is the EventId."""
    sequence: int
    source_ts: int
    format_id: bytes
    body: bytes
    priority: int = 3
    station_seq: int = 0
    lifetime_ns: int | None = None
    correlation_id: str | None = None
    headers: dict[str, str] | None = None
    hops: int = 0
    kind: int = EVENT
    key: bytes | None = None
    """Of a tombstone: the key as a msgpack array. An event's key is in its body."""


class JournalRecord(NamedTuple):
    """A record where it stands in the history."""

    offset: int
    append_ts: int
    record: Record


class Rows(NamedTuple):
    """The rows of one frame, or of a part of one: offsets are dense from `first`."""

    first: int
    append_ts: int
    records: list[Record]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def encode_rows(records: Sequence[Record]) -> bytes:
    """The rows one behind the other, without the array around them: `rows_payload` joins many of these."""
    data = _encoder.encode(records)
    count = len(records)
    return data[1 if count < 16 else 3 if count < 65536 else 5 :]


def rows_payload(count: int, chunks: list[bytes]) -> bytes:
    """One msgpack array of all the rows in the chunks."""
    return b"".join((b"\xdd", count.to_bytes(4, "big"), *chunks))


def decode_rows(payload: bytes | memoryview) -> list[Record]:
    """The rows of a payload; raises msgspec.MsgspecError for anything else."""
    return _decoder.decode(payload)
