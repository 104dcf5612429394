"""A partition of the journal as a channel's store: events in, events out.

This is where bodies are encoded and decoded. A record of any version of an event type is read as the class
that the channel carries under that name.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.publish.store_sink import NOTHING
from heliograph.codec import decoder, encoder
from heliograph.errors import (
    AppendTimeout,
    CannotTell,
    DecodeError,
    FormatError,
    HistoryDamaged,
    IncompatibleFormats,
    JournalClosed,
)
from heliograph.journal.consumers.cursors import CursorStore
from heliograph.journal.format.keys import KeyReader, key_bytes
from heliograph.journal.format.records import EVENT, TOMBSTONE, JournalRecord, Record, RecordRun
from heliograph.journal.inbox.adoption import OpenPartition
from heliograph.journal.names import escaped
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.writing.dedup_window import WINDOW, DedupWindow
from heliograph.journal.writing.forwarded_ids import ForwardedIds
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.journal.writing.producer_leases import ProducerLeases
from heliograph.model.compatibility import defaults_of, why_apart
from heliograph.model.event import VIA, Header, info_of
from heliograph.model.formats import FormatRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.history.store import Level, OnDurable, StoreReceipt, Tombstone
    from heliograph.channel.queueing.queue import Item
    from heliograph.journal.consumers.cursors import Cursor, CursorState
    from heliograph.journal.format.compacted_ids import CompactedIds
    from heliograph.journal.limits import Limits
    from heliograph.journal.maintenance.retention import ConsumerPosition
    from heliograph.journal.writing.group_commit import WriterStats
    from heliograph.journal.writing.producer_leases import ProducerLease
    from heliograph.journal.writing.receipt import AppendReceipt
    from heliograph.journal.writing.shared_threads import SharedThreads
    from heliograph.model.event import Event, EventId
    from heliograph.model.formats import Format
    from heliograph.model.history_epochs import Epochs
    from heliograph.qos.policies import Missing
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

READ_ROWS: Final = 4_096
"""Rows that are read at once where all from some offset on are looked at."""


OPERATOR: Final = "an operator"


class PartitionCursor:
    """A durable consumer's cursor in one partition."""

    def __init__(self, cursor: Cursor, partition: str) -> None:
        self._cursor = cursor
        self._partition = partition

    @property
    def position(self) -> int | None:
        return self._cursor.positions().get(self._partition)

    @property
    def acks(self) -> frozenset[int]:
        return self._cursor.acks(self._partition)

    @property
    def reach(self) -> int:
        return self._cursor.reach(self._partition)

    @property
    def epoch(self) -> int:
        return self._cursor.epoch

    @property
    def attempts(self) -> Mapping[int, int]:
        return self._cursor.attempts(self._partition)

    def commit(
        self,
        position: int,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> None:
        here = self._partition
        counted = None if attempts is None else {here: attempts}
        self._cursor.commit({here: position}, {here: acks}, {here: reach}, counted)

    def withdraw(
        self,
        position: int,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> None:
        acks = set(acks)
        self._cursor.withdraw(self._partition, position, acks)
        self.commit(position, acks, reach, attempts)

    def close(self) -> None:
        self._cursor.close()

    def forsake(self) -> None:
        self._cursor.close()


class JournalStore:
    """Keeps one channel's events in this station's partition.

    Args:
        channel: whose events.
        owner: the holder of a consumer's cursor or a supplier's name, unless it is another station.
        folder: below which channels have their folders.
        cursor_folder: likewise for the cursors of their durable consumers.
        types: gives the event classes that the channel carries at this moment.
        on_durable: told, in the order of offsets, what has been synced, and the offset behind it.
        missing: whether events may lack fields that have a default.
        settle: as in `Partition`.
        shared: what the partitions of a station share.
    """

    kept_here = True
    reachable = True

    def __init__(
        self,
        ports: Ports,
        channel: str,
        partition: str,
        *,
        owner: str,
        folder: str,
        cursor_folder: str,
        types: Callable[[], tuple[type[Event], ...]],
        on_durable: OnDurable,
        limits: Limits | None = None,
        missing: Missing = "default",
        settle: Callable[[], object] | None = None,
        shared: SharedThreads,
    ) -> None:
        assert ports.disk is not None
        self.partition = partition
        self._ports = ports
        self._channel = channel
        self._types = types
        self._missing = missing
        self._tell = on_durable
        self._formats = FormatRegistry()
        self._format_ids: dict[type[Event], bytes] = {}
        self._written: dict[type[Event], tuple[bytes, Callable[[Event], bytes]]] = {}
        """The format that events of a class are written in, and what encodes them."""
        place = self._place = f"{folder}/{escaped(channel)}/{partition}"
        self._files = shared.files
        # Most channels never have a durable consumer; those of earlier lives hold what they have not read.
        self._cursor_folder = f"{cursor_folder}/{escaped(channel)}"
        self._owner = owner
        self._cursors: CursorStore | None = None
        with ExitStack() as opened:  # of what fails half-way nothing stays locked
            if ports.disk.exists(self._cursor_folder):
                self._cursors = opened.enter_context(CursorStore(ports, self._cursor_folder))
            self._writer = opened.enter_context(
                PartitionWriter(
                    ports,
                    place,
                    self._formats,
                    limits=limits,
                    on_durable=self._on_durable,
                    places=self._places,
                    note=f"channel {channel}",
                    settle=settle,
                    shared=shared,
                )
            )
            # One reader for all queues of this process that are behind, one at a time.
            self._reading = ports.tasks.lock(f"reader of {channel}")
            self._open_reader: PartitionReader | None = None
            self._suppliers = ProducerLeases(
                self._known_cursors, self._rows, lambda: self.watermark, self._writer.between
            )
            if self._cursors is not None:
                self._suppliers.load(self._cursors)
            opened.pop_all()
        self._is_over = False
        """Whether nothing is read any more: after `finish` receivers are still given what is kept."""
        self._apart: set[bytes] = set()
        """Formats that have nothing but their name in common with a class of this channel."""
        self._decoders: dict[tuple[bytes, bool], tuple[type[Event], Callable[[Any], Event]] | None] = {}
        self._repeating = ports.tasks.lock(f"repeated pushes of {channel}")
        self._first_repeat = ports.tasks.lock(f"first repeated push of {channel}")
        self._repeats: DedupWindow | None = None
        self._repeats_read = False
        self._forwarded = ForwardedIds(
            ports, place, self._all_ids, earliest=lambda: self.earliest, watermark=lambda: self.watermark
        )

    @property
    def watermark(self) -> int:
        return self._writer.watermark

    @property
    def epochs(self) -> Epochs:
        return self._writer.epochs

    def met_again(self, epochs: Epochs) -> None:
        """Only another station's can have gone back in time while this one runs."""

    @property
    def closed(self) -> bool:
        return self._writer.closed

    @property
    def earliest(self) -> int:
        return self._writer.earliest

    def wait_ready(self, timeout: float | None = None) -> None:
        """Its disk is here; `append` waits for space in the line."""

    def append(self, batch: OutgoingBatch, level: Level, timeout: float | None = None) -> AppendReceipt:
        lease = self._suppliers.held(batch.shared)
        check = None if lease is None else partial(self._suppliers.held, batch.shared)
        rows = self._rows_of(batch)
        if self._repeats is None:
            receipt = self._writer.append(rows, level=level, attachment=batch, timeout=timeout, check=check)
        else:
            with self._repeating:
                receipt = self._writer.append(
                    rows, level=level, attachment=batch, timeout=timeout, check=check
                )
                self._note(batch, receipt)
        if lease is not None:
            lease.appending(batch.sequence + len(batch) - 1, len(batch), receipt, self.watermark)
        return receipt

    def append_once(
        self,
        batch: OutgoingBatch,
        push_id: str,
        level: Level,
        timeout: float | None = None,
        check: Callable[[], object] | None = None,
    ) -> StoreReceipt:
        if check is None:
            check = partial(self._suppliers.held, batch.shared)
        check()
        return self._append_once(batch, push_id, level, timeout, check)

    def append_due(self, item: Item, push_id: str) -> StoreReceipt:
        return self._append_once(OutgoingBatch.of([item]), push_id, "synced", None, None)

    def check_holder(self, supplier: str, epoch: int) -> None:
        self._suppliers.check(supplier, epoch)

    def _append_once(
        self,
        batch: OutgoingBatch,
        push_id: str,
        level: Level,
        timeout: float | None,
        check: Callable[[], object] | None,
    ) -> StoreReceipt:
        if not self._repeats_read:
            try:
                self._know_repeats(timeout)
            except AppendTimeout as late:
                # Not of what is waited for, but of this push: that is the id to repeat it under.
                raise AppendTimeout(self.partition, push_id, late.seconds) from late
        assert self._repeats is not None
        is_forwarded = batch.shared.headers is not None and VIA in batch.shared.headers
        if is_forwarded and not self._forwarded.is_read:
            with self._first_repeat:
                if not self._forwarded.is_read:
                    self._forwarded.read()
        with self._repeating:
            if push_id in self._repeats:
                return self._repeats.receipt(push_id) or NOTHING
            if is_forwarded and not self._is_first(batch.shared):
                return NOTHING
            try:
                receipt = self._writer.append(
                    self._rows_of(batch), level=level, attachment=batch, timeout=timeout, check=check
                )
            except BaseException:
                if is_forwarded:
                    self._forwarded.forget(batch.shared.id)
                raise
            self._note(batch, receipt)
        if is_forwarded:
            receipt.add_final_callback(partial(self._forwarded_settled, batch.shared.id))
        return receipt

    def _is_first(self, header: Header) -> bool:
        """Whether no gateway has brought an event before; under the lock. CannotTell when nobody knows."""
        verdict = self._forwarded.judge(header.id)
        if verdict in ("too old", "no room"):
            raise CannotTell(self.partition, str(header.id), verdict)
        return verdict == "new"

    def _forwarded_settled(self, event: EventId, receipt: AppendReceipt) -> None:
        if receipt.lost is not None:
            self._forwarded.forget(event)

    def supplier(self, name: str, owner: str | None = None) -> ProducerLease:
        return self._suppliers.open(name, owner or self._owner)

    def _know_repeats(self, timeout: float | None) -> None:
        """Begin to note what is appended, and read what was: once, by the first push that is repeated."""
        with self._first_repeat:
            if self._repeats_read:
                return
            with self._repeating:
                if self._repeats is None:
                    self._repeats = DedupWindow()
            # What came before is in line at most, and may be the very push that is repeated.
            last = self._writer.between(lambda: None)
            if last is not None:
                last.wait_until_final(timeout)
            older = self._last_ids(max(self.earliest, self.watermark - WINDOW))
            with self._repeating:
                self._repeats.read_before(older)
            self._repeats_read = True

    def _last_ids(self, start: int) -> list[Record | CompactedIds]:
        """Rows from an offset on in their order, those that were compacted too."""
        there: dict[int, Record | CompactedIds] = dict(self._numbered_rows(start))
        # After the rows: what is compacted meanwhile is in both.
        with self._reading:
            gone = {one.offset: one for one in self._reader().left_out(start)}
        return [one for _, one in sorted({**gone, **there}.items())]

    def _all_ids(self, start: int) -> Iterator[Record | CompactedIds]:
        """The same in no order, without having them all at once."""
        yield from self._rows(start)
        with self._reading:
            gone = self._reader().left_out(start)
        yield from gone

    def _note(self, batch: OutgoingBatch, receipt: AppendReceipt) -> None:
        """Under the lock."""
        repeats = self._repeats
        assert repeats is not None
        repeats.note(batch, receipt)
        # In the writer's own task, so without the lock: its holder may wait for the writer.
        receipt.add_final_callback(lambda final: repeats.settled(batch, kept=final.lost is None))

    def _reader(self) -> PartitionReader:
        """Under the lock of the readers."""
        if self._open_reader is None:
            if self._is_over:
                raise JournalClosed(self._place)
            assert self._ports.disk is not None
            self._open_reader = PartitionReader(self._ports.disk, self._place, formats=self._formats)
            self._files.opened(self._let_go)
        return self._open_reader

    def _let_go(self) -> bool:
        """Have no files open for reading, unless a reader reads just now."""
        if not self._reading.acquire(blocking=False):
            return False
        try:
            if self._open_reader is not None:
                self._open_reader.close()
                self._open_reader = None
        finally:
            self._reading.release()
        return True

    def _rows(self, start: int) -> Iterator[Record]:
        """What is durable from an offset on."""
        return (record for _, record in self._numbered_rows(start))

    def _numbered_rows(
        self, start: int, on_gap: Callable[[HistoryDamaged], object] | None = None
    ) -> Iterator[tuple[int, Record]]:
        """What is durable from an offset on; damage is raised, or told and passed over."""
        end = self.watermark
        while start < end:
            try:
                with self._reading:
                    runs, reached = self._reader().read_on(start, READ_ROWS, below=end)
            except HistoryDamaged as gap:
                if on_gap is None:
                    raise
                on_gap(gap)
                start = gap.next_available
                continue
            for rows in runs:
                yield from enumerate(rows.records, rows.first)
            if reached <= start:
                return
            start = reached

    def _rows_of(self, batch: OutgoingBatch) -> Sequence[Record] | RecordRun:
        if batch.given is not None:
            return list(map(self._record, batch.given))
        shared, places, cls = batch.shared, batch.places, batch.events[0].__class__
        written = self._written.get(cls)
        if written is None:
            written = self._written[cls] = (self._format_id(cls), encoder(cls).encode)
        format_id, encode = written
        headers = None if shared.headers is None else dict(shared.headers)
        said = (shared.lifetime_ns, shared.correlation_id, headers, shared.hops)
        first = (shared.supplier, shared.epoch, batch.sequence, batch.source_ts, format_id)
        if len(places) == 1:
            return (Record(*first, encode(batch.events[0]), shared.priority, places[0], *said),)
        in_order = places[-1] - places[0] == len(places) - 1
        bodies = list(map(encode, batch.events))
        return RecordRun(*first, bodies, shared.priority, places[0] if in_order else list(places), *said)

    def _format_id(self, cls: type[Event]) -> bytes:
        """The format that events of a class are written in; its description goes before the first of them."""
        found = self._format_ids.get(cls)
        if found is None:
            found = self._format_ids[cls] = self._formats.register(info_of(cls).format)
        return found

    def _record(self, item: Item) -> Record:
        event, header, _ = item
        cls = event.__class__
        return Record(
            header.supplier,
            header.epoch,
            header.sequence,
            header.source_ts,
            self._format_id(cls),
            encoder(cls).encode(event),
            header.priority,
            header.station_seq,
            header.lifetime_ns,
            header.correlation_id,
            None if header.headers is None else dict(header.headers),
            header.hops,
        )

    def forget(self, gone: Tombstone, level: Level) -> AppendReceipt:
        record = Record(
            gone.supplier,
            gone.epoch,
            gone.sequence,
            gone.source_ts,
            self._format_id(gone.cls),
            b"",
            station_seq=gone.station_seq,
            kind=TOMBSTONE,
            key=key_bytes(gone.key),
        )
        check = partial(self._suppliers.held, gone)
        return self._writer.append([record], level=level, check=check)

    def read(
        self,
        start: int,
        most: int,
        below: int | None = None,
        *,
        as_kept: bool = False,
        only: Collection[str] | None = None,
    ) -> tuple[list[Item], int]:
        if start >= self.watermark:
            return [], start  # as most receivers that join: no file is opened for them
        with self._reading:
            runs, reached = self._reader().read_on(start, most, below=below)
        items: list[Item] = []
        if only is not None and all(info_of(cls).name in only for cls in self._types()):
            only = None  # most want all types: then nothing is asked of each event
        for rows in runs:
            for offset, record in enumerate(rows.records, rows.first):
                if only is not None and self._formats[record.format_id].name not in only:
                    continue
                try:
                    item = self._item(JournalRecord(offset, rows.append_ts, record), as_kept)
                except (FormatError, DecodeError):
                    if offset <= start:
                        raise
                    return items, offset  # what comes before it is handed out first
                if item is not None:
                    items.append(item)
        return items, reached

    def kept_types(self, start: int, end: int) -> set[str]:
        """Names of the event types in a range of offsets, those too that are not known here."""
        rows = takewhile(lambda row: row[0] < end, self._numbered_rows(start))
        return {self._formats[record.format_id].name for _, record in rows if record.kind == EVENT}

    def standing(self, on_gap: Callable[[HistoryDamaged], object]) -> list[Item]:
        """The last event of each key that has not been forgotten, in the order of their offsets.

        `on_gap` is told what cannot be read.
        """
        keys = KeyReader(self._formats)
        last: dict[bytes | None, Record] = {}
        for _, record in self._numbered_rows(self.earliest, on_gap):
            key = keys.of(record.format_id, record.kind, record.key, record.body)
            last.pop(key, None)
            if record.kind == EVENT:
                last[key] = record
        rows = (JournalRecord(-1, 0, record) for record in last.values())
        return [item for row in rows if (item := self._item(row)) is not None]

    def is_lost(self, first: int, behind: int) -> bool:
        """Whether the history was repaired, knowing that these offsets cannot be read any more."""
        with self._reading:
            damage = self._reader().manifest.damage
        return any(known.accepted and known.first <= first and behind <= known.next for known in damage)

    def offset_at(self, append_ts: int) -> int:
        with self._reading:
            return self._reader().offset_at(append_ts)

    def cursor(self, name: str, owner: str | None = None, epoch: int | None = None) -> PartitionCursor:
        cursors = self._known_cursors()
        found = cursors.open(name, owner or self._owner) if epoch is None else cursors.resume(name, epoch)
        return PartitionCursor(found, self.partition)

    def settle(self) -> None:
        """See to it that a new history survives a power loss, though it has no event yet."""
        self._writer.settle()

    def _known_cursors(self) -> CursorStore:
        with self._reading:
            if self._cursors is None:
                self._writer.settle()  # no receiver has a position in a partition that may be gone
                self._cursors = CursorStore(self._ports, self._cursor_folder)
            return self._cursors

    def settled(self, name: str) -> tuple[int, frozenset[int]] | None:
        """What a durable consumer has acknowledged: all below an offset, and these; None: it never was here.

        Only asks; another owner may have it open.
        """
        found = self._known_cursors().state(name).positions.get(self.partition)
        return None if found is None else (found.low, frozenset(found.acks))

    def consumers(self) -> tuple[str, ...]:
        """The names of consumers that have a cursor here, as they are kept."""
        cursors = self._cursors
        return () if cursors is None else cursors.names()

    def cursor_states(self) -> tuple[CursorState, ...]:
        """What is kept of each of these consumers."""
        cursors = self._cursors
        return () if cursors is None else tuple(cursors.state(name) for name in cursors.names())

    def stats(self) -> WriterStats:
        return self._writer.stats()

    def begin_consumer(self, name: str, offset: int) -> None:
        """A durable consumer that was never here will begin there: retention counts with it from now on."""
        self._known_cursors().begin(name, self.partition, offset)

    def forget_consumer(self, name: str) -> None:
        """A durable consumer will not come back: it holds nothing any more. CursorHeld while it is open."""
        self._known_cursors().forget(name)

    def seek_consumer(self, name: str, offset: int) -> None:
        """Have a durable consumer go on at an offset when it is opened next. CursorHeld while it is open."""
        with self._known_cursors().open(name, OPERATOR) as cursor:
            cursor.seek(self.partition, offset)

    def known_consumers(self) -> tuple[CursorState, ...]:
        """What is kept of each durable consumer and group, whether the cursors are open or not."""
        cursors = self._known_cursors()
        return tuple(cursors.state(name) for name in cursors.names())

    def seal(self) -> None:
        """Seal all that there is, and go on in a new file: what follows stays when that is purged."""
        self._writer.seal()

    def purge(self, below: int) -> int:
        """Drop what is below an offset, by whole files, whoever lacks it; the earliest that is left."""
        self._writer.purge(min(below, self.watermark))
        return self.earliest

    def wait_durable(self) -> None:
        """Wait until all that is in line for the disk is there, or has failed."""
        last = self._writer.between(lambda: None)
        if last is not None:
            last.wait_until_final()

    def desk(self, *_: object, **__: object) -> None:
        """The station that keeps a history hands it out."""

    def finish(self) -> None:
        self._writer.close()

    def close(self) -> None:
        self.finish()
        with self._reading:
            self._is_over = True
            if self._open_reader is not None:
                self._files.closed(self._let_go)
                self._open_reader.close()
                self._open_reader = None
            if self._cursors is not None:
                self._cursors.close()
                self._cursors = None

    def _places(self) -> tuple[ConsumerPosition, ...]:
        cursors = self._cursors
        return () if cursors is None else cursors.places(self.partition)

    def target(self, station_seq: Callable[[], int]) -> OpenPartition:
        """Where batches from outside go in."""
        carried = tuple(info_of(cls).name for cls in self._types())
        return OpenPartition(self._writer, self._formats, station_seq, carried)

    def _on_durable(self, receipts: list[AppendReceipt]) -> None:
        last = receipts[-1]
        end = last.first_offset + last.chunk.events
        if last.adoption is not None:  # which is always alone
            self._tell(self.partition, None, end)
            return
        batches: list[OutgoingBatch] = []
        for receipt in receipts:
            batch: OutgoingBatch | None = receipt.attachment
            if batch is not None:  # else it is a tombstone
                batch.keep(self.partition, receipt.first_offset, receipt.append_ts)
                batches.append(batch)
        self._tell(self.partition, batches, end)

    def _item(self, row: JournalRecord, as_kept: bool = False) -> Item | None:
        """An event as it was pushed, or None when its type is not known here."""
        record = row.record
        reader = self._decoder(record.format_id, as_kept) if record.kind == EVENT else None
        if reader is None:
            return None
        cls, decode = reader
        event = decode(record.body)
        info = info_of(cls)
        header = Header(
            self._channel,
            info.name,
            record.supplier,
            record.epoch,
            record.sequence,
            record.source_ts,
            record.format_id,
            record.priority,
            info.key_of(event),
            record.station_seq,
            row.append_ts,
            self.partition,
            row.offset,
            record.lifetime_ns,
            record.hops,
            record.correlation_id,
            record.headers,
        )
        return event, header, self._deadline(row)

    def _deadline(self, row: JournalRecord) -> int:
        """When its lifespan ends on the monotonic clock; in the past when it already has."""
        if row.record.lifetime_ns is None:
            return 0
        left = row.append_ts + row.record.lifetime_ns - self._ports.clock.time_ns()
        return max(1, self._ports.clock.monotonic_ns() + left)

    def _decoder(self, format_id: bytes, as_kept: bool) -> tuple[type[Event], Callable[[Any], Event]] | None:
        found = self._decoders.get((format_id, as_kept))
        if found is None and format_id not in self._apart:
            wire = self._formats[format_id]
            for own in self._types():
                if info_of(own).name == wire.name:
                    cls = own if info_of(own).format.id == format_id else _class_of(wire, own, as_kept)
                    if cls is own and self._is_apart(wire, own):
                        return None
                    found = self._decoders[format_id, as_kept] = (cls, decoder(wire, cls, self._missing))
        return found

    def _is_apart(self, wire: Format, own: type[Event]) -> bool:
        """Whether events share no more than the name with a class: an older program has kept both.

        No reader of this class could ever read them. They are passed over as those of any other type.
        """
        apart = why_apart(wire, info_of(own).format, defaults_of(own))
        if apart:
            self._apart.add(wire.id)
            reason = IncompatibleFormats(wire.name, wire.name, apart, self._channel)
            log.warning("events are passed over when they are read: %s", reason)
        return bool(apart)


def _class_of(wire: Format, own: type[Event], as_kept: bool) -> type[Event]:
    """The class to read another version of the channel's own class in."""
    from heliograph.codec.dynamic.classes import is_made, version_class  # noqa: PLC0415 - most histories hold one version

    return version_class(wire, own) if as_kept or is_made(own) else own
