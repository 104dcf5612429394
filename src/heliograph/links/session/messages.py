"""Messages between stations, and their encoding.

A frame is one byte that says its kind, and what belongs to it; numbers are little-endian:

    HELLO   "HELIO" u16 version, then msgpack `Hello`: the first frame on every connection, both ways
    DATA    u8 lane, u16 zero, u32 count, u64 first number, then runs: u8 form, u32 stream, u32 count,
            u32 size, msgpack
    STATE   msgpack `State`: what was sent and what has arrived, per lane: heartbeat and acknowledgement
    BYE     text: why the connection ends
    KNOCK   nothing: dial me; alone on a connection of its own

The records of stream 0 are messages (`Message`); those of other streams are events of one channel in one
format, as an `Announce` earlier on the same lane has said, in one of the forms of
`heliograph.links.session.wire_events`. Everything that is read is decoded into these types; what does not fit
raises BadFrame, which ends the connection and nothing else.
"""

from __future__ import annotations

import struct
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from heliograph.errors import BadFrame, LinkRefused
from heliograph.links.contract import LANES
from heliograph.links.session.remote_errors import Refusal  # noqa: TC001 - msgspec reads it at run time
from heliograph.model.event import Name  # noqa: TC001 - msgspec reads it at run time
from heliograph.model.history_epochs import Epochs  # noqa: TC001 - msgspec reads it at run time
from heliograph.qos.policies import Durability, QoS, Reliability, qos_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.links.contract import Buffer
    from heliograph.links.session.retransmission import Batch

VERSION: Final[int] = 6
OLDEST: Final[int] = 4
"""The versions of the protocol that this station speaks; two stations speak the newest that both do."""
MAGIC: Final = b"HELIO"
HELLO, DATA, STATE, BYE = 1, 2, 3, 4
MESSAGES: Final = 0
"""The stream whose records are messages."""
RECORDS, UNIFORM, PIECE = 0, 1, 2
"""The forms of a run; see `heliograph.links.session.wire_events`. A piece is a part of a run of one record
that is too large for a frame: u64 of the size of the whole, then bytes. Pieces of a whole follow one another
on their lane."""
MAX_EVENT: Final = 1 << 30
"""Bytes of the largest event that crosses a link."""
MAX_REASON: Final = 500

_GREETING: Final = struct.Struct("<B5sH")
_DATA: Final = struct.Struct("<BBHIQ")
RUNS_AT: Final = _DATA.size
"""Where the runs of a DATA frame begin."""
_RUN: Final = struct.Struct("<BIII")
_DATA_RUN: Final = struct.Struct("<BBHIQBIII")
"""A DATA frame up to the records of its first run."""
_WHOLE: Final = struct.Struct("<Q")

T = TypeVar("T")
encode: Final = msgspec.msgpack.Encoder().encode


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who is there. A session is what two stations keep of each other beyond one connection."""

    station: int
    name: str
    domain: str
    pid: int
    session: int
    """Of the sender, chosen when it began to keep anything about the other."""
    known_session: int
    """Of the receiver, as far as the sender knows; 0: none."""
    received: tuple[int, ...]
    """Up to which number each lane has arrived; counts only when the session goes on."""
    resumed: bool = False
    """In the answer to a hello: whether the session goes on where it was."""
    rings: bool = False
    """Whether the sender reads rings of this host, and broadcasts in one."""
    secret: bytes = b""
    """Of the sender; see `heliograph.links.transports.discovery`."""
    oldest: int = 0
    """The oldest version that the sender speaks; the newest stands before all this. 0: the newest alone."""
    streams: bool = False
    """Whether the sender takes events of this connection's network by stream, too; from version 5 on."""
    derives: bool = False
    """Whether the sender derives channels that others ask for; from version 6 on."""


class State(msgspec.Struct, array_like=True, frozen=True):
    """Heartbeat, acknowledgement and request to resend in one."""

    sent: tuple[int, ...]
    received: tuple[int, ...]
    missing: tuple[tuple[int, int, int], ...] = ()
    """Lane, first and last number of ranges to send again."""
    asks: bool = False
    """Whether the other station shall say at once what has arrived there."""
    stamp: int = 0
    """Of the sender's clock; see `heliograph.links.session.lifetimes`."""


class Want(msgspec.Struct, array_like=True, frozen=True):
    """One condition under which a station wants events of one type. Several are alternatives."""

    type: str
    format_id: bytes
    """How the consumers' class looks: where it differs, the source sends more and the receiver filters."""
    tree: Any = None
    """The condition as data; see `heliograph.links.interest.filter_wire`."""
    sources: tuple[str, ...] | None = None
    defaults: tuple[str, ...] = ()
    """Fields of that class that an event need not have, as dotted paths: by them the source knows whether its
    own events can be read there."""
    any_version: bool = False
    """Whether each event is wanted as it was pushed, whatever its format: no program there has the class."""


class Derived(msgspec.Struct, array_like=True, frozen=True):
    """What a derived channel is derived from, and how."""

    data: Any
    """See `heliograph.links.interest.derivation_wire`."""
    asked: bool
    """Whether a program of the station that says so has asked for it: else it was asked by other stations."""


class ChannelState(msgspec.Struct, array_like=True, frozen=True, tag="channel"):
    """A channel as one station has it; replaces what was said of it before."""

    name: str
    formats: tuple[bytes, ...]
    reliability: Reliability
    durability: Durability
    consumers: int
    wants: tuple[Want, ...]
    keeper: str | None = None
    """The partition that this station keeps of the channel's history."""
    acks: bool = False
    """Whether its receivers acknowledge, and its pushes wait for others to."""
    watermark: int = 0
    """Of that partition, at the moment when this was said."""
    policies: dict[str, str | int | float | None] | None = None
    """Of a keeper: the policies of the channel that are not the default; see
    `heliograph.qos.policies.policies_of`."""
    groups: tuple[str, ...] = ()
    """Of a channel without a journal: groups of receivers, which are this station's own."""
    relayed: bool = False
    """Of a band worker, to the station that supervises it: it gets what others push by way of that one."""
    epochs: Epochs = ()
    """Of that partition: which writers wrote it."""
    suspended: str | None = None
    """Of a keeper with a manager: the owner who has suspended the channel."""
    discovered: bool = False
    """Whether it is open only because others have it and a pattern of names fits it."""
    answerers: int = 0
    """Functions that answer questions of the channel."""
    offered_state: int = 0
    """The number of what it offers as the state of its suppliers; 0: nothing."""
    derived: Derived | None = None
    """Of a derived channel."""
    admitted: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Of a keeper with a manager, where a channel is for members only: suppliers and groups that may."""
    parameters: int = 0
    """How many parameters are declared there."""

    def kept_as(self) -> QoS:
        """How its keeper has it; InvalidQoS when this program knows no such quality of service."""
        return qos_of(self.policies or {"durability": self.durability})

    @property
    def qos(self) -> QoS:
        """What its consumers ask for, as far as it has to go together with what others offer."""
        return QoS(reliability=self.reliability, durability=self.durability)


class ChannelGone(msgspec.Struct, array_like=True, frozen=True, tag="gone"):
    name: str


class FormatNote(msgspec.Struct, array_like=True, frozen=True, tag="format"):
    """The description of a format, once per link and before anything that names its id."""

    id: bytes
    description: bytes


class Announce(msgspec.Struct, array_like=True, frozen=True, tag="stream"):
    """From here on, this stream on this lane carries events of a channel in a format."""

    stream: int
    channel: str
    format_id: bytes
    description: bytes


class Flow(msgspec.Struct, array_like=True, frozen=True, tag="flow"):
    """Stop or go on sending the events of a channel: a consumer's queue is full."""

    channel: str
    paused: bool


class Acked(msgspec.Struct, array_like=True, frozen=True, tag="acked"):
    """All receivers of the station that says so have acknowledged these events of a channel."""

    channel: str
    events: tuple[tuple[str, int, int], ...]


class RingOffer(msgspec.Struct, array_like=True, frozen=True, tag="ring"):
    """The ring in which the station that says so broadcasts; see `heliograph.links.broadcast.publisher`."""

    lane: Annotated[int, Meta(ge=0, le=99)]
    incarnation: int


class RingAnswer(msgspec.Struct, array_like=True, frozen=True, tag="ring-answer"):
    """Whether the ring that was offered is read; if not, why."""

    lane: int
    reads: bool
    reason: str = ""
    row: int = -1
    """The reader's place in the ring: there its writer sees whether it stands still."""


class RingGap(msgspec.Struct, array_like=True, frozen=True, tag="ring-gap"):
    """The sender fell behind in a best-effort ring: let it hear again what it takes, and from where on."""

    lane: int


class Missed(msgspec.Struct, array_like=True, frozen=True, tag="missed"):
    """How many events of each channel the other station did not get, for it stood still; of all sessions."""

    events: dict[Name, int]


Events: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]


class SessionNote(msgspec.Struct, array_like=True, frozen=True, tag="session"):
    """How the station that says so calls its events of this session: the first message of each."""

    session: int


class Taken(msgspec.Struct, array_like=True, frozen=True, tag="taken"):
    """What the station that says so has done with events of one session: all sums from its beginning on."""

    session: int
    """As the station named it that sent the events: see `SessionNote`."""
    events: dict[Name, tuple[Events, Events]]
    """By channel: those that were put into the queues of receivers, and those that nobody there will get."""


class Takes(msgspec.Struct, array_like=True, frozen=True, tag="takes"):
    """Said in a ring: from here on the events of a channel are for one of its readers too, or no more."""

    station: int
    channel: Name
    takes: bool
    sent: int = 0
    """Events of the channel that stand in the ring before this, from its beginning on."""
    row: int = -1
    """Of the reader. A station that has begun anew may have another, which still reads what was before."""


class StreamLost(msgspec.Struct, array_like=True, frozen=True, tag="stream-lost"):
    """The station that says so did not get these events of a stream, and was told that they are gone."""

    number: int
    lane: Annotated[int, Meta(ge=0, lt=LANES)]
    first: Events
    last: Events


LaneNumbers: TypeAlias = Annotated[tuple[Events, ...], Meta(min_length=LANES, max_length=LANES)]
"""A number of an event for each lane."""


class StreamBegin(msgspec.Struct, array_like=True, frozen=True, tag="stream-begin"):
    """From here on the events of a stream are for the station that is told so."""

    number: Annotated[int, Meta(ge=1, lt=1 << 32)]
    channel: Name
    derivation: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    since: LaneNumbers
    """Those behind these numbers are."""
    after: int = 0
    """The stream that ends for it, whose events come first; 0: none."""


class StreamEnd(msgspec.Struct, array_like=True, frozen=True, tag="stream-end"):
    """Those behind these numbers are not for the station any more."""

    number: int
    until: LaneNumbers


class StreamAck(msgspec.Struct, array_like=True, frozen=True, tag="stream-ack"):
    """All up to these numbers of a stream is handed on, or known to be lost."""

    number: int
    received: LaneNumbers


class Ask(msgspec.Struct, array_like=True, frozen=True, tag="ask"):
    """A question; `topic` says who answers it."""

    id: int
    topic: str
    body: msgspec.Raw


class Answer(msgspec.Struct, array_like=True, frozen=True, tag="answer"):
    """What became of a question: the body, or why there is none."""

    id: int
    body: msgspec.Raw
    problem: str | None = None
    refusal: Refusal | None = None
    """The problem as an error that both stations know."""


Message: TypeAlias = (
    ChannelState
    | ChannelGone
    | FormatNote
    | Announce
    | Flow
    | Acked
    | RingOffer
    | RingAnswer
    | Missed
    | SessionNote
    | Taken
    | RingGap
    | Takes
    | StreamBegin
    | StreamEnd
    | StreamAck
    | StreamLost
    | Ask
    | Answer
)

_read_hello: Final = msgspec.msgpack.Decoder(Hello).decode
_read_state: Final = msgspec.msgpack.Decoder(State).decode
_read_messages: Final = msgspec.msgpack.Decoder(list[Message]).decode


class Run(msgspec.Struct, frozen=True, gc=False):
    """Consecutive records of one stream."""

    form: int
    stream: int
    length: int
    """How many records."""
    records: Any
    """Bytes: a msgpack value."""


def hello_frame(hello: Hello) -> bytes:
    return _GREETING.pack(HELLO, MAGIC, VERSION) + encode(hello)


def read_hello(frame: memoryview, peer: str) -> Hello:
    """Raises LinkRefused when no version is spoken by both, BadFrame when the other is no station."""
    if len(frame) < _GREETING.size:
        raise BadFrame(peer, "is no station of Heliograph: its greeting is too short")
    kind, magic, version = _GREETING.unpack_from(frame)
    if kind != HELLO or magic != MAGIC:
        raise BadFrame(peer, "is no station of Heliograph: it does not say hello")
    if version < OLDEST:  # what else it says is of that version
        raise LinkRefused(peer, _no_common_version(version, version))
    hello = decoded(_read_hello, frame[_GREETING.size :], peer)
    if (hello.oldest or version) > VERSION:
        raise LinkRefused(peer, _no_common_version(hello.oldest or version, version))
    if len(hello.received) != LANES or not hello.station:
        raise BadFrame(peer, f"its greeting does not speak of {LANES} lanes")
    return hello


def _no_common_version(oldest: int, newest: int) -> str:
    theirs = f"version {newest}" if oldest == newest else f"versions {oldest} to {newest}"
    own = f"{VERSION}" if OLDEST == VERSION else f"{OLDEST} to {VERSION}"
    return f"speaks {theirs} of the link protocol, this station {own}"


def state_frame(state: State) -> bytes:
    return bytes((STATE,)) + encode(state)


def read_state(frame: memoryview, peer: str) -> State:
    state = decoded(_read_state, frame[1:], peer)
    lanes_ok = all(0 <= lane < LANES for lane, _, _ in state.missing)
    if len(state.sent) != LANES or len(state.received) != LANES or not lanes_ok:
        raise BadFrame(peer, f"its state does not speak of {LANES} lanes")
    return state


def bye_frame(reason: str) -> bytes:
    return bytes((BYE,)) + reason[:MAX_REASON].encode()


def read_bye(frame: memoryview) -> str:
    return bytes(frame[1 : 1 + 4 * MAX_REASON]).decode(errors="replace")[:MAX_REASON]


def run_bytes(form: int, stream: int, count: int, records: bytes) -> bytes:
    return _RUN.pack(form, stream, count, len(records)) + records


def pieces(stream: int, records: bytes, most: int) -> list[bytes]:
    """A run of one record as payloads of frames that hold up to `most` bytes of it."""
    whole = _WHOLE.pack(len(records))
    view = memoryview(records)
    starts = range(0, len(records), most)
    return [run_bytes(PIECE, stream, 1, whole + view[start : start + most]) for start in starts]


def piece_sizes(run: Run) -> tuple[int, int]:
    """The bytes of the whole event, and those of a piece of it."""
    return _WHOLE.unpack_from(run.records)[0], len(run.records) - _WHOLE.size


class Pieces:
    """Puts the pieces of one lane together again."""

    def __init__(self) -> None:
        self.parts: list[memoryview] = []
        """What is here of an event that is not complete."""
        self.to_skip: float = 0
        """Bytes that are still to come of an event that was left out, unless other events come before."""
        self._stream = 0
        self._whole = 0
        self._size = 0

    def add(self, run: Run, peer: str) -> Run | None:
        """The run of one record that this piece was the last of, or None."""
        if len(run.records) <= _WHOLE.size or run.length != 1:
            raise BadFrame(peer, "a piece of an event is cut short")
        (whole,) = _WHOLE.unpack_from(run.records)
        part = run.records[_WHOLE.size :]
        if self.to_skip:
            self.to_skip = max(0, self.to_skip - len(part))
            return None
        if not self.parts:
            self._stream, self._whole, self._size = run.stream, whole, 0
        size = self._size + len(part)
        if (run.stream, whole) != (self._stream, self._whole) or size > whole or whole > MAX_EVENT:
            raise BadFrame(peer, f"a piece of an event of {whole} bytes that does not fit to those before it")
        if size < whole:
            self.parts.append(part)
            self._size = size
            return None
        return Run(RECORDS, run.stream, 1, memoryview(b"".join((*self.parts, part))))

    def clear(self) -> None:
        """The event has been handed on. Not before: if that fails, its last piece comes again."""
        self.parts.clear()

    def leave_out(self, run: Run | None) -> None:
        """Give up the event that this is a piece of, and with it the pieces that are still to come.

        None: a frame that could not be read. Then nobody knows how many come, and it is all of them.
        """
        self.to_skip = inf if run is None else 0
        if run is not None and run.form == PIECE and len(run.records) > _WHOLE.size:
            (whole,) = _WHOLE.unpack_from(run.records)
            left = self._whole - self._size if self.parts else whole
            self.to_skip = max(0, left - len(run.records) + _WHOLE.size)
        self.parts.clear()


def data_payload(runs: Sequence[Run]) -> bytes:
    """The runs of a DATA frame."""
    return b"".join([run_bytes(run.form, run.stream, run.length, run.records) for run in runs])


def data_frame(lane: int, batch: Batch[bytes]) -> list[Buffer]:
    return [_DATA.pack(DATA, lane, 0, batch.count, batch.first), batch.payload]


def record_frame(lane: int, number: int, stream: int, record: bytes) -> bytes:
    """A DATA frame of one event; `record` is a run of it alone."""
    return _DATA_RUN.pack(DATA, lane, 0, 1, number, RECORDS, stream, 1, len(record)) + record


def read_data(frame: memoryview, peer: str) -> tuple[int, int, int, Run | None]:
    """Lane, first number and count of a DATA frame, and its run if there is just one.

    Where there are more, `read_runs` reads them, from `RUNS_AT` on.
    """
    size = len(frame)
    if size < _DATA_RUN.size:
        raise BadFrame(peer, "a data frame is cut short")
    _, lane, zero, count, first, form, stream, length, run_size = _DATA_RUN.unpack_from(frame)
    if lane >= LANES or zero or not count or not first:
        raise BadFrame(peer, f"a data frame for lane {lane}, record {first} and {count} records")
    if length == count and form <= PIECE and run_size == size - _DATA_RUN.size:
        return lane, first, count, Run(form, stream, length, frame[_DATA_RUN.size :])
    return lane, first, count, None


def read_run(record: memoryview, peer: str) -> Run:
    """The run that a record of a ring is."""
    if len(record) < _RUN.size:
        raise BadFrame(peer, "a run of records is cut short")
    form, stream, length, size = _RUN.unpack_from(record)
    if form > PIECE or size != len(record) - _RUN.size:
        raise BadFrame(peer, f"a run of the form {form} and {size} bytes in {len(record)}")
    return Run(form, stream, length, record[_RUN.size :])


def read_runs(payload: memoryview, count: int, peer: str) -> list[Run]:
    """The runs of a DATA frame, which have so many records together."""
    runs: list[Run] = []
    place, end, left = 0, len(payload), count
    while place < end:
        if end - place < _RUN.size:
            raise BadFrame(peer, "a run of records is cut short")
        form, stream, length, size = _RUN.unpack_from(payload, place)
        place += _RUN.size
        if size > end - place:
            raise BadFrame(peer, f"a run of {size} bytes in a frame with {end - place} left")
        if form > PIECE:
            raise BadFrame(peer, f"a run of the form {form}")
        runs.append(Run(form, stream, length, payload[place : place + size]))
        place += size
        left -= length
    if left:
        raise BadFrame(peer, f"a frame of {count} records has runs of another sum")
    return runs


def array_of(encoded: Sequence[bytes]) -> bytes:
    """A msgpack array of values that are msgpack already."""
    return b"\xdd" + len(encoded).to_bytes(4, "big") + b"".join(encoded)


def count_records(records: memoryview, peer: str) -> int:
    """How many records a run says it has."""
    first = records[0] if records else 0
    if 0x90 <= first <= 0x9F:
        return first & 0x0F
    if first == 0xDC and len(records) >= 3:
        return int.from_bytes(records[1:3], "big")
    if first == 0xDD and len(records) >= 5:
        return int.from_bytes(records[1:5], "big")
    raise BadFrame(peer, "a run of records that is no array")


def read_messages(run: Run, peer: str) -> list[Message]:
    told = decoded(_read_messages, run.records, peer)
    if len(told) != run.length:
        raise BadFrame(peer, f"a run of {run.length} messages has {len(told)}")
    return told


def decoded(decode: Callable[[Any], T], data: Buffer, peer: str) -> T:
    """What a decoder makes of bytes from outside; BadFrame when it refuses them."""
    try:
        return decode(data)
    except (ValueError, RecursionError) as error:
        raise BadFrame(peer, f"cannot be understood: {error}") from None
