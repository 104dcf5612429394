"""Publishes streams: an event is encoded and put once for all stations of other hosts that want the same.

A stream is what one derivation lets through of one channel (`heliograph.links.streams.layout`), with a
sequence of its own for each lane. Puts are plain and may be lost: nobody waits for a reader to take them.
Who lacks some asks for them over its session (`REPAIR`), and is answered from the rings of the stream. What
is in no ring any more is lost, and counted at both ends (`OVERRUN`). A lost tail is found by heartbeats,
which come only after events were put, and end when all who hear the stream have said that they have them.

A reliable channel waits for readers when a ring is full, as it does for the queue of a consumer, but not for
one that stands still (`HOLD_LIMIT`).

What a station wants may change, and with it its stream. The last event of the old one and the first of the
new one are decided while no push is half done, and what waits for both is put before. So each event that is
wanted before and after comes once.

Locks: `_joining` orders changes of who hears what, and comes before the locks of channels. `_sending` is held
while events are numbered and put, and taken under the lock of a channel's entry: pushing threads only try.
Under it nothing is called that takes a lock of a channel.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from threading import get_ident, main_thread  # only to know a thread again; threads come from the port
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from heliograph.errors import QueryFailed
from heliograph.links.session import messages as m
from heliograph.links.session.audience import Hearing
from heliograph.links.session.confirmation import CLOSED
from heliograph.links.session.pack import MOST_AT_ONCE, UNWRITABLE, made_or_none, runs_of, sound_run
from heliograph.links.session.send_scheduler import QUIET_NS, SendScheduler
from heliograph.links.streams.gateway import StreamGateway, StreamHearer, StreamLimits
from heliograph.links.streams.layout import PIECE_BYTES, events_put, heartbeat_put, pieces_of
from heliograph.model.event import info_of
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.channel import Channel
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.contract import StreamTransport
    from heliograph.links.mesh.peer import Peer
    from heliograph.links.session.gateway import PeerGateway
    from heliograph.links.session.retransmission import RecordSource
    from heliograph.links.session.rpc import Reply
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.links.streams.gateway import StreamStats
    from heliograph.links.streams.sent_ring import SentRing
    from heliograph.model.event import Event
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

REPAIR: Final = "stream"
"""The topic of questions for events that did not come."""
LOOK_EVERY: Final = 0.05
"""Seconds between two looks at whether a heartbeat is due, while there is a stream."""
FIRST_BEAT_NS: Final = 100_000_000
LONGEST_BEAT_NS: Final = 1_000_000_000
"""How long after the last put a heartbeat comes, if not all have confirmed; twice as long each time."""
HOLD_LIMIT: Final = 0.5
"""Seconds for which a reader that acknowledges nothing may hold up a stream whose ring is full."""
PUT_BYTES: Final = 256 << 10
"""Bytes of events from which on they are put apart."""
PAGE_BYTES: Final = 1 << 20
"""Bytes of events that one answer to a reader has, if that is more than one put."""
FLUSH_LIMIT: Final = 1.0
"""Seconds for which a station that leaves waits for its readers at least."""
Question: TypeAlias = tuple[int, int, m.Events, m.Events, m.Events]
"""A stream, a lane, the first and the last number, and where in the first put to begin."""
_read_question: Final = msgspec.msgpack.Decoder(Question).decode


class StreamPublisher:
    """See the module.

    Args:
        station: this one.
        transport: what carries streams.
        writer: turns events into runs.
        stream_of: the number of a channel and a format, as sessions have it.
        limits: what each lane of a stream keeps.
    """

    def __init__(
        self,
        station: int,
        transport: StreamTransport,
        ports: Ports,
        *,
        writer: EventWriter,
        stream_of: Callable[[str, bytes], int],
        limits: StreamLimits,
    ) -> None:
        self._station = station
        self._transport = transport
        self._now = ports.clock.monotonic_ns
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._writer = writer
        self._stream_of = stream_of
        self._limits = limits
        self._joining = ports.tasks.lock("readers of streams")
        self._sending = ports.tasks.lock("streams")
        self._wake = ports.tasks.signal("streams")
        self._scheduler = SendScheduler(self._wake, self._is_quiet, self._pump)
        self._ready = self._scheduler.listed
        self.ready = self._scheduler.ready
        """A gateway has events."""
        self._arm = self._scheduler.arm
        self._gateways: dict[tuple[str, str], StreamGateway] = {}
        """Streams that somebody hears, by channel and derivation."""
        self._numbered: dict[int, StreamGateway] = {}
        """Those, and streams whose last readers have not acknowledged all of it."""
        self._numbers = count(1)
        self._last_sent_ns = 0
        self._closed = False
        ports.tasks.spawn("streams", self._write)

    # Who hears what

    def move(
        self,
        peer: Peer,
        old: StreamGateway | None,
        channel: Channel[Any],
        conditions: Mapping[type[Event], Any],
        derivation: str,
    ) -> StreamGateway:
        """From one event on a station gets a stream of a channel, behind all of the old one if it has one."""
        with self._joining:
            gateway = self._gateways.get((channel.name, derivation))
            if gateway is not None and gateway is old and gateway.channel is channel:
                return gateway
            is_new = gateway is None or gateway.channel is not channel
            if gateway is None or is_new:
                gateway = StreamGateway(
                    channel,
                    conditions,
                    self,
                    derivation=derivation,
                    number=next(self._numbers),
                    station=self._station,
                    limits=self._limits,
                )
            said: list[m.Message] = []
            change = partial(self._change, peer, old, gateway, said)
            channel.neighbours.hand_over(change, gateway if is_new else None)
            self._gateways[channel.name, derivation] = gateway
            self._numbered[gateway.number] = gateway
            peer.link.post(*said)
            if old is not None:
                self._close_unheard(old, CLOSED)
        return gateway

    def _change(
        self, peer: Peer, old: StreamGateway | None, gateway: StreamGateway, said: list[m.Message]
    ) -> StreamGateway | None:
        """While no push is half done. The old one, if nobody hears it any more."""
        with self._sending:
            after = 0
            if old is not None:
                self._flush(old)
                said += self._ended(old, peer)
                after = old.number
            self._flush(gateway)
            hearer = StreamHearer(peer, gateway.lasts, self._now())
            hearing = hearer.hearing = Hearing(gateway, hearer, peer.reports.owed, peer.link.ask)
            hearing.begin(gateway.aired)
            gateway.hearers.append(hearer)
            gateway.readdress()
            gateway.audience.add(hearing, gateway.hearers.__contains__)
            said += [self._announced(gateway, cls) for cls in gateway.told]
            begin = m.StreamBegin(
                gateway.number, gateway.channel.name, gateway.derivation, hearer.since, after
            )
            said.append(begin)
        return old if old is not None and not old.current else None

    def _ended(self, gateway: StreamGateway, peer: Peer) -> list[m.Message]:
        hearer = gateway.hearer_of(peer)
        if hearer is None:
            return []
        hearer.until = gateway.lasts
        gateway.readdress()
        if hearer.hearing is not None:
            hearer.hearing.end(gateway.aired)
            peer.streams.sent_before += hearer.hearing.handed()
        return [m.StreamEnd(gateway.number, hearer.until)]

    def leave(self, peer: Peer, gateway: StreamGateway, reason: str = CLOSED) -> None:
        """A station wants nothing more of a channel, or is gone."""
        with self._joining:
            with self._sending:
                said = self._ended(gateway, peer)
                gateway.paused_by.discard(peer)
                gateway.tidy()
            if reason == CLOSED:
                peer.link.post(*said)
            self._close_unheard(gateway, reason)
        self.pause(peer, gateway, paused=False)

    def forget(self, peer: Peer) -> None:
        """A session is over: nobody asks for anything of it any more."""
        with self._joining:
            with self._sending:
                for gateway in tuple(self._numbered.values()):
                    gateway.hearers = [hearer for hearer in gateway.hearers if hearer.peer is not peer]
                    gateway.tidy()
            self._forget_unneeded()
        self._pump()

    def _close_unheard(self, gateway: StreamGateway, reason: str) -> None:
        if not gateway.current:
            if self._gateways.get((gateway.channel.name, gateway.derivation)) is gateway:
                del self._gateways[gateway.channel.name, gateway.derivation]
            gateway.drop(reason)
        self._forget_unneeded()

    def _forget_unneeded(self) -> None:
        for number, gateway in tuple(self._numbered.items()):
            if not gateway.hearers:
                del self._numbered[number]
                gateway.close_putters()

    def pause(self, peer: Peer, gateway: StreamGateway, *, paused: bool) -> None:
        """Stop sending while a consumer of any station is full; never with best effort."""
        if not gateway.is_reliable:
            return
        with self._joining:
            (gateway.paused_by.add if paused else gateway.paused_by.discard)(peer)
            is_over = gateway.paused and not gateway.paused_by
            gateway.paused = bool(gateway.paused_by)
        if is_over:
            self._list_again(gateway)

    def hear(self, peer: Peer, message: m.StreamAck | m.StreamLost) -> None:
        """A station says what it has of a stream, or will never have."""
        if isinstance(message, m.StreamAck):
            self._acked(peer, message)
        else:
            self._lost(peer, message)

    def _lost(self, peer: Peer, lost: m.StreamLost) -> None:
        with self._sending:
            gateway = self._numbered.get(lost.number)
            hearer = None if gateway is None else gateway.hearer_of_number(peer, lost.lane, lost.last)
            if gateway is None or hearer is None or not hearer.since[lost.lane] < lost.first <= lost.last:
                return
            gateway.lose(hearer, lost.lane, lost.first, lost.last)
        log.error(
            "%d events of %s are lost to station %s: they did not come, and are not kept any more",
            lost.last - lost.first + 1,
            gateway.channel.name,
            peer.link.text,
        )

    def _acked(self, peer: Peer, ack: m.StreamAck) -> None:
        """A station has all of a stream up to these numbers."""
        gateway = self._numbered.get(ack.number)
        if gateway is None:
            return
        with self._sending:
            if any(map(int.__gt__, ack.received, gateway.lasts)):
                return  # of a session that is over
            for hearer in gateway.hearers:
                if hearer.peer is peer:
                    hearer.ack(ack.received, self._now())
                    hearer.is_behind = hearer.is_behind and not self._has_caught_up(gateway, hearer)
            was_full = gateway.is_full
            gateway.tidy()
            is_over = not gateway.hearers
        if is_over:
            with self._joining:
                self._forget_unneeded()
        if was_full and not gateway.is_full:
            self._list_again(gateway)

    def _has_caught_up(self, gateway: StreamGateway, hearer: StreamHearer) -> bool:
        return all(
            hearer.acked[lane] + 1 >= ring.first_kept and ring.last - hearer.acked[lane] < MOST_AT_ONCE
            for lane, ring in gateway.rings.items()
        )

    def sent_to(self, peer: Peer) -> int:
        """Events of streams that a station hears, or did in this session."""
        heard = [hearer for gateway in tuple(self._numbered.values()) for hearer in gateway.current]
        return peer.streams.sent_before + sum(
            hearer.hearing.handed() for hearer in heard if hearer.peer is peer and hearer.hearing is not None
        )

    def stats(self) -> list[StreamStats]:
        return [gateway.stats() for gateway in tuple(self._numbered.values())]

    def repair(self, peer: Peer, body: msgspec.Raw, reply: Reply) -> None:
        """Answer a reader that asks for events: up to which number they are gone, then what there is."""
        number, lane, first, last, place = m.decoded(_read_question, body, peer.link.name)
        with self._sending:
            gateway = self._numbered.get(number)
            hearers = [] if gateway is None else [one for one in gateway.hearers if one.peer is peer]
            if gateway is None or not hearers or lane not in gateway.rings:
                reply(QueryFailed(f"stream {number}", "is not sent to the station that asks"))
                return
            ring = gateway.rings[lane]
            last = min(last, ring.last)
            gone = min(last, ring.first_kept - 1)
            found = _page(ring, max(first, gone + 1), last, place)
            gateway.repaired += sum([n for _, n, size, at, part in found if at + len(part) == size])
        reply((max(gone, first - 1), found))

    # What a gateway asks; in the pushing thread

    def send_now(self, gateway: PeerGateway, item: Item) -> bool:
        """Put an event that was pushed this instant; False when it has to be queued, or in a burst."""
        assert isinstance(gateway, StreamGateway)
        if not self._is_quiet():
            return False
        number = gateway.told.get(item[0].__class__)
        if number is None or gateway.paused or gateway.is_full or self._sending.mine():
            return False
        if not self._sending.acquire(blocking=False):
            return False
        try:
            record = made_or_none(self._writer.record, item)
            if record is None or len(record) > PUT_BYTES:
                return False
            assert gateway.bypassed is not None
            payload = m.run_bytes(m.RECORDS, number, 1, record)
            self._add(gateway, item[1].priority, 1, payload, gateway.bypassed.direct)
        finally:
            self._sending.release()
        return True

    def send_bulk(self, gateway: PeerGateway, bulk: OutgoingBatch) -> bool:
        """Likewise events that were pushed together."""
        assert isinstance(gateway, StreamGateway)
        cls = bulk.events[0].__class__
        number = gateway.told.get(cls)
        if number is None or gateway.paused or gateway.is_full or self._sending.mine():
            return False
        if not self._sending.acquire(blocking=False):
            return False
        try:
            records = made_or_none(self._writer.bulk, cls, bulk)
            if records is None or len(records) > PUT_BYTES or len(bulk) > gateway.at_once:
                return False
            assert gateway.bypassed is not None
            payload = m.run_bytes(m.UNIFORM, number, len(bulk), records)
            self._add(gateway, bulk.first.priority, len(bulk), payload, gateway.bypassed.direct)
        finally:
            self._sending.release()
        return True

    def ask(self) -> None:
        """Each reader is asked by itself."""

    # The life of it

    def close(self, timeout: float) -> None:
        """Put what waits, and let readers have what they did not get, for so many seconds."""
        until = self._now() + round(max(timeout, FLUSH_LIMIT) * 1e9)
        for gateway in tuple(self._gateways.values()):
            with self._sending:
                self._flush(gateway)
        while self._wants_more() and seconds_until(self._clock, until):
            with self._sending:
                self._beat(is_last=True)
            self._tasks.sleep(0.01)
        self._closed = True
        self._wake.notify()

    def _wants_more(self) -> bool:
        return any(
            not gateway.is_confirmed
            and any(not one.is_behind and not one.peer.is_gone for one in gateway.hearers)
            for gateway in tuple(self._numbered.values())
        )

    def _write(self) -> None:
        """A task of its own: heartbeats, and what pushing threads left over."""
        while not self._closed:
            self._wake.wait(LOOK_EVERY if self._numbered else None)
            with self._sending:
                self._scheduler.is_armed = False
                self._send_all()
                self._beat()

    def _is_quiet(self) -> bool:
        return self._now() - self._last_sent_ns > QUIET_NS

    def _pump(self) -> None:
        """Put what waits. Not in the main thread, the one that signals interrupt: here are many steps."""
        if (
            get_ident() == main_thread().ident
            or self._sending.mine()
            or not self._sending.acquire(blocking=False)
        ):
            self._arm()
            return
        try:
            self._send_all()
        finally:
            self._sending.release()

    def _list_again(self, gateway: StreamGateway) -> None:
        if not gateway.listed:
            self._scheduler.list(gateway)
        self._pump()

    # All of these run under `_sending`.

    def _send_all(self) -> None:
        """Put all that waits and may be put now."""
        while self._ready:
            gateway = self._ready.popleft()
            # Before its events are taken: who queues the first one from here on lists it again.
            gateway.listed = False
            assert isinstance(gateway, StreamGateway)
            if gateway.paused or gateway.is_full:
                continue
            if self._take(gateway) and gateway.queue.waiting and not gateway.listed:
                self._scheduler.list(gateway)

    def _flush(self, gateway: StreamGateway) -> None:
        """Put all that waits for a stream."""
        while gateway.queue.waiting and self._take(gateway):
            pass

    def _take(self, gateway: StreamGateway) -> bool:
        """Put the next events that wait; False when none do."""
        queue = gateway.queue
        queue.settle()  # what a call that was interrupted had in hand
        try:
            items = queue.take(gateway.at_once)
            if items:
                self._put_items(gateway, queue.priority or items[0][1].priority, items)
            return bool(items)
        finally:
            queue.settle()

    def _put_items(self, gateway: StreamGateway, lane: int, items: list[Item]) -> None:
        """Events of one lane, in one put or several where they are large."""
        drop = partial(gateway.queue.drop_taken, reason=UNWRITABLE)
        runs: list[bytes] = []
        events = size = 0
        for cls, run in runs_of(items, several=len(gateway.channel.types) > 1):
            sound, form, records = sound_run(self._writer, cls, run, drop)
            if len(sound) > 1 and len(records) > PUT_BYTES:
                if runs:
                    self._add(gateway, lane, events, b"".join(runs), gateway.queue)
                    runs, events, size = [], 0, 0
                half = len(sound) // 2
                self._put_items(gateway, lane, sound[:half])
                self._put_items(gateway, lane, sound[half:])
            elif sound and len(records) > m.MAX_EVENT:
                log.error("%s: an event of %d bytes is too large for a link", sound[0][1].id, len(records))
                drop(sound[0])
            elif sound:
                if runs and size + len(records) > PUT_BYTES:
                    self._add(gateway, lane, events, b"".join(runs), gateway.queue)
                    runs, events, size = [], 0, 0
                runs.append(m.run_bytes(form, self._number(gateway, cls), len(sound), records))
                events, size = events + len(sound), size + len(records)
        if runs:
            self._add(gateway, lane, events, b"".join(runs), gateway.queue)

    def _add(
        self, gateway: StreamGateway, lane: int, events: int, payload: bytes, source: RecordSource
    ) -> None:
        """Number events, keep them and put them."""
        ring = gateway.rings.get(lane) or gateway.ring(lane)
        batch = ring.add(events, payload, source)
        was_full = gateway.is_full
        if not ring.has_room:
            gateway.tidy()
        if len(payload) > PIECE_BYTES:
            for piece in pieces_of(gateway.number, batch.first, events, payload):
                self._put(gateway, lane, piece)
        else:
            self._put(gateway, lane, events_put(gateway.number, batch.first, events, payload))
        # After it is put, while the other end wakes up.
        self._last_sent_ns = gateway.last_put_ns = self._now()
        gateway.beat_after = FIRST_BEAT_NS
        if gateway.is_full and not was_full:  # readers are asked how far they are
            gateway.full_since = gateway.last_put_ns
            gateway.putter(lane, self._transport).put(heartbeat_put(gateway.number, ring.last))

    def _put(self, gateway: StreamGateway, lane: int, data: bytes) -> None:
        gateway.puts += 1
        gateway.put_bytes += len(data)
        (gateway.putters.get(lane) or gateway.putter(lane, self._transport)).put(data)

    def _number(self, gateway: StreamGateway, cls: type[Event]) -> int:
        """The number of a class; before its first use all who hear the stream are told."""
        number = gateway.told.get(cls)
        if number is None:
            announced = self._announced(gateway, cls)
            for hearer in gateway.current:
                hearer.peer.link.post(announced)
            number = gateway.told[cls] = announced.stream
        return number

    def _announced(self, gateway: StreamGateway, cls: type[Event]) -> m.Announce:
        fmt = info_of(cls).format
        stream = self._stream_of(gateway.channel.name, fmt.id)
        return m.Announce(stream, gateway.channel.name, fmt.id, fmt.description)

    def _beat(self, *, is_last: bool = False) -> None:
        """Say how far streams are of which something is unconfirmed, and wait for no reader for ever."""
        now = self._now()
        for gateway in tuple(self._numbered.values()):
            if gateway.is_full:
                self._give_up_waiting(gateway, now)
            if gateway.is_confirmed or (now - gateway.last_put_ns < gateway.beat_after and not is_last):
                continue
            gateway.last_put_ns = now
            gateway.beat_after = min(2 * gateway.beat_after, LONGEST_BEAT_NS)
            for lane, ring in gateway.rings.items():
                if any(hearer.acked[lane] < ring.last for hearer in gateway.hearers):
                    putter = gateway.putter(lane, self._transport)
                    putter.put(heartbeat_put(gateway.number, ring.last))

    def _give_up_waiting(self, gateway: StreamGateway, now: int) -> None:
        for hearer in gateway.hearers:
            since = max(gateway.full_since, hearer.moved_ns)
            has_all = all(hearer.acked[lane] >= ring.last for lane, ring in gateway.rings.items())
            if not (hearer.is_behind or has_all) and now - since > HOLD_LIMIT * 1e9:
                hearer.is_behind = True
                log.warning(
                    "station %s stands still: %s goes on without it",
                    hearer.peer.link.text,
                    gateway.channel.name,
                )
        gateway.tidy()
        if not gateway.is_full and gateway.queue.waiting and not gateway.listed:
            self._scheduler.list(gateway)
            self._arm()


def _page(ring: SentRing, first: int, last: int, place: int) -> list[tuple[int, int, int, int, bytes]]:
    """Of each batch its first number, its events, its size, and bytes of it from a place on."""
    found: list[tuple[int, int, int, int, bytes]] = []
    left = PAGE_BYTES
    for batch in ring.find(first, last):
        at = place if not found and 0 < place < len(batch.payload) else 0
        part = batch.payload[at : at + left] if at or len(batch.payload) > PAGE_BYTES else batch.payload
        if found and len(part) > left:
            break
        found.append((batch.first, batch.count, len(batch.payload), at, part))
        left -= len(part)
        if left <= 0:
            break
    return found
