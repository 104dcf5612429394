"""Reads the streams of all peers: one thread per station, which calls callbacks as the reader of a link does.

What was put is taken in in order and each event once. What did
not come is asked for over the session, one question at a time for each lane; what comes behind it waits. What
the source has no more is counted as lost, and the stream goes on behind it.

Whoever is in the network of the domain can put under the keys of a stream, so a put is believed less than a
session: what cannot be read of one is left out and asked for, and counts as refused only when the source
answers with the same. A number that the source has not reached is forgotten when it says so, and a question
that brought nothing is asked again with the next put or heartbeat, not at once.

A station that changes what it wants gets another stream, of which nothing is handed on before it has all of
the old one. When a peer is gone, what has come of its streams is handed on, and what is known to be missing
counts as lost with it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.dispatch.reader_handover import HandedOver
from heliograph.errors import BadFrame, HeliographError, LinkLost
from heliograph.links.contract import LANES
from heliograph.links.session import messages as m
from heliograph.links.session.confirmation import PEER_LOST
from heliograph.links.session.retransmission import Batch, Inbox
from heliograph.links.streams.gateway import OVERRUN, StreamStats
from heliograph.links.streams.layout import HEARTBEAT, PIECE, read_piece, read_put
from heliograph.links.streams.publisher import REPAIR
from heliograph.runtime import fault_points

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.dispatch.reader_handover import NewReader
    from heliograph.links.contract import StreamKey, StreamTransport
    from heliograph.links.mesh.peer import Peer
    from heliograph.links.session.rpc import Rpc
    from heliograph.links.streams.layout import StreamPut
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

AT_ONCE: Final = 256
"""Puts that are taken in before callbacks that they made ready are run."""
MAX_ROUNDS: Final = 64
"""How often so many are taken in at most before those of a peer that is gone are all among them."""
MAX_HELD: Final = 1_024
"""Puts of one stream that wait for another stream to end, or to be told of it."""
MAX_HELD_BYTES: Final = 64 << 20
"""Bytes of all puts that wait to be told of their stream; of one stream, those that wait for another."""
ACK_EVENTS: Final = 4_096
ACK_BYTES: Final = 1 << 20
"""What is taken in of a stream before it is acknowledged without being asked."""
DRAIN_LIMIT: Final = 1.0
"""Seconds for which a session that begins waits for what has come in the last one."""

_read_answer: Final = msgspec.msgpack.Decoder(
    tuple[m.Events, list[tuple[m.Events, m.Events, m.Events, m.Events, bytes]]]
).decode


class _Parts:
    """A put that comes in pieces."""

    def __init__(self, first: int, count: int, size: int) -> None:
        self.first = first
        self.count = count
        self.size = size
        self._parts: dict[int, bytes] = {}

    @property
    def reached(self) -> int:
        """Up to where all of it is there."""
        place = 0
        while place in self._parts:
            place += len(self._parts[place])
        return place

    def add(self, place: int, part: bytes) -> None:
        known = self._parts.get(place, b"")
        if len(part) > len(known):
            self._parts[place] = part

    def whole(self) -> Batch[memoryview] | None:
        if self.reached < self.size:
            return None
        found, place = [], 0
        while place < self.size:  # what was asked for may overlap what came by itself
            found.append(self._parts[place])
            place += len(found[-1])
        return Batch(self.first, self.count, memoryview(b"".join(found)))


class _Lane:
    """What has come of one lane of a stream."""

    def __init__(self, since: int) -> None:
        self.inbox: Inbox[memoryview] = Inbox()
        self.inbox.received = self.inbox.announced = since
        self.is_asked = False
        """Whether a question for what is missing waits for its answer."""
        self.stalled: Batch[memoryview] | None = None
        """What cannot be read before its class was told."""
        self.parts: _Parts | None = None

    @property
    def place(self) -> tuple[int, int]:
        """The first number that has not come, and up to where its bytes have."""
        first = self.inbox.received + 1
        return first, self.parts.reached if self.parts is not None and self.parts.first == first else 0


class IncomingStream:
    """What this station takes of a stream of a peer, from one event on until another one."""

    def __init__(self, peer: Peer, begin: m.StreamBegin) -> None:
        self.peer = peer
        self.number = begin.number
        self.channel = begin.channel
        self.derivation = begin.derivation
        self.since = begin.since
        self.until: tuple[int, ...] | None = None
        self.lanes = [_Lane(since) for since in begin.since]
        self.after: IncomingStream | None = None
        """What is handed on first, until it has ended."""
        self.held: list[tuple[int, StreamPut]] = []
        self.held_bytes = 0
        self.is_over = False
        self.events = 0
        self.puts = 0
        self.bytes = 0
        self.repaired = 0
        self.lost: Counter[str] = Counter()
        self.unacked_events = 0
        self.unacked_bytes = 0

    @property
    def received(self) -> tuple[int, ...]:
        return tuple([lane.inbox.received for lane in self.lanes])

    @property
    def is_missing(self) -> bool:
        """Whether something did not come, and is not asked for."""
        return any(lane.inbox.wanted() is not None and not lane.is_asked for lane in self.lanes)

    @property
    def is_complete(self) -> bool:
        """Whether it has ended, and all of it is handed on. Not before what is handed on first."""
        is_ended = self.until is not None and self.after is None
        return is_ended and all(map(int.__ge__, self.received, self.until or ()))

    def stats(self) -> StreamStats:
        return StreamStats(
            self.channel,
            self.derivation,
            self.peer.link.name,
            1,
            self.events,
            self.puts,
            self.bytes,
            self.repaired,
            dict(self.lost),
        )


class StreamReader:
    """See the module.

    Args:
        transport: what carries streams.
        questions: where to ask for what did not come.
        is_met: whether there is a session with a station; of others nothing is kept.
        hand_on: takes in a run of a peer's events without its first ones.
        begin_reading: told when streams of a peer are read from now on.
        end_reading: told when all that has come of them is handed on.
        new_reader: what a thread that reads runs callbacks with.
    """

    def __init__(
        self,
        transport: StreamTransport,
        ports: Ports,
        questions: Rpc,
        *,
        is_met: Callable[[int], bool],
        hand_on: Callable[[Peer, m.Run, int], None],
        begin_reading: Callable[[Peer], None],
        end_reading: Callable[[Peer], None],
        new_reader: NewReader,
    ) -> None:
        self._transport = transport
        self._tasks = ports.tasks
        self._questions = questions
        self._is_met = is_met
        self._hand_on = hand_on
        self._begin_reading = begin_reading
        self._end_reading = end_reading
        self._to_do: deque[Callable[[], None]] = deque()
        self._streams: dict[tuple[int, int], list[IncomingStream]] = {}
        self._early: dict[tuple[int, int], list[tuple[StreamKey, bytes]]] = {}
        self._early_bytes = 0
        self._rounds = 0
        """How often in a row more has come than was taken."""
        self._closed = False
        self.taken = 0
        """Puts that were taken in."""
        self._turn = new_reader("streams of peers")
        self._turn.go_on = self._read
        ports.tasks.spawn("streams of peers", self._read)

    # What a peer says, in the task that reads its link

    def hear(self, peer: Peer, message: m.StreamBegin | m.StreamEnd) -> None:
        if isinstance(message, m.StreamBegin):
            if not peer.streams.is_read:
                peer.streams.is_read = True
                self._begin_reading(peer)
            self._do(partial(self._begin, peer, message))
        else:
            self._do(partial(self._end, peer, message))

    def announced(self, peer: Peer) -> None:
        """It has told of a class."""
        if peer.streams.is_read:
            self._do(partial(self._retry, peer))

    def finish(self, peer: Peer) -> None:
        """A peer is gone: hand on what has come, however long that takes; returns at once."""
        if peer.streams.is_read:
            self._do(partial(self._finish, peer))

    def end(self, peer: Peer) -> None:
        """The same, and wait for it, unless nothing was taken in for a while."""
        if not peer.streams.is_read:
            return
        done = self._tasks.event("end of streams")
        self._do(partial(self._finish, peer, done.set))
        taken = -1
        while not done.wait(DRAIN_LIMIT) and taken != self.taken and not self._closed:
            taken = self.taken

    def acks(self, peer: Peer) -> list[m.Message]:
        """What to say with a heartbeat; what was asked for and not answered is asked for again."""
        if any(one.is_missing for one in self._all() if one.peer is peer):
            self._do(partial(self._ask_again, peer))
        mine = [one for one in self._all() if one.peer is peer and one.unacked_events]
        for one in mine:
            one.unacked_events = one.unacked_bytes = 0
        return [m.StreamAck(one.number, one.received) for one in mine]

    def stats(self) -> list[StreamStats]:
        return [one.stats() for one in self._all()]

    def close(self) -> None:
        self._closed = True
        self._transport.wake()

    def _all(self) -> list[IncomingStream]:
        return [one for streams in tuple(self._streams.values()) for one in streams]

    def _do(self, what: Callable[[], None]) -> None:
        """In the thread that reads, behind all that has come."""
        self._to_do.append(what)
        self._transport.wake()

    # In the thread that reads

    def _read(self) -> None:
        """Until the end, or until another thread does."""
        try:
            self._turn.begin()
            while not self._closed:
                came = self._transport.receive(AT_ONCE)
                self._rounds = 0 if len(came) < AT_ONCE else self._rounds + 1
                self._turn.received()
                for key, data in came:
                    self._tried(self._take, key, data)
                for _ in range(len(self._to_do)):
                    self._tried(self._to_do.popleft())
                if self._to_do:
                    self._transport.wake()
                self._turn.run_claims()
        except HandedOver:
            return
        except LinkLost as error:
            log.debug("streams are read no more: %s", error)
        self._turn.end()

    def _tried(self, work: Callable[..., None], *of: Any) -> None:
        try:
            work(*of)
        except BadFrame as error:
            log.warning("put into a stream: %s", error)
        except Exception:
            log.exception("a put into a stream could not be taken in")

    def _take(self, key: StreamKey, data: bytes) -> None:
        if fault_points.loses("stream-put"):
            return
        self.taken += 1
        put = read_put(data, f"{key.station:016x}")
        streams = self._streams.get((key.station, put.number))
        if streams is None:
            if not self._is_met(key.station):
                return
            early = self._early.setdefault((key.station, put.number), [])
            early.append((key, data))
            self._early_bytes += len(data)
            if len(early) > MAX_HELD:
                self._pop_early((key.station, put.number))
            while len(self._early) > MAX_HELD or self._early_bytes > MAX_HELD_BYTES:
                self._pop_early(next(iter(self._early)))
            return
        for stream in streams:
            is_known = (stream.channel, stream.derivation) == (key.channel, key.derivation)
            if is_known and stream.since[key.lane] < put.first + (put.kind == HEARTBEAT):
                until = stream.until
                if put.kind == HEARTBEAT or until is None or put.first <= until[key.lane]:
                    stream.puts += put.kind != HEARTBEAT
                    stream.bytes += len(data) if put.kind != HEARTBEAT else 0
                    self._take_put(stream, key.lane, put)

    def _pop_early(self, key: tuple[int, int]) -> list[tuple[StreamKey, bytes]]:
        early = self._early.pop(key, [])
        self._early_bytes -= sum([len(data) for _, data in early])
        return early

    def _take_put(self, stream: IncomingStream, number: int, put: StreamPut) -> None:
        if stream.after is not None:
            if len(stream.held) < MAX_HELD and stream.held_bytes + len(put.payload) <= MAX_HELD_BYTES:
                stream.held.append((number, put))
                stream.held_bytes += len(put.payload)
            return
        lane = stream.lanes[number]
        batch: Batch[memoryview] | None
        if put.kind == HEARTBEAT:
            last = put.first if stream.until is None else min(put.first, stream.until[number])
            lane.inbox.heard_of(last)
            self._ask(stream, number)
            if not lane.is_asked:
                self._ack(stream)
            return
        if put.kind == PIECE:
            size, place, part = read_piece(put, stream.peer.link.name)
            batch = _put_together(lane, _Parts(put.first, put.count, size), place, bytes(part))
        else:
            batch = Batch(put.first, put.count, put.payload)
        if batch is not None:
            self._take_batch(stream, lane, batch)
        else:
            lane.inbox.heard_of(put.first - 1)
        self._ask(stream, number)

    def _take_batch(
        self, stream: IncomingStream, lane: _Lane, batch: Batch[memoryview], *, is_answer: bool = False
    ) -> None:
        ready = lane.inbox.take(batch)
        self._let_through(stream, lane, deque(ready), answer=batch if is_answer else None)

    def _let_through(
        self,
        stream: IncomingStream,
        lane: _Lane,
        ready: deque[tuple[Batch[memoryview], int]],
        answer: Batch[memoryview] | None = None,
    ) -> None:
        while ready:
            batch, skip = ready.popleft()
            try:
                is_handed_on = self._hand_on_all(stream, lane, batch, skip, is_answer=batch is answer)
            except BadFrame as error:  # nobody knows who put it: the source is asked what it should be
                log.warning("put into a stream: %s", error)
            else:
                if is_handed_on:
                    continue
                lane.stalled = batch
            for other, _ in ready:
                lane.inbox.take(other)
            return
        if stream.unacked_events >= ACK_EVENTS or stream.unacked_bytes >= ACK_BYTES:
            self._ack(stream)
        if stream.is_complete and not stream.is_over:
            self._completed(stream)

    def _hand_on_all(
        self, stream: IncomingStream, lane: _Lane, batch: Batch[memoryview], skip: int, *, is_answer: bool
    ) -> bool:
        """False when a class of it was not told yet; BadFrame for a put from which on it cannot be read."""
        peer, inbox = stream.peer, lane.inbox
        events = batch.count - skip
        before = inbox.received
        try:
            runs = m.read_runs(batch.payload, batch.count, peer.link.name)
            if any(run.stream not in peer.advertised.streams for run in runs):
                return False
            for run in runs:
                left = min(skip, run.length)
                skip -= left
                if left < run.length:
                    self._hand_on(peer, run, left)
                    inbox.received += run.length - left
        except Exception as error:
            if isinstance(error, BadFrame) and not is_answer:
                stream.events += inbox.received - before
                stream.unacked_events += inbox.received - before
                raise
            lost = before + events - inbox.received
            log.error("%d events of stream %s are left out: %s", lost, stream.channel, error)  # noqa: TRY400 - the sentence says all
            peer.reports.taken.refuse(stream.channel, lost)
        inbox.received = before + events
        stream.events += events
        stream.unacked_events += events
        stream.unacked_bytes += len(batch.payload)
        return True

    def _ask(self, stream: IncomingStream, number: int) -> None:
        """Ask the source for what did not come, unless it was asked already."""
        lane = stream.lanes[number]
        wanted = lane.inbox.wanted()
        if wanted is None or lane.is_asked or lane.stalled is not None or stream.peer.link.closed:
            return
        first, last = wanted
        place = lane.place[1]
        lane.is_asked = True
        answered = partial(self._answered, stream, number, (first, place))
        self._questions.ask_later(
            stream.peer.link, REPAIR, (stream.number, number, first, last, place), answered
        )

    def _answered(
        self,
        stream: IncomingStream,
        number: int,
        asked: tuple[int, int],
        answer: msgspec.Raw | HeliographError,
    ) -> None:
        """In the task that reads the link."""
        self._do(partial(self._take_answer, stream, number, asked, answer))

    def _take_answer(
        self,
        stream: IncomingStream,
        number: int,
        asked: tuple[int, int],
        answer: msgspec.Raw | HeliographError,
    ) -> None:
        """What there is from the number on that was asked for, and the place in its bytes."""
        lane = stream.lanes[number]
        lane.is_asked = False
        if not any(stream is one for one in self._all()):
            return
        if isinstance(answer, HeliographError):
            log.debug("stream of %s: %s", stream.channel, answer)
            return  # the next put or heartbeat has it asked again
        gone, found = m.decoded(_read_answer, answer, stream.peer.link.name)
        wanted = lane.inbox.wanted()  # some of it may have come meanwhile
        while wanted is not None and wanted[0] <= gone:
            first, last = wanted[0], min(wanted[1], gone)
            stream.peer.link.post(m.StreamLost(stream.number, number, first, last))
            self._lose(stream, lane, last, OVERRUN)
            wanted = lane.inbox.wanted()
        for first, count, size, place, part in found:
            batch: Batch[memoryview] | None
            if not place and len(part) == size:
                batch = Batch(first, count, memoryview(part))
            else:
                if size > m.MAX_EVENT or place + len(part) > size:
                    raise BadFrame(stream.peer.link.name, f"{len(part)} bytes at {place} of {size}")
                parts = lane.parts
                if parts is None or (parts.first, parts.count, parts.size) != (first, count, size):
                    lane.parts = _Parts(first, count, size)
                batch = _put_together(lane, _Parts(first, count, size), place, part)
            if batch is not None:
                stream.repaired += max(0, batch.last - max(batch.first - 1, lane.inbox.received))
                self._take_batch(stream, lane, batch, is_answer=True)
        if not found and gone < asked[0] == lane.inbox.received + 1:
            lane.inbox.unsay(0 if stream.until is None else stream.until[number])
        if lane.place > asked:
            self._ask(stream, number)
        if not lane.is_asked:
            self._ack(stream)

    def _lose(self, stream: IncomingStream, lane: _Lane, last: int, reason: str) -> None:
        """All up to this number that has not come will not."""
        lost = last - lane.inbox.received
        stream.lost[reason] += lost
        stream.peer.losses.unrepaired[stream.channel] += lost
        log.error(
            "%d events of %s of station %s are lost: %s",
            lost,
            stream.channel,
            stream.peer.link.text,
            "they did not come, and are not kept there any more" if reason == OVERRUN else "it is gone",
        )
        stream.unacked_events += lost
        self._let_through(stream, lane, deque(lane.inbox.skip(last)))

    def _ack(self, stream: IncomingStream) -> None:
        stream.unacked_events = stream.unacked_bytes = 0
        peer = stream.peer
        peer.link.post(m.StreamAck(stream.number, stream.received), *peer.reports.news())

    # What was said, in order with what has come

    def _begin(self, peer: Peer, begin: m.StreamBegin) -> None:
        stream = IncomingStream(peer, begin)
        key = (peer.link.station, begin.number)
        if begin.after:
            ending = self._streams.get((peer.link.station, begin.after), [])
            stream.after = next((one for one in reversed(ending) if one.until is not None), None)
        self._streams.setdefault(key, []).append(stream)
        for early in self._pop_early(key):
            self._take(*early)

    def _end(self, peer: Peer, end: m.StreamEnd) -> None:
        for stream in self._streams.get((peer.link.station, end.number), ()):
            if stream.until is None:
                stream.until = end.until
                for number, lane in enumerate(stream.lanes):
                    lane.inbox.announced = min(lane.inbox.announced, end.until[number])
                    lane.inbox.heard_of(end.until[number])
                    if stream.after is None:
                        self._ask(stream, number)
                if stream.is_complete and not stream.is_over:
                    self._completed(stream)
                return

    def _completed(self, stream: IncomingStream) -> None:
        """All of it is handed on: who waited for that goes on."""
        stream.is_over = True
        key = (stream.peer.link.station, stream.number)
        left = [one for one in self._streams.get(key, ()) if one is not stream]
        if left:
            self._streams[key] = left
        else:
            self._streams.pop(key, None)
        self._ack(stream)
        stream.peer.streams.add_ended(stream.stats())
        for other in self._all():
            if other.after is stream:
                self._go_on(other)

    def _go_on(self, stream: IncomingStream) -> None:
        stream.after = None
        held, stream.held, stream.held_bytes = stream.held, [], 0
        for number, put in held:
            self._take_put(stream, number, put)
        for number in range(LANES):
            self._ask(stream, number)
        if stream.is_complete and not stream.is_over:
            self._completed(stream)

    def _ask_again(self, peer: Peer) -> None:
        for stream in self._all():
            if stream.peer is peer and stream.after is None:
                for number, lane in enumerate(stream.lanes):
                    lane.stalled = None  # its class has not come since: the answer will be behind it
                    self._ask(stream, number)

    def _retry(self, peer: Peer) -> None:
        for stream in self._all():
            for number, lane in enumerate(stream.lanes):
                if stream.peer is peer and lane.stalled is not None:
                    batch, lane.stalled = lane.stalled, None
                    self._take_batch(stream, lane, batch)
                    self._ask(stream, number)

    def _finish(self, peer: Peer, done: Callable[[], object] = lambda: None, rounds: int = 0) -> None:
        """Hand on what there is, in order; what is missing in between is lost with the session."""
        if self._rounds and rounds < MAX_ROUNDS:  # what it had put before may still wait
            self._to_do.append(partial(self._finish, peer, done, rounds + 1))
            return
        mine = [one for one in self._all() if one.peer is peer]
        for stream in sorted(mine, key=_is_waiting):
            if stream.after is not None:
                self._go_on(stream)
            for lane in stream.lanes:
                while (wanted := lane.inbox.wanted()) is not None and lane.stalled is None:
                    self._lose(stream, lane, wanted[1], PEER_LOST)
            key = (peer.link.station, stream.number)
            left = [one for one in self._streams.get(key, ()) if one is not stream]
            if left:
                self._streams[key] = left
            elif self._streams.pop(key, None) is not None:
                peer.streams.add_ended(stream.stats())
        for known in [key for key in self._early if key[0] == peer.link.station]:
            self._pop_early(known)
        if peer.streams.is_read:
            peer.streams.is_read = False
            self._end_reading(peer)
        done()


def _is_waiting(stream: IncomingStream) -> bool:
    return stream.after is not None


def _put_together(lane: _Lane, whole: _Parts, place: int, part: bytes) -> Batch[memoryview] | None:
    """A piece has come; the put that it was the last one of, if it was.

    One put at a time: what is missing of it when the next one begins is asked for.
    """
    parts = lane.parts
    if whole.first <= lane.inbox.received:
        return None
    if parts is None or parts.first <= lane.inbox.received:
        parts = lane.parts = whole
    if (parts.first, parts.count, parts.size) != (whole.first, whole.count, whole.size):
        lane.inbox.heard_of(max(parts.first + parts.count, whole.first) - 1)
        return None
    parts.add(place, part)
    batch = parts.whole()
    if batch is not None:
        lane.parts = None
    return batch
