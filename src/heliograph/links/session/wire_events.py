"""Events as bytes on a link: batches of one format, encoded here and decoded into this station's classes.

A run is consecutive events of one channel in one format, in one of two forms:

    RECORDS   [[body, header, stamp], ...]   each event with its own header; the stamp is 0, or when the
              lifetime was measured that the header says is left (`heliograph.links.session.lifetimes`)
    UNIFORM   what the headers share once, then what differs in columns, then the bodies

Most of a header is the same for all events that one supplier pushes, so a long run is written as UNIFORM: a
quarter of the bytes, and made and read several times faster. Where a header says something of its own the
run is written as RECORDS.

The receiver makes right: a stream says once in which format its events come, and a reader made for that
format and this station's class turns them into events, whole runs at a time where the two are the same. Of a
header it believes nothing that it can know by itself: channel and type are the stream's, the key is taken
from the event, and the number of links crossed is counted here.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from itertools import count, repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from heliograph.channel.batch import IncomingBatch
from heliograph.channel.publish.fast_path import ROW
from heliograph.codec import decoder, encoder
from heliograph.codec.packed import format_holds
from heliograph.errors import BadFrame, DecodeError, FormatError, HeliographError
from heliograph.links.broadcast.large_events import LARGE, encode_large
from heliograph.links.session.lifetimes import own_deadline
from heliograph.links.session.messages import RECORDS, UNIFORM, Run, count_records, decoded, encode
from heliograph.model import field_types as ft
from heliograph.model.compatibility import defaults_of
from heliograph.model.event import Count, Event, Header, Instant, Name, Priority, UserHeaders, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.session.lifetimes import DeadlineOf
    from heliograph.model.formats import Format
    from heliograph.qos.policies import Missing
    from heliograph.runtime.ports import Buffer, Clock

log = logging.getLogger(__name__)

UNIFORM_FROM: Final = 4
"""Events from which on a run is written in columns: for fewer, making them costs more than it saves."""
SHARED: Final = 256
"""Encoded bodies that are remembered for other links."""

B = TypeVar("B")
Said: TypeAlias = "tuple[str, int, int, int, int, int, str | None, Mapping[str, str] | None]"
"""Supplier, epoch, sequence, source_ts, priority, station_seq, correlation_id, headers."""
Lone: TypeAlias = "tuple[Any, str, int, int, int, int, int, str | None, Mapping[str, str] | None]"
"""An event, and what is said of it."""
said_of: Final[Callable[[Header], Said]] = attrgetter(
    "supplier", "epoch", "sequence", "source_ts", "priority", "station_seq", "correlation_id", "headers"
)
_deadline: Final = itemgetter(2)
_set: Final = msgspec.structs.force_setattr
_split: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_SAID: Final = (Name, Count, Count, Instant, Priority, Count, Name | None, UserHeaders | None)
_read_said: Final = msgspec.msgpack.Decoder(tuple[_SAID]).decode  # type: ignore[valid-type]  # made here


class Uniform(msgspec.Struct, Generic[B], array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A run of one supplier, in columns. A number in place of a column: see each."""

    supplier: Name
    epoch: Count
    priority: Priority
    hops: Annotated[int, Meta(ge=0, le=254)]
    partition: Name | None
    sequences: Count | list[Count]
    """A number: the first one, the others follow it."""
    station_seqs: Count | list[Count]
    """Likewise."""
    source_ts: Instant | list[Instant]
    """A number: all of them."""
    append_ts: Instant | list[Instant] | None
    """Likewise."""
    offsets: Count | list[Count] | None
    """A number: the first one, the others follow it."""
    bodies: list[B]


class EventWriter:
    """Turns events into runs. One per station, so that links share what is encoded one by one."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._plain: dict[type[Event], bool] = {}
        self._shared: dict[int, tuple[Event, bytes]] = {}
        self.links = 0
        """How many links there are: with one, nothing is remembered."""

    def run(self, cls: type[Event], items: Sequence[Item]) -> tuple[int, bytes]:
        """Events of one class as a form and its bytes."""
        plain = self.is_plain(cls)
        if len(items) >= UNIFORM_FROM and _is_uniform(items, info_of(cls).format.id):
            return UNIFORM, self._uniform(cls, items, plain=plain)
        if plain and not any(map(_deadline, items)):
            return RECORDS, encode(items)
        return RECORDS, encode([self._record(cls, item, plain=plain) for item in items])

    def bulk(self, cls: type[Event], bulk: OutgoingBatch) -> bytes:
        """Events that were pushed together, without a lifespan, as the bytes of a run of the form UNIFORM."""
        first = bulk.first
        bodies: Sequence[Any] = bulk.events
        if not self.is_plain(cls):
            bodies = [self._body(cls, event) for event in bodies]
        sequences = first.sequence if bulk.sequences is None else bulk.sequences
        places = _counted_up(bulk.places)
        shared = (first.supplier, first.epoch, first.priority, first.hops, None)
        return encode((*shared, sequences, places, first.source_ts, None, None, bodies))

    def record(self, item: Item) -> bytes:
        """One event that has no lifespan, as the bytes of a run of the form RECORDS."""
        cls = item[0].__class__
        if self._plain.get(cls):
            return encode((item,))
        return self.run(cls, (item,))[1]

    def lone(self, head: bytes, stream: int, event: Event, said: Said) -> list[Buffer]:
        """The record of one event without lifespan or place in a history, in parts that copy no array.

        Args:
            head: how it begins, unless it is large.
            stream: the event's.
            event: that is alone.
            said: of it, by what its stream does not say.
        """
        cls = event.__class__
        if self._plain.get(cls) or self.is_plain(cls):
            return [head, encode((event, *said))]
        body = encoder(cls).encode_parts(event)
        if sum(map(len, body)) < LARGE:
            return [head, encode((b"".join(body), *said))]
        return encode_large(stream, encode(said), body)

    def is_large(self, event: Event) -> bool:
        """Whether arrays make it so large that it is a record of its own."""
        cls = event.__class__
        try:
            return not self.is_plain(cls) and sum(map(len, encoder(cls).encode_parts(event))) >= LARGE
        except Exception:  # noqa: BLE001 - it was changed after it was pushed; who writes it says so
            return False

    def rows(self, supplier: str, epoch: int, priority: int, rows: list[Any]) -> bytes:
        """Events of one class that have no headers yet, as the bytes of a run of the form UNIFORM."""
        bodies, times = rows[0::ROW], rows[2::ROW]
        cls: type[Event] = bodies[0].__class__
        if not self.is_plain(cls):
            bodies = [self._body(cls, event) for event in bodies]
        _, sequence, _, place = rows[:ROW]
        _, last_sequence, _, last_place = rows[-ROW:]
        # They only ever go up, so between such ends all are there.
        steps = len(bodies) - 1
        sequences = sequence if last_sequence - sequence == steps else rows[1::ROW]
        places = place if last_place - place == steps else rows[3::ROW]
        return encode((supplier, epoch, priority, 0, None, sequences, places, times, None, None, bodies))

    def _uniform(self, cls: type[Event], items: Sequence[Item], *, plain: bool) -> bytes:
        headers = [item[1] for item in items]
        first = headers[0]
        journalled = first.partition is not None
        bodies = [item[0] if plain else self._body(cls, item[0]) for item in items]
        return encode(
            (
                first.supplier,
                first.epoch,
                first.priority,
                first.hops,
                first.partition,
                _counted([header.sequence for header in headers]),
                _counted([header.station_seq for header in headers]),
                _same([header.source_ts for header in headers]),
                _same([header.append_ts for header in headers]) if journalled else None,
                _counted([header.offset for header in headers]) if journalled else None,
                bodies,
            )
        )

    def _record(self, cls: type[Event], item: Item, *, plain: bool) -> tuple[Any, Header, int]:
        event, header, deadline = item
        stamp = 0
        if deadline:
            stamp = max(1, self.clock.monotonic_ns())
            header = msgspec.structs.replace(header, lifetime_ns=max(0, deadline - stamp))
        return (event if plain else self._body(cls, event), header, stamp)

    def _body(self, cls: type[Event], event: Event) -> bytes:
        """The body of an event that msgspec alone cannot write; made once, however many links it crosses."""
        if self.links < 2:
            return encoder(cls).encode(event)
        known = self._shared.get(id(event))
        # An id may come again once its event is gone, so the event itself is kept and compared.
        if known is not None and known[0] is event:
            return known[1]
        body = encoder(cls).encode(event)
        if len(self._shared) >= SHARED:
            self._shared.clear()
        self._shared[id(event)] = (event, body)
        return body

    def is_plain(self, cls: type[Event]) -> bool:
        """Whether an event of a class is one msgpack value, which can stand among others as it is."""
        plain = self._plain.get(cls)
        if plain is None:
            plain = self._plain[cls] = is_plain(info_of(cls).format)
        return plain


def is_plain(fmt: Format) -> bool:
    """Whether bodies of this format are one msgpack value, which can stand among others as it is."""
    return fmt.body == "packed" and not format_holds(fmt, ft.Array)


def _is_uniform(items: Sequence[Item], format_id: bytes) -> bool:
    """Whether only columns of a run differ, and nothing says anything of its own."""
    first = items[0][1]
    supplier, epoch, priority, hops, partition = (
        first.supplier,
        first.epoch,
        first.priority,
        first.hops,
        first.partition,
    )
    if first.format_id != format_id or hops == 255:
        return False
    kept = partition is not None  # then each has an offset and an instant; else none has
    for _, header, deadline in items:
        if (
            header.supplier != supplier
            or header.correlation_id is not None
            or header.headers is not None
            or deadline
            or header.epoch != epoch
            or header.priority != priority
            or header.partition != partition
            or (header.offset is None) is kept
            or (header.append_ts is None) is kept
            or header.hops != hops
            or header.redelivered
            or header.lifetime_ns is not None
            or header.format_id != format_id
        ):
            return False
    return True


def _counted(numbers: list[Any]) -> Any:
    """The first number when the others follow it one by one, else all."""
    first = numbers[0]
    return first if numbers == list(range(first, first + len(numbers))) else numbers


def _counted_up(numbers: Sequence[int]) -> Any:
    """The same for numbers that only go up: between such ends all are there."""
    return numbers[0] if numbers[-1] - numbers[0] == len(numbers) - 1 else numbers


def _same(times: list[Any]) -> Any:
    """The time that all have, or all."""
    first = times[0]
    return first if times.count(first) == len(times) else times


class Refused(NamedTuple):
    """An event that cannot be one of this station's class, and why."""

    header: Header
    error: HeliographError


class WireEventReader:
    """Reads the events of one channel in one wire format.

    Args:
        channel: its name.
        wire: the format.
        unreadable: where to count, by channel, events that do not fit this station's class though their
            format does.
        deadline_of: turns what is left of a lifetime into an instant of this station's clock.
    """

    def __init__(
        self,
        channel: str,
        wire: Format,
        unreadable: Counter[str] | None = None,
        deadline_of: DeadlineOf = own_deadline,
    ) -> None:
        self.channel = channel
        self.wire = wire
        self.undecodable = 0
        self.refused: list[Refused] = []
        """Those of the last run that do not fit this station's class."""
        self.misfit: FormatError | None = None
        """Why no event of the format can be read here, though the channel carries its type."""
        self._unreadable = Counter[str]() if unreadable is None else unreadable
        self._deadline_of = deadline_of
        self._cls: type[Event] | None = None
        self.prepared_for: tuple[type[Event], ...] | None = None
        """The types of the channel that events are read for."""
        self._missing: Missing = "default"
        self._read_records: Callable[[Any], list[Any]] = _split
        self._read_record: Callable[[Any], Any] = _split
        self._decode_body: Callable[[Any], Any] = _split
        self._read_uniform: Callable[[Any], Uniform[Any]] = _uniform_of_raw
        self._read_lone: Callable[[Any], Lone] = _split  # type: ignore[assignment]  # until there is a class
        self._convert: Callable[[Any], Any] | None = None
        self._key_of: Callable[[Any], tuple[Any, ...]] = _no_key

    @property
    def cls(self) -> type[Event] | None:
        """What its events become here; None: nothing."""
        return self._cls

    def read(
        self,
        run: Run,
        types: tuple[type[Event], ...],
        peer: str,
        skip: int = 0,
        missing: Missing = "default",
    ) -> Sequence[Item]:
        """The events of a run, but for the first ones, as events of this station's class.

        Those that cannot be are counted, and named in `refused`.
        """
        if self.refused:
            self.refused = []
        if types != self.prepared_for or missing != self._missing:
            self._missing = missing
            self._prepare(types)
        if run.form == UNIFORM:
            return self._from_uniform(run, peer, skip)
        return self._from_records(run, peer, skip)

    def lone_reader(
        self, types: tuple[type[Event], ...], missing: Missing
    ) -> Callable[[bytes | memoryview], Lone] | None:
        """What reads what `EventWriter.lone` wrote; None where it cannot be an event of these types.

        It raises ValueError, RecursionError or DecodeError for one that does not fit: see `left_out`.
        """
        if types != self.prepared_for or missing != self._missing:
            self._missing = missing
            self._prepare(types)
        read, convert = self._read_lone, self._convert
        if self._cls is None or convert is None:
            return None if self._cls is None else read

        def read_and_convert(data: bytes | memoryview) -> Lone:
            body, *said = read(data)
            return (convert(body), *said)

        return read_and_convert

    def apart_reader(
        self, types: tuple[type[Event], ...], missing: Missing
    ) -> Callable[[bytes | memoryview, bytes | memoryview], Lone] | None:
        """As `lone_reader`, of what `EventWriter.lone` wrote of a large event: what is said, and its body.

        Arrays are views of the body.
        """
        if types != self.prepared_for or missing != self._missing:
            self._missing = missing
            self._prepare(types)
        if self._cls is None:
            return None
        decode = decoder(self.wire, self._cls, missing)
        return lambda said, body: (decode(body), *_read_said(said))

    def header_of(self, lone: Lone) -> Header:
        """The header of a lone event."""
        event, supplier, epoch, sequence, source_ts, priority, station_seq, correlation_id, headers = lone
        return Header(
            self.channel,
            self.wire.name,
            supplier,
            epoch,
            sequence,
            source_ts,
            self.wire.id,
            priority,
            self._key_of(event),
            station_seq,
            None,
            None,
            None,
            None,
            1,
            correlation_id,
            headers,
        )

    # Records

    def _from_records(self, run: Run, peer: str, skip: int) -> list[Item]:
        if count_records(run.records, peer) != run.length:
            raise BadFrame(peer, f"a run of {run.length} events has another number of them")
        if self._cls is None:
            self.undecodable += run.length - skip
            if self.misfit is not None:
                self._refuse_each(run.records, peer, skip, self.misfit)
            return []
        convert = self._convert
        try:
            found = self._read_records(run.records)
            if skip:
                found = found[skip:]
            items = (
                found
                if convert is None
                else [(convert(body), header, stamp) for body, header, stamp in found]
            )
        except (ValueError, RecursionError, DecodeError):
            items = self._read_each(run.records, peer, skip)
        is_mortal = False
        for event, header, stamp in items:
            if header.channel != self.channel or header.type != self.wire.name or header.hops == 255:
                raise BadFrame(peer, f"an event of {header.type[:40]!r} in a stream of {self.wire.name!r}")
            _set(header, "hops", header.hops + 1)
            key = self._key_of(event)
            if header.key != key:
                _set(header, "key", key)
            if stamp:
                is_mortal = True
        return list(map(self._with_deadline, items)) if is_mortal else items

    def _with_deadline(self, item: Item) -> Item:
        event, header, stamp = item
        return (event, header, self._deadline_of(header.lifetime_ns or 0, stamp)) if stamp else item

    def _read_each(self, records: memoryview, peer: str, skip: int) -> list[Item]:
        """One by one, so that one event that does not fit this station's class costs no other."""
        items: list[Item] = []
        for raw in decoded(_split, records, peer)[skip:]:
            try:
                body, header, stamp = self._read_record(raw)
                items.append((body if self._convert is None else self._convert(body), header, stamp))
            except (ValueError, RecursionError, DecodeError) as error:
                self.left_out(error)
                self._refuse(raw, named(error))
        return items

    def _refuse_each(self, records: memoryview, peer: str, skip: int, error: HeliographError) -> None:
        for raw in decoded(_split, records, peer)[skip:]:
            self._refuse(raw, error)

    def _refuse(self, raw: msgspec.Raw, error: HeliographError) -> None:
        with suppress(ValueError, RecursionError):  # else it has no name either
            self.refused.append(Refused(_record_of_raw(raw)[1], error))

    # Columns

    def _from_uniform(self, run: Run, peer: str, skip: int) -> Sequence[Item]:
        convert = self._convert
        whole = not skip
        try:
            uniform = self._read_uniform(run.records)
            events: list[Any] = uniform.bodies if convert is None else list(map(convert, uniform.bodies))
        except (ValueError, RecursionError, DecodeError):
            whole = False
            uniform = decoded(_uniform_of_raw, run.records, peer)
            events = [
                None if place < skip else self._read_body(body) for place, body in enumerate(uniform.bodies)
            ]
        _check_lengths(uniform, run.length, peer)
        if self._cls is None:
            self.undecodable += run.length - skip
            if self.misfit is not None:
                headers = list(self._headers(uniform, run.length))[skip:]
                self.refused = [Refused(header, self.misfit) for header in headers]
            return []
        if not whole:
            items: list[Any] = self._items(uniform, events)[skip:]
            is_bad = [isinstance(event, HeliographError) for event, _, _ in items]
            self.refused = [Refused(item[1], item[0]) for item, bad in zip(items, is_bad, strict=True) if bad]
            return [item for item, bad in zip(items, is_bad, strict=True) if not bad]
        return IncomingBatch(events, self._first_header(uniform), lambda: self._items(uniform, events))

    def _items(self, uniform: Uniform[Any], events: list[Any]) -> list[Item]:
        items: list[Any] = list(zip(events, self._headers(uniform, len(events)), repeat(0)))
        if self._key_of is not _no_key:
            for event, header, _ in items:
                if isinstance(event, Event):
                    _set(header, "key", self._key_of(event))
        return items

    def _first_header(self, uniform: Uniform[Any]) -> Header:
        """As the first of `_headers`, in a third of the time: most runs need no other."""
        return Header(
            self.channel,
            self.wire.name,
            uniform.supplier,
            uniform.epoch,
            _first(uniform.sequences),
            _first(uniform.source_ts),
            self.wire.id,
            uniform.priority,
            (),
            _first(uniform.station_seqs),
            _first(uniform.append_ts),
            uniform.partition,
            _first(uniform.offsets),
            None,
            uniform.hops + 1,
        )

    def _headers(self, uniform: Uniform[Any], length: int) -> Iterator[Header]:
        return map(
            Header,
            repeat(self.channel, length),
            repeat(self.wire.name),
            repeat(uniform.supplier),
            repeat(uniform.epoch),
            _counting(uniform.sequences),
            _repeated(uniform.source_ts),
            repeat(self.wire.id),
            repeat(uniform.priority),
            repeat(()),
            _counting(uniform.station_seqs),
            _repeated(uniform.append_ts),
            repeat(uniform.partition),
            repeat(None) if uniform.offsets is None else _counting(uniform.offsets),
            repeat(None),
            repeat(uniform.hops + 1),
        )

    # For a class

    def _prepare(self, types: tuple[type[Event], ...]) -> None:
        self.prepared_for = types
        self.misfit = None
        self._cls = class_here(self.wire, types)
        self._convert, self._read_uniform, self._key_of = None, _uniform_of_raw, _no_key
        if self._cls is None:
            return
        body: Any = msgspec.Raw if is_plain(self.wire) else bytes
        try:
            if _reads_at_once(self._cls, self.wire):
                body = self._cls
            else:
                convert = decoder(self.wire, self._cls, self._missing)
                # A body among others is msgspec's own piece of the buffer; decoders take plain ones.
                self._convert = convert if body is bytes else lambda raw: convert(memoryview(raw))
        except FormatError as error:
            log.error("events of %s cannot be read on channel %s: %s", self.wire, self.channel, error)  # noqa: TRY400 - the sentence says all
            self._cls, self.misfit = None, error
            return
        record: Any = tuple[body, Header, int]
        self._read_records = msgspec.msgpack.Decoder(list[record]).decode
        self._read_record = msgspec.msgpack.Decoder(record).decode
        self._read_uniform = msgspec.msgpack.Decoder(Uniform[body]).decode
        self._read_lone = msgspec.msgpack.Decoder(tuple[body, *_SAID]).decode  # type: ignore[valid-type]  # made here
        self._decode_body = msgspec.msgpack.Decoder(body).decode
        self._key_of = _key_function(info_of(self._cls).key)

    def _read_body(self, raw: msgspec.Raw) -> Event | HeliographError:
        """One body of a run in which some do not fit; the error when it is this one."""
        try:
            body = self._decode_body(raw)
            event: Event = body if self._convert is None else self._convert(body)
        except (ValueError, RecursionError, DecodeError) as error:
            self.left_out(error)
            return named(error)
        return event

    def left_out(self, error: Exception) -> None:
        """Count an event that cannot be one here; the first is logged."""
        if not self.undecodable:
            log.error("an event of %s on channel %s is left out: %s", self.wire, self.channel, error)
        self.undecodable += 1
        self._unreadable[self.channel] += 1


_record_of_raw: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, Header, int]).decode
_uniform_of_raw: Final = msgspec.msgpack.Decoder(Uniform[msgspec.Raw]).decode


def class_here(wire: Format, types: tuple[type[Event], ...]) -> type[Event] | None:
    """What events of a format become where a channel carries these types; None: nothing.

    Where no program has the class, each version is a class of its own, so that no field is lost.
    """
    versions = [cls for cls in types if info_of(cls).name == wire.name]
    for cls in versions:
        if info_of(cls).format.id == wire.id:
            return cls
    if not versions:
        return None
    from heliograph.codec.dynamic.classes import is_made, version_class  # noqa: PLC0415 - most have the same version

    return version_class(wire, versions[0]) if is_made(versions[0]) else versions[0]


def named(error: Exception) -> HeliographError:
    """What reading an event raised, as an error of the tree."""
    return error if isinstance(error, HeliographError) else DecodeError(str(error))


def _reads_at_once(cls: type[Event], wire: Format) -> bool:
    """Whether msgspec alone, decoding a whole run into the class, checks all that the codec would."""
    return (
        info_of(cls).format.id == wire.id
        and wire.body == "packed"
        and all(isinstance(field.type, ft.Scalar) for field in wire.fields)
        and not defaults_of(cls)
        and not hasattr(cls, "__post_init__")
    )


def _check_lengths(uniform: Uniform[Any], length: int, peer: str) -> None:
    columns = (
        uniform.bodies,
        uniform.sequences,
        uniform.station_seqs,
        uniform.source_ts,
        uniform.append_ts,
        uniform.offsets,
    )
    lengths = {len(column) for column in columns if isinstance(column, list)}
    if lengths != {length}:
        raise BadFrame(peer, f"a run of {length} events has columns of {sorted(lengths)}")


def _first(column: Any) -> Any:
    return column[0] if isinstance(column, list) else column


def _counting(column: int | list[int]) -> Iterable[int]:
    return column if isinstance(column, list) else count(column)


def _repeated(column: int | list[int] | None) -> Iterable[int | None]:
    return column if isinstance(column, list) else repeat(column)


def _no_key(_: Any) -> tuple[Any, ...]:
    return ()


def _key_function(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What makes the key of an event of a class with these key fields."""
    if not names:
        return _no_key
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda event: (get(event),)
