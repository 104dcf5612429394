"""Publishes into the shared-memory ring: an event is encoded once and written once for all peers of the host.

It carries the live events of channels that keep nothing; `heliograph.links.broadcast.carrier_choice` says
which. A channel has one gateway to all stations that read the ring, which lets through what any of them
wants; each judges by itself what it gets. Nothing is numbered, kept or acknowledged per station: the ring
keeps what its slowest reader has not read, and a reader that dies is forgotten.

A record is a run, as in a frame of a link, or a lone event:

    u8 form, u32 stream, u32 count, u32 size, msgpack       see `heliograph.links.session.messages`
    u8 LONE, u32 stream, msgpack                            [body, supplier, epoch, sequence, source_ts,
                                                             priority, station_seq, correlation_id, headers]
    u8 APART, u32 stream, ...                               a large one: see
    `heliograph.links.broadcast.large_events`

What a stream is, and for which stations a channel's events are, is said in the ring as well (`Announce`,
`Takes`). So it is in order with the events, and there is no instant at which an event belongs to somebody who
does not know yet.

A reader is a session of a station, in a row of the ring (`heliograph.links.broadcast.gateway.ReaderSession`).
When a session is over its reader may still read what was written till then, while the next one reads in
another row.

A reader that stands still beyond its lease is ended by the ring. From that instant nothing is written until
its session has left all channels (`_held`): so what it did not get is what it had not read, what was about to
be written, and what waits in the queues of its channels as it leaves them.

Locks: `_joining` orders changes of who takes what; it comes before the locks of channels. `_sending` is held
while records are made and written, and taken under the lock of a channel's entry: pushing threads only try.
`counting` comes last but for those of queues and confirmations.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from threading import get_ident, main_thread  # only to know a thread again; threads come from the port
from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import RingClosed, RingFull
from heliograph.links.broadcast.carrier_choice import BEST_EFFORT
from heliograph.links.broadcast.chunk_throttle import ChunkThrottle
from heliograph.links.broadcast.gateway import NOT_SAID, BroadcastGateway, ReaderSession
from heliograph.links.broadcast.large_events import LARGE
from heliograph.links.broadcast.loss_count import (
    IN_DOUBT,
    LossCounter,
    count_missed,
    events_by_channel,
    events_in,
    missed_in,
    would_miss,
)
from heliograph.links.broadcast.queue import OVERTAKEN, BroadcastQueue
from heliograph.links.broadcast.records import BroadcastEncoder
from heliograph.links.session import messages as m
from heliograph.links.session.confirmation import CLOSED
from heliograph.links.session.gateway import GatewayQueue
from heliograph.links.session.messages import encode
from heliograph.links.session.pack import MOST_AT_ONCE, made_or_none
from heliograph.links.session.send_scheduler import QUIET_NS, SendScheduler
from heliograph.links.session.wire_events import said_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.channel import Channel
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.broadcast.queue import PendingBatch, RowGateway
    from heliograph.links.session.confirmation import Owed
    from heliograph.links.session.gateway import PeerGateway
    from heliograph.links.session.wire_events import EventWriter, Said
    from heliograph.model.event import Event
    from heliograph.ring import RingWriter
    from heliograph.runtime.ports import Buffer, Ports

log = logging.getLogger(__name__)

TOGETHER_NS: Final = 50_000
"""Events that are pushed within so long after a record was written may wait for each other."""
A_MOMENT: Final = 0.0005
"""Seconds between two looks of the broadcast's own task at whether a pushing thread is done."""
NOT_BEGUN: Final = -1
FLUSH_LIMIT: Final = 1.0
"""Seconds for which a station that leaves waits for room at least, even if it has no time left."""


class Broadcast:
    """See the module.

    Args:
        ring: where to write; nobody else does.
        writer: turns events into runs.
        stream_of: the number of the stream of a channel and a format.
        on_overtaken: told of a reader that stood still, and how many events of which channel it did not get;
            by whoever writes, so it must not wait. `released` ends what begins with it.
    """

    def __init__(
        self,
        ring: RingWriter,
        ports: Ports,
        writer: EventWriter,
        stream_of: Callable[[str, bytes], int],
        on_overtaken: Callable[[ReaderSession, Counter[str]], None],
    ) -> None:
        self.ring = ring
        self.lane = ring.name.lane
        ring.on_ended, ring.is_missed_by = self._overtaken, self._misses
        self._on_overtaken = on_overtaken
        # For those who push: see `heliograph.channel.publish.fast_path.Line`.
        self.due_ns = 0
        self._now = ports.clock.time_ns
        self._monotonic = ports.clock.monotonic_ns
        self._writer = writer
        self._joining = ports.tasks.lock("readers of the broadcast")
        self._sending = ports.tasks.lock("broadcast")
        self._taking = ports.tasks.lock("queues of the broadcast")
        """Held while something is taken out of the queue of a gateway, if nothing is to be told first."""
        self.counting = ports.tasks.lock("losses of the broadcast")
        """Held while what a reader did not confirm becomes what it did not get, which is counted elsewhere:
        a ledger that is read in between would have it twice."""
        self._wake = ports.tasks.signal("broadcast")
        self._scheduler = SendScheduler(self._wake, self._is_quiet, self._pump)
        self._ready = self._scheduler.listed
        self._list, self._arm = self._scheduler.list, self._scheduler.arm
        self.ready = self._scheduler.ready
        """Events of a gateway wait."""
        self._gateways: dict[str, BroadcastGateway] = {}
        self._readers: dict[int, ReaderSession] = {}
        self._left: dict[tuple[ReaderSession, str], int] = {}
        self._maker = BroadcastEncoder(writer, stream_of, ring.largest)
        self._unsent = self._maker.unsent
        self._pacing = ChunkThrottle(ring, self._maker.streams, self._gateways, self._append)
        self._held: set[ReaderSession] = set()
        self._told: deque[tuple[ReaderSession, str, bool, BroadcastGateway | int]] = deque()
        self._rows: deque[PendingBatch] = deque()
        self._closed = False
        self._task = ports.tasks.spawn("broadcast", self._write)

    # Who takes what

    def read_by(self, station: int, row: int) -> ReaderSession | None:
        """A station says that it reads the ring, in that row; None if it does not, or not any more."""
        hearer = ReaderSession(station, row)
        if self.lane == BEST_EFFORT:
            return hearer  # nobody waits for it
        try:
            known = self._readers.get(row)
            if not self.ring.is_read_by(row) or (known and known.station != station and not known.is_over):
                return None
            self._readers[row] = hearer
            self.ring.hurry(row, hurried=False)
            return hearer if self.ring.is_read_by(row) else None
        except ValueError:  # this station is closing, and has let go of the memory
            return None

    def admit(
        self,
        hearer: ReaderSession,
        channel: Channel[Any],
        conditions: Mapping[type[Event], Any],
        owed: Owed | None = None,
        ask: Callable[[], None] = lambda: None,
    ) -> BroadcastGateway:
        """From here on a station that reads the ring gets what it wants of a channel.

        Args:
            hearer: its session.
            channel: of this station.
            conditions: what it wants.
            owed: where it says what it has taken in; None: nowhere.
            ask: has it say so soon.
        """
        with self._joining:
            gateway = self._gateways.get(channel.name)
            is_new = gateway is None or gateway.channel is not channel
            if gateway is None or is_new:
                gateway = BroadcastGateway(channel, conditions, self)
            gateway.wants[hearer] = hearer.wishes[channel.name] = conditions
            gateway.sent_before[hearer] = gateway.sent
            if owed is not None:
                gateway.hear(hearer, owed, ask)
            self._tell(hearer, gateway, takes=True)
            if is_new:
                channel.neighbours.join_gateway(gateway)
                self._gateways[channel.name] = gateway
            else:
                channel.neighbours.change_gateway(gateway, gateway.all_wants())
        return gateway

    def repeat(self, hearer: ReaderSession) -> None:
        """A station has fallen behind, and knows nothing of what was said meanwhile."""
        with self._joining:
            for (who, channel), sent in tuple(self._left.items()):
                if who is hearer:
                    self._told.append((hearer, channel, False, sent))
            for gateway in self._gateways.values():
                if hearer in gateway.wants:
                    self._tell(hearer, gateway, takes=True)
        self._pump()

    def change(
        self, hearer: ReaderSession, gateway: BroadcastGateway, conditions: Mapping[type[Event], Any]
    ) -> None:
        with self._joining:
            gateway.wants[hearer] = hearer.wishes[gateway.channel.name] = conditions
            gateway.channel.neighbours.change_gateway(gateway, gateway.all_wants())

    def leave(self, hearer: ReaderSession, gateway: BroadcastGateway, reason: str = CLOSED) -> list[Item]:
        """A station wants nothing more of a channel, or is gone; what waited then, for whomever.

        If nobody else wants it, that is dropped under the reason.
        """
        try:
            return self._left_by(hearer, gateway, reason)
        finally:  # not before: what waits is not written for a station that leaves
            self.pause(hearer, gateway, paused=False)

    def _left_by(self, hearer: ReaderSession, gateway: BroadcastGateway, reason: str) -> list[Item]:
        assert isinstance(gateway.queue, BroadcastQueue)
        with self._joining:
            if gateway.wants.pop(hearer, None) is None:
                return []
            hearer.sent += gateway.sent - gateway.sent_before.pop(hearer)
            if gateway.wants:
                wants, peek = gateway.all_wants(), partial(self._tell_left, hearer, gateway)
                waiting = gateway.channel.neighbours.change_gateway(gateway, wants, peek)
                self._pump()
                return waiting
            if self._gateways.get(gateway.channel.name) is gateway:
                del self._gateways[gateway.channel.name]
            # Before another one may take its name and place; and before the broadcast's own task may write
            # that nobody takes the channel: what waits would follow, for nobody, and count as delivered.
            gateway.drop(reason)
            self._tell(hearer, gateway, takes=False)
            return gateway.queue.left

    def _tell_left(self, hearer: ReaderSession, gateway: BroadcastGateway) -> list[Item]:
        """Say that a station takes a channel no more; what waits, and will be written behind that."""
        with self._taking:
            self._told.append((hearer, gateway.channel.name, False, gateway))
            return gateway.waiting()

    def wanted_by(self, hearer: ReaderSession, channel: str, waiting: list[Item]) -> list[Item]:
        """Those of these events of a channel that a station wanted."""
        judge = self._judge(hearer)
        return [item for item in waiting if judge.wants(channel, item)]

    def released(self, hearer: ReaderSession) -> None:
        """A session that was overtaken has left all channels: go on without it."""
        # Not under `_sending`: nothing is written meanwhile, and nobody needs to wait for it.
        self._held.discard(hearer)
        self._arm()

    def held_up_by(self) -> set[int]:
        """The station whose reader keeps the ring full; none when it has room, or nobody knows."""
        hearer = self._readers.get(self.ring.held_up_by)
        return set() if hearer is None else {hearer.station}

    def end_session(self, hearer: ReaderSession, *, is_gone: bool) -> None:
        """A session is over, and has left all channels.

        What its reader did not read is still counted, should it be overtaken. If its station was struck off
        it has been waited for already, and is not any more.
        """
        hearer.is_over = True
        for key in tuple(self._left):
            if key[0] is hearer:
                self._left.pop(key, None)
        if is_gone and self._readers.get(hearer.row) is hearer:
            self.ring.hurry(hearer.row)

    def add_dead_letter(self, hearer: ReaderSession, reason: str) -> None:
        """The process of a reader has ended: what it had not read is dropped under the reason.

        So that only what it wanted counts, and what another station did not get either counts once. If the
        ring was faster and has forgotten the reader, all that it had not confirmed does.
        """
        if not self._sending.acquire(timeout=FLUSH_LIMIT):
            return
        try:
            known = self._readers.get(hearer.row)
            ended = self.ring.end_reader(hearer.row) if known is hearer and not self._closed else None
            if ended is None:
                return
            del self._readers[hearer.row]
            hearer.is_ended = True
            first, unread = ended
            records = [*unread, *self._unsent]
            self._count_missed(records, first, hearer, _heard(hearer), reason)
        finally:
            self._sending.release()

    def sent_to(self, hearer: ReaderSession) -> int:
        """Events of channels of which a station wants some, or did in this session."""
        with self._joining:
            gateways = [gateway for gateway in self._gateways.values() if hearer in gateway.wants]
            return hearer.sent + sum(g.sent - g.sent_before[hearer] for g in gateways)

    def pause(self, hearer: ReaderSession, gateway: BroadcastGateway, *, paused: bool) -> None:
        """Stop writing a channel's events while a consumer of any station is full; never with best effort."""
        if self.lane == BEST_EFFORT:
            return
        with self._joining:
            if paused:
                gateway.paused_by.add(hearer)
            else:
                gateway.paused_by.discard(hearer)
            is_over = gateway.paused and not gateway.paused_by
            gateway.paused = bool(gateway.paused_by)
        if is_over:
            self._list(gateway)
            assert isinstance(gateway.queue, BroadcastQueue)
            self._rows.extend(gateway.queue.waiting_rows())
            self._pump()

    # What a gateway asks; in the pushing thread

    def send_now(self, gateway: PeerGateway, item: Item) -> bool:
        """Write an event that was pushed this instant; False when it has to be queued, or in a burst."""
        assert isinstance(gateway, BroadcastGateway)
        event, header, _ = item
        head = gateway.heads.get(event.__class__)
        if head is None or not self._is_quiet():
            return False
        return self._send_lone(gateway, head, event, said_of(header), gateway.count_made)

    def _send_lone(
        self, gateway: RowGateway, head: tuple[bytes, int], event: Any, said: Said, count: Callable[[], None]
    ) -> bool:
        """Write an event by itself, from where its arrays lie; False when that cannot be now."""
        if self._sending.mine():
            return False  # out of a signal handler, in the middle of a record
        try:
            if not self._sending.acquire(blocking=False):
                return False
            if self._unsent or self._told or gateway.paused:
                return False
            parts = made_or_none(self._writer.lone, *head, event, said)
            return parts is not None and self._append_and(count, gateway, *parts)
        finally:
            try:  # noqa: SIM105 - one call, in C: a signal comes before it or when the lock is free
                self._sending.release()
            except RuntimeError:  # somebody else has it
                pass

    def send_bulk(self, gateway: PeerGateway, bulk: OutgoingBatch) -> bool:
        """Likewise events that were pushed together."""
        assert isinstance(gateway, BroadcastGateway)
        if self._sending.mine():
            return False  # out of a signal handler, in the middle of a record
        try:
            if not self._sending.acquire(blocking=False):
                return False
            cls = bulk.events[0].__class__
            head = gateway.heads.get(cls)
            if head is None or self._unsent or self._told or gateway.paused:
                return False
            records = made_or_none(self._writer.bulk, cls, bulk)
            if records is None:
                return False
            record = m.run_bytes(m.UNIFORM, head[1], len(bulk), records)
            return self._append_and(partial(gateway.count_made, len(bulk)), gateway, record)
        finally:
            try:  # noqa: SIM105 - one call, in C: a signal comes before it or when the lock is free
                self._sending.release()
            except RuntimeError:  # somebody else has it
                pass

    def ask(self) -> None:
        """Readers say by their cursors what they have taken in."""

    def send_rows(self, of: PendingBatch) -> bool:
        """Write what a supplier has waiting; False when that cannot be now.

        In the pushing thread, under the lock of its channel's entry.
        """
        if self._sending.mine():
            return False  # out of a signal handler, in the middle of a record
        try:
            if not self._sending.acquire(blocking=False):
                return False
            rows, gateway = of.rows, of.gateway
            head = of.head or self._known_head(of)
            if head is None or self._unsent or self._told or gateway.paused or not rows:
                return False
            record = made_or_none(of.record, self._writer, head, rows)
            return record is not None and self._append_and(of.count_written, gateway, record)
        finally:
            try:  # noqa: SIM105 - one call, in C: a signal comes before it or when the lock is free
                self._sending.release()
            except RuntimeError:  # somebody else has it
                pass

    def _known_head(self, of: PendingBatch) -> tuple[bytes, int] | None:
        """How a lone event of a supplier begins, once readers know its class."""
        if of.head is None and (head := of.gateway.heads.get(of.cls)):
            of.head = head
            plain = self._writer.is_plain(of.cls)
            of.write_one = self._one_of(of, head[0]) if plain else partial(self._send_row, of, head)
        return of.head

    def _one_of(self, of: PendingBatch, head: bytes) -> Callable[[Any, int, int, int], bool]:
        """What writes a lone event of a supplier: the case that somebody waits for, so all is at hand."""
        acquire, release, mine = self._sending.acquire, self._sending.release, self._sending.mine
        ring, put, now = self.ring, self.ring.put, self._now
        unsent, told, gateway, queue = self._unsent, self._told, of.gateway, of.queue
        supplier, epoch, priority = of.supplier, of.epoch, of.priority

        def write_one(event: Any, sequence: int, source_ts: int, place: int) -> bool:
            if mine():
                return False
            before, is_written = NOT_BEGUN, False
            try:
                if not acquire(False):
                    return False
                before = ring.sequence
                if not (unsent or told or gateway.paused):
                    lone = (event, supplier, epoch, sequence, source_ts, priority, place, None, None)
                    try:
                        body = encode(lone)
                    except Exception:  # noqa: BLE001 - as in `made_or_none`, without a call
                        body = b""
                    if len(body) >= LARGE:
                        is_written = self._append(head, body)
                    elif body and put(head + body):
                        self.due_ns = now() + TOGETHER_NS
                        is_written = True
                    if is_written:
                        queue.written += 1
                        of.ones += 1
                        before = NOT_BEGUN
                release()  # one call, in C: a signal comes before it or when the lock is free
            except BaseException:  # an interrupt: what is in the ring counts, though its push raises
                if before not in (NOT_BEGUN, ring.sequence):
                    queue.written += 1
                    of.ones += 1
                if mine():
                    release()
                raise
            return is_written

        return write_one

    def _send_row(self, of: PendingBatch, head: tuple[bytes, int], event: Any, *row: int) -> bool:
        """The same for a supplier whose events have arrays, which are written from where they lie."""
        return self._send_lone(of.gateway, head, event, of.said(*row), of.queue.count_one_written)

    def arm_rows(self, of: PendingBatch) -> None:
        """A supplier has something waiting, and leaves it to the broadcast's own task."""
        self._rows.append(of)
        self._arm()

    # The life of a broadcast

    def close(self, timeout: float) -> None:
        """Write what waits, for so many seconds, and say that nothing more comes."""
        if self._closed:
            return
        self._held.clear()
        timeout = max(timeout, FLUSH_LIMIT)
        if self._sending.acquire(timeout=timeout):
            try:
                if not self._flush(timeout):
                    left = sum(map(events_in, self._unsent))
                    log.warning("%d events stay unsent: no reader made room in %s s", left, timeout)
            finally:
                self._sending.release()
        self._closed = True
        self._wake.notify()
        # Whoever waits for room meanwhile is let go by the ring; nobody else may write while it closes.
        is_mine = self._sending.acquire(timeout=FLUSH_LIMIT)
        self.ring.close()
        if is_mine:
            self._sending.release()

    def abandon(self) -> None:
        """In the child of a fork."""
        self.ring.abandon()

    def _write(self) -> None:
        """The broadcast's own task: what pushing threads left over, however long readers take."""
        while not self._closed:
            self._wake.wait()
            # Not by waiting for the lock: whoever waits has it before the interpreter, for which a busy
            # pushing thread lets it wait 5 ms, and until then each push would find the lock taken.
            while not self._sending.acquire(blocking=False):
                self._wake.wait(A_MOMENT)
            self._scheduler.is_armed = (
                False  # before what waits is looked at: who adds to it from here on arms again
            )
            try:
                self._flush(None)
            finally:
                self._sending.release()

    def _tell(self, hearer: ReaderSession, gateway: BroadcastGateway, *, takes: bool) -> None:
        self._told.append((hearer, gateway.channel.name, takes, gateway))
        self._pump()

    def _is_quiet(self) -> bool:
        return self._now() - self.due_ns > QUIET_NS - TOGETHER_NS

    def _pump(self) -> None:
        """Write what there is room for; the broadcast's own task does the rest.

        And all of it for the main thread, the one that signals interrupt: between what waits and the ring are
        many steps.
        """
        if get_ident() == main_thread().ident or not self._sending.acquire(blocking=False):
            self._arm()
            return
        try:
            if not self._flush(0.0):
                self._arm()
        finally:
            self._sending.release()

    # All of these run under `_sending`.

    def _misses(self, row: int, unread: list[bytes]) -> bool:
        """Whether a reader would miss events if it did not read these, nor what waits behind them."""
        hearer = self._readers.get(row)
        if hearer is None:
            return True  # it has not said yet who it is
        return would_miss([*unread, *self._unsent], hearer, self._judge(hearer), self._gateways)

    def _judge(self, hearer: ReaderSession) -> LossCounter:
        return LossCounter(self._maker.streams, hearer.wishes, self._monotonic)

    def _overtaken(self, row: int, first: int, unread: list[bytes]) -> None:
        """The ring has ended a reader, and this is what it did not read, from that record on."""
        self._arm()
        hearer = self._readers.pop(row, None)
        if hearer is None or self._closed:
            return  # it has not said who it is: then it gets nothing yet, and will be told that it is late
        hearer.is_ended = True
        records = [*unread, *self._unsent]
        # A session that is over may have been the last one that wanted a channel.
        gateways = {**self._gateways, **_heard(hearer)}
        missed = self._count_missed(records, first, hearer, gateways, OVERTAKEN)
        for gateway in tuple(self._gateways.values()):
            # Who is ended later has read at least as far.
            gateway.forget_overtaken(first if self._readers else first + len(records))
        self._held.add(hearer)
        # While something is to be told nobody writes events past it.
        self._told.extend((hearer, channel, False, 0) for channel in hearer.takes)
        self._on_overtaken(hearer, missed)

    def _count_missed(
        self,
        records: list[bytes],
        first: int,
        hearer: ReaderSession,
        gateways: Mapping[str, BroadcastGateway],
        reason: str,
    ) -> Counter[str]:
        """What a reader did not get of these records is counted; nobody waits for it to confirm them."""
        judge = self._judge(hearer)
        found = list(missed_in(records, (hearer.station, hearer.row), hearer.takes, judge))
        if judge.gave_up:
            log.warning("asking the filters of station %016x took too long: %s", hearer.station, IN_DOUBT)
        unread = events_by_channel(records, self._maker.streams)
        with self.counting:
            missed = count_missed(found, first, hearer, gateways, reason=reason)
            for hearing in hearer.hearings:
                events = min(unread[hearing.channel.name], hearing.unconfirmed)
                hearing.owed.settle(hearing.account, events)
        return missed

    def _flush(self, timeout: float | None) -> bool:
        """Write all that waits; False when there was no room for it, or it must not be written yet."""
        while not self._held and (self._unsent or self._make_records()):
            if self._closed:
                self._unsent.clear()
            elif not self._unsent:
                continue  # what waited could not be written
            elif self._pacing.write(self._unsent[0], timeout):
                self._unsent.popleft()
            else:
                return False
        return not self._held

    def _append_and(self, count: Callable[[], None], gateway: RowGateway, *parts: Buffer) -> bool:
        """Write a record and count its events; also if an interrupt comes when it stands in the ring."""
        queue = gateway.queue
        assert isinstance(queue, BroadcastQueue)
        before, aired = self.ring.sequence, gateway.made + queue.written
        try:
            if not self._append(*parts):
                return False
            count()
        except BaseException:
            if self.ring.sequence != before and gateway.made + queue.written == aired:
                count()
            raise
        finally:
            queue.tell_quiet()
        return True

    def _append(self, *parts: Buffer, timeout: float | None = 0.0) -> bool:
        """Whether there was room for a record. What is too large for one comes here in pieces."""
        size = sum(map(len, parts))
        if size > self.ring.largest:
            return False
        try:
            if size >= LARGE:  # not summed up: what counts is whether it was written over
                self.ring.append_parts(parts, timeout, summed=False)
            elif not self.ring.put(record := b"".join(parts)):
                self.ring.append_parts((record,), timeout)
        except RingFull:
            return False
        except RingClosed:
            self._closed = True
            return False
        # What follows a large one has nothing to gain from waiting for others.
        self.due_ns = self._now() + (TOGETHER_NS if size < LARGE else 0)
        return True

    def _make_records(self) -> bool:
        """Make records of what waits; whether there are any."""
        with self._taking:
            if not self._told:
                return self._take_events()
        self._unsent.append(self._said())
        return True

    def _take_events(self) -> bool:
        """The same of events."""
        while self._rows:
            of = self._rows.popleft()
            of.armed = False  # before its rows are looked at: who adds one from here on arms again
            is_made = self._maker.add_rows(of)
            self._known_head(of)
            if is_made:
                return True
        while self._ready:
            gateway = self._ready.popleft()
            # Before its events are taken: who queues the first one from here on lists it again.
            gateway.listed = False
            if gateway.paused:
                continue
            assert isinstance(gateway, BroadcastGateway)
            assert isinstance(gateway.queue, GatewayQueue)
            _, items = gateway.queue.drain(MOST_AT_ONCE)
            if gateway.queue.waiting:
                self._list(gateway)
            if items:
                self._maker.add(gateway, items)
                return True
        return False

    def _said(self) -> bytes:
        """What is to be told, with what stations must know to take a channel from here on."""
        said: list[bytes] = []
        while self._told:
            hearer, channel, takes, sent = self._told.popleft()
            (hearer.takes.add if takes else hearer.takes.discard)(channel)
            if isinstance(sent, BroadcastGateway):
                gateway, sent = sent, sent.aired
                gateway.said(hearer, sent, takes=takes)
                if takes:
                    said += [m.encode(self._maker.announced(gateway, cls)) for cls in gateway.heads]
                if gateway.begins_at == NOT_SAID:
                    gateway.begins_at = self.ring.sequence + len(self._unsent)
            if takes:
                self._left.pop((hearer, channel), None)
            elif self.lane == BEST_EFFORT and not hearer.is_over:
                self._left[hearer, channel] = sent
            told = m.Takes(hearer.station, channel, takes, sent, hearer.row)
            said.append(m.encode(told))
        return m.run_bytes(m.RECORDS, m.MESSAGES, len(said), m.array_of(said))


def _heard(hearer: ReaderSession) -> dict[str, BroadcastGateway]:
    """The gateways of the channels that a session takes, or took last."""
    return {hearing.channel.name: hearing.gateway for hearing in hearer.hearings}
