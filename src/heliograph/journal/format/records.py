"""What a journal keeps of an event, and how rows become bytes.

A journal looks into no body. A `Record` is the event's bytes with the part of its header that cannot be found
elsewhere; channel, event type and key fields follow from the folder, the format and the body.

On disk a row is a msgpack array of the fields below, in this order. New fields go to the end with a default:
older rows then read as if they had it, and older programs skip what they do not know. Events that a supplier
pushed together may share one row, a `RecordRun`, in which only what differs stands once for each.
"""

from __future__ import annotations

from itertools import count, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import TypeIs

EVENT: Final = 0
TOMBSTONE: Final = 1
"""What a record says about its key: a new value, or that there is none any more."""


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One event as it is kept."""

    supplier: str
    epoch: int
    """The epoch of the supplier; with supplier and sequence it is the EventId."""
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


class RecordRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row for events that a supplier pushed together; the fields are those of a `Record`.

    Sequence numbers count up, and the rest is the same for all of them. In a frame with runs a row with only
    one body is a record.
    """

    supplier: str
    epoch: int
    sequence: int
    """Of the first."""
    source_ts: int
    format_id: bytes
    body: list[bytes] | bytes
    priority: int = 3
    station_seq: int | list[int] = 0
    """Of the first, when these count up too; else of each."""
    lifetime_ns: int | None = None
    correlation_id: str | None = None
    headers: dict[str, str] | None = None
    hops: int = 0
    kind: int = EVENT
    key: bytes | None = None

    def __len__(self) -> int:
        return 1 if isinstance(self.body, bytes) else len(self.body)

    def __iter__(self) -> Iterator[Record]:
        """One record per event; fewer when not every event has its own number in the station's order."""
        bodies = (self.body,) if isinstance(self.body, bytes) else self.body
        places = self.station_seq
        return map(
            Record,
            repeat(self.supplier),
            repeat(self.epoch),
            count(self.sequence),
            repeat(self.source_ts),
            repeat(self.format_id),
            bodies,
            repeat(self.priority),
            count(places) if isinstance(places, int) else places,
            repeat(self.lifetime_ns),
            repeat(self.correlation_id),
            repeat(self.headers),
            repeat(self.hops),
            repeat(self.kind),
            repeat(self.key),
        )


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


Row: TypeAlias = Record | RecordRun
StoredRows: TypeAlias = "Sequence[Record] | Sequence[RecordRun]"
Piece: TypeAlias = "tuple[int, int, StoredRows]"
"""Rows of one frame as they stand there: the offset of the first event, the time of all, and the rows."""


def are_records(rows: StoredRows) -> TypeIs[Sequence[Record]]:
    """Whether every row is one event; a frame has either records or runs, in which single events are too."""
    return not rows or isinstance(rows[0], Record)


def events_in(row: Row) -> int:
    """How many events a row is; a run has no more than it has numbers in the station's order."""
    if isinstance(row.body, bytes):
        return 1
    places = row.station_seq
    return len(row.body) if isinstance(places, int) else min(len(row.body), len(places))


def count_events(rows: StoredRows) -> int:
    return len(rows) if are_records(rows) else sum(map(events_in, rows))


def bytes_in(rows: StoredRows) -> int:
    """The bytes of all bodies."""
    return sum(len(row.body) if isinstance(row.body, bytes) else sum(map(len, row.body)) for row in rows)


def first_of(rows: StoredRows, events: int) -> StoredRows:
    """The rows of the first so many events."""
    if are_records(rows):
        return rows[:events]
    kept = []
    for run in rows:
        if events <= 0:
            break
        kept.append(_part_of(run, 0, events))
        events -= events_in(run)
    return kept


def without_first(rows: StoredRows, events: int) -> StoredRows:
    """The rows behind the first so many events."""
    if are_records(rows):
        return rows[events:]
    kept = []
    for run in rows:
        here = events_in(run)
        if events < here:
            kept.append(_part_of(run, events, here))
        events = max(0, events - here)
    return kept


def _part_of(run: RecordRun, first: int, end: int) -> RecordRun:
    """Some of the events of a run."""
    if isinstance(run.body, bytes) or (first == 0 and end >= len(run.body)):
        return run
    places = run.station_seq
    return msgspec.structs.replace(
        run,
        body=run.body[first:end],
        sequence=run.sequence + first,
        station_seq=places + first if isinstance(places, int) else places[first:end],
    )


def decode_large(rows: Iterable[Row]) -> list[Record]:
    """A record for every event."""
    records: list[Record] = []
    for row in rows:
        if isinstance(row, Record):
            records.append(row)
        else:
            records += row
    return records


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])
_run_decoder = msgspec.msgpack.Decoder(list[RecordRun])


def encode_rows(rows: Sequence[Record | RecordRun]) -> bytes:
    """The rows one behind the other, without the array around them: `rows_payload` joins many of these."""
    length = len(rows)
    if length == 1:
        return _encoder.encode(rows[0])
    data = _encoder.encode(rows)
    return data[1 if length < 16 else 3 if length < 65536 else 5 :]


def rows_payload(length: int, chunks: list[bytes]) -> bytes:
    """One msgpack array of all the rows in the chunks."""
    return b"".join((b"\xdd", length.to_bytes(4, "big"), *chunks))


def decode_rows(payload: bytes | memoryview) -> list[Record]:
    """The records of a payload without runs; raises msgspec.MsgspecError for anything else."""
    return _decoder.decode(payload)


def decode_runs(payload: bytes | memoryview) -> list[RecordRun]:
    """The rows of a payload that may have runs among them; raises msgspec.MsgspecError likewise."""
    return _run_decoder.decode(payload)
