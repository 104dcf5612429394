"""One link: all that two stations say to each other, over one connection after the other.

A link outlives its connections. When one breaks while the other station lives, the next one resumes: each
side says up to which number each lane has arrived, and the rest is sent again. A new incarnation of the
other station is another station, with a link of its own.

    post(message)        interest, queries and the like, on the control lane
    gateways             events to the other station; see `heliograph.link.gateway`
    on_message, on_run   what has arrived, called in the task that reads

Locks: `_sending` is held while frames are made and written. Pushing threads and the reader only ever try
it, and leave what they had to do to whoever has it: a reader that waited for a full socket would keep the
other end from ever emptying it. Under it nothing is called that takes a lock of a channel or supplier.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from heliograph.errors import BadFrame, LinkLost
from heliograph.link import messages as m
from heliograph.link.contract import CONTROL, LANES, MAX_FRAME
from heliograph.link.gateway import GatewayLane
from heliograph.link.sequence import Batch, Inbox, Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.lane import Item
    from heliograph.link.contract import Connection
    from heliograph.link.gateway import EventWriter, Gateway
    from heliograph.ports import Ports

log = logging.getLogger(__name__)

HEARTBEAT: Final = 0.5
"""Seconds between two heartbeats; a lost tail is found at the next one."""
ACK_RECORDS: Final = 2_048
ACK_BYTES: Final = 1 << 20
"""What a link takes in before it acknowledges without waiting for the next heartbeat."""
MOST_AT_ONCE: Final = 1_024
"""Events in one frame: enough to share the cost of a system call, few enough for others to have a turn."""
FRAME_BYTES: Final = 4 << 20
"""Bytes of events or messages from which on they are sent in several frames."""
MAX_EVENT: Final = MAX_FRAME - (2 << 20)
"""Bytes of the largest event: a frame holds it, its header and the description of its format."""
QUIET_NS: Final = 50_000
"""A link that sent nothing for so long is quiet: the next event is sent by the thread that pushes it."""


RESUME_LIMIT: Final = 10.0
"""Seconds without a connection after which the other station is given up, though it may live."""


class Listener(Protocol):
    """Who is told of what arrives; called in the task that reads the link."""

    def on_message(self, link: Link, message: m.Message) -> None: ...

    def on_run(self, link: Link, run: m.Run, skip: int) -> int:
        """Take in a run of events without its first `skip`; returns how many records it had."""
        ...

    def on_reset(self, link: Link) -> None:
        """Nothing said before counts: called before the first message of a new session goes out."""
        ...

    def on_lost(self, link: Link) -> None:
        """There has been no connection for too long."""
        ...


class LinkStats(msgspec.Struct, frozen=True):
    """One instant of a link."""

    peer: str
    connected: bool
    connections: int
    events_sent: int
    """Records with events, each counted once however often it was sent again."""
    frames_sent: int
    heartbeats_sent: int
    heartbeat_bytes: int
    bytes_sent: int
    bytes_received: int
    resent: int
    """Batches that were sent again."""
    gaps: int
    duplicates: int
    unacknowledged: int
    lost: int
    """Records given up because the other station had forgotten this one."""


class Link:
    """See the module."""

    def __init__(
        self,
        station: int,
        *,
        ports: Ports,
        writer: EventWriter,
        listener: Listener,
        stream_of: Callable[[str, bytes], int],
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self.station = station
        self.name = f"{station:016x}"
        self.peer = m.Hello(station, "", "", 0, 0, 0, (0,) * LANES)
        self.session = ports.random.id64()
        self.closed = False
        self.lost_since: int | None = ports.clock.monotonic_ns()
        self._clock = ports.clock
        self._random = ports.random
        self._writer = writer
        self._listener = listener
        self._stream_of = stream_of
        self._heartbeat = heartbeat
        self._sending = ports.tasks.lock(f"link {self.name}")
        self._reading = ports.tasks.lock(f"reader of {self.name}")
        self._epoch = 0
        self._wake = ports.tasks.signal(f"link {self.name}")
        self._changed = ports.tasks.condition(None, f"acks of {self.name}")
        self._connection: Connection | None = None
        self._unflushed = False
        # What is to be done under `_sending`; anybody may add to it.
        self._states: deque[m.State] = deque()
        self._state_due = False
        self._asks = False
        self._frames: deque[tuple[int, Batch[bytes]]] = deque()
        self._messages: deque[m.Message] = deque()
        self._ready: deque[Gateway] = deque()
        self._out: list[Outbox[bytes]] = []
        self._in: list[Inbox[memoryview]] = []
        self._told: set[tuple[int, int]] = set()
        # Counters; those of sending are written under `_sending`, those of reading by the reader alone.
        self._connections = 0
        self._events_sent = 0
        self._frames_sent = 0
        self._heartbeats = 0
        self._heartbeat_bytes = 0
        self._resent = 0
        self._lost = 0
        self._old_bytes = (0, 0)
        self._last_sent_ns = 0
        self._unacked_records = 0
        self._unacked_bytes = 0
        self._told_received: tuple[int, ...] = ()
        self._missing: dict[int, tuple[int, int]] = {}
        self._forget()
        self._task = ports.tasks.spawn(f"link to {self.name}", self._write)

    # For whoever has something to send

    def post(self, *posted: m.Message) -> None:
        """Send messages, in order and without fail, as long as both stations live."""
        self._messages.extend(posted)
        self.pump()

    def ready(self, gateway: Gateway) -> None:
        """A gateway has events. Called by the pushing thread."""
        self._ready.append(gateway)
        if self._clock.monotonic_ns() - self._last_sent_ns > QUIET_NS:
            self.pump()
        else:
            self._wake.notify()

    def pump(self) -> None:
        """Send what can be sent without waiting; the link's own task does the rest."""
        if not self._sending.acquire(blocking=False):
            self._wake.notify()
            return
        try:
            self._send_all()
            if self._unflushed:
                self._wake.notify()
        finally:
            self._sending.release()

    def pause(self, gateway: Gateway, *, paused: bool) -> None:
        """Stop sending a channel's events, or go on."""
        gateway.paused = paused
        if not paused:
            self._ready.append(gateway)
            self.pump()

    def wait_acknowledged(self, timeout: float) -> bool:
        """Wait until the other station has everything; False when it will not, or the time ran out."""
        self._asks = self._state_due = True
        self.pump()
        with self._changed:
            self._changed.wait_for(lambda: self._connection is None or not self._is_owed(), timeout)
        return not self._is_owed()

    def stats(self) -> LinkStats:
        """Read without a lock: a link that waits for its peer still tells how it is."""
        connection = self._connection
        sent, received = self._old_bytes
        if connection is not None:
            sent, received = sent + connection.sent_bytes, received + connection.received_bytes
        return LinkStats(
            self.name,
            connection is not None,
            self._connections,
            self._events_sent,
            self._frames_sent,
            self._heartbeats,
            self._heartbeat_bytes,
            sent,
            received,
            self._resent,
            sum(inbox.gaps for inbox in self._in),
            sum(inbox.duplicates for inbox in self._in),
            sum(outbox.unacked for outbox in self._out),
            self._lost,
        )

    # The life of a link

    def hello(self, name: str, domain: str, pid: int, own: int, *, resumed: bool = False) -> m.Hello:
        """What to greet the other station with."""
        received = tuple(inbox.received for inbox in self._in)
        return m.Hello(own, name, domain, pid, self.session, self.peer.session, received, resumed)

    def can_resume(self, hello: m.Hello) -> bool:
        """Whether both stations still know what they said to each other."""
        return hello.known_session == self.session and hello.session == self.peer.session

    def renew(self, *, answering: bool) -> None:
        """Begin a new session: what was not acknowledged is given up.

        Who answers a hello names the session anew, because its answer may get lost; who dialled has named
        its own already.
        """
        with self._reading, self._sending:
            self._epoch += 1
            self._lost += sum(outbox.unacked for outbox in self._out[1:])
            if answering:
                self.session = self._random.id64()
            self._forget()
            self._messages.clear()

    def attach(self, connection: Connection, hello: m.Hello, *, resumed: bool) -> int:
        """Go on over this connection; returns the session's number, for `read`."""
        if not resumed:
            self._listener.on_reset(self)
        with self._sending:
            self._connection = connection
            self.peer = hello
            self.lost_since = None
            self._unflushed = False
            self._connections += 1
            self._missing.clear()
            self._frames.clear()
            if resumed:
                self._check_received(hello.received)
                for lane, outbox in enumerate(self._out):
                    outbox.acknowledge(hello.received[lane])
                    self._send_again(lane, outbox.acked + 1, outbox.last)
                self._has_room = all(outbox.has_room for outbox in self._out)
            epoch = self._epoch
        self._wake.notify()
        return epoch

    def drop_connection(self) -> None:
        """Close the connection in use, if there is one: a new one takes its place."""
        connection = self._connection
        if connection is not None:
            self.detach(connection)

    def read(self, connection: Connection, epoch: int, frames: list[memoryview]) -> None:
        """Take in frames, and what arrives after them until the connection ends; raises what ended it."""
        while True:
            # While one connection takes the place of another, there are two readers for an instant.
            with self._reading:
                if epoch != self._epoch:
                    raise LinkLost(self.name, "has begun a new session over another connection")
                for frame in frames:
                    self._take(frame)
            if self._unacked_records >= ACK_RECORDS or self._unacked_bytes >= ACK_BYTES:
                self._tell_state()
            frames = connection.receive()

    def detach(self, connection: Connection) -> bool:
        """The connection has ended; whether the link has none now."""
        connection.close()
        with self._sending:
            if self._connection is connection:
                self._drop_broken()
            return self._connection is None

    def close(self, reason: str | None = None) -> None:
        """End the link; with a reason, the other station is told."""
        if self.closed:
            return
        self.closed = True
        self._wake.notify()
        connection = self._connection
        if connection is not None and reason is not None and self._sending.acquire(timeout=0.2):
            try:
                if not self._unflushed:
                    connection.offer([m.bye_frame(reason)])
            except LinkLost:
                pass
            finally:
                self._sending.release()
        if connection is not None:
            connection.close()
        with self._changed:
            self._changed.notify_all()

    def abandon(self) -> None:
        """In the child of a fork."""
        if self._connection is not None:
            self._connection.abandon()

    # Sending. All of it under `_sending`.

    def _write(self) -> None:
        """The link's own task: heartbeats, and what pushing threads and the reader left over."""
        beat = self._clock.monotonic_ns()
        every = round(self._heartbeat * 1e9)
        while not self.closed:
            now = self._clock.monotonic_ns()
            self._wake.wait(max(0, beat + every - now) / 1e9)
            if self._clock.monotonic_ns() - beat >= every:
                beat = self._clock.monotonic_ns()
                self._state_due = True
            with self._sending:
                self._send_all()
                while self._unflushed:
                    self._flush()
                    self._send_all()
            since = self.lost_since
            if since is not None and self._clock.monotonic_ns() - since > RESUME_LIMIT * 1e9:
                self._listener.on_lost(self)

    def _send_all(self) -> None:
        """Send until nothing is left, no more may be sent, or the connection is full (`_unflushed`)."""
        while self._states:
            self._settle(self._states.popleft())
        while self._connection is not None and not self._unflushed and not self.closed:
            if self._state_due:
                self._send_state()
            elif self._frames or self._make_frames():
                self._send(m.data_frame(*self._frames.popleft()))
            else:
                return

    def _make_frames(self) -> bool:
        """Make frames of what waits; whether there are any."""
        if self._messages:
            self._frames.append((CONTROL, self._message_batch()))
            return True
        if not self._has_room:
            return False
        while self._ready:
            gateway = self._ready[0]
            made = [] if gateway.paused else self._event_batches(gateway)
            if made:
                self._frames.extend(made)
                if len(self._ready) > 1:
                    self._ready.rotate(-1)
                return True
            self._ready.popleft()
        return False

    def _message_batch(self) -> Batch[bytes]:
        posted: list[bytes] = []
        size = 0
        while self._messages and len(posted) < MOST_AT_ONCE and size < FRAME_BYTES:
            posted.append(m.encode(self._messages.popleft()))
            size += len(posted[-1])
        payload = m.data_payload([(m.MESSAGES, m.array_of(posted))])
        return self._out[CONTROL].add(len(posted), payload, len(payload))

    def _event_batches(self, gateway: Gateway) -> list[tuple[int, Batch[bytes]]]:
        """Take events of a gateway and put them into batches: one per lane, in it runs of one class."""
        lane = gateway.lane
        if isinstance(lane, GatewayLane):
            priority, items = lane.drain(MOST_AT_ONCE)
            by_lane = {priority: items} if items else {}
        else:
            items = lane.take(MOST_AT_ONCE)
            by_lane = {}
            for item in items:
                by_lane.setdefault(item[1].priority, []).append(item)
            lane.done += len(items)
            lane.settle()
        self._events_sent += len(items)
        return [batch for number, items in by_lane.items() for batch in self._batches(gateway, number, items)]

    def _batches(self, gateway: Gateway, lane: int, items: list[Item]) -> list[tuple[int, Batch[bytes]]]:
        """One batch, or several where the events are large."""
        runs = self._encoded_runs(gateway, items)
        size = sum(len(records) for _, records in runs)
        if size > FRAME_BYTES and len(items) > 1:
            half = len(items) // 2
            return [*self._batches(gateway, lane, items[:half]), *self._batches(gateway, lane, items[half:])]
        if size > MAX_EVENT:
            log.error("%s: an event of %d bytes is too large for a link", items[0][1].id, size)
            self._lost += 1
            return []
        return [self._event_batch(gateway, lane, runs, len(items))]

    def _encoded_runs(self, gateway: Gateway, items: list[Item]) -> list[tuple[Any, bytes]]:
        several = len(gateway.channel.types) > 1
        return [(cls, self._writer.records(cls, run)) for cls, run in _runs(items, several=several)]

    def _event_batch(
        self, gateway: Gateway, lane: int, runs: list[tuple[Any, bytes]], count: int
    ) -> tuple[int, Batch[bytes]]:
        parts: list[tuple[int, bytes]] = []
        for cls, records in runs:
            fmt = cls.__event_info__.format
            stream = self._stream_of(gateway.channel.name, fmt.id)
            if (lane, stream) not in self._told:
                self._told.add((lane, stream))
                announce = m.Announce(stream, gateway.channel.name, fmt.id, fmt.description)
                parts.append((m.MESSAGES, m.encode([announce])))
                count += 1
            parts.append((stream, records))
        payload = m.data_payload(parts)
        outbox = self._out[lane]
        batch = outbox.add(count, payload, len(payload))
        self._has_room = self._has_room and outbox.has_room
        return lane, batch

    def _send(self, frame: list[Any]) -> None:
        assert self._connection is not None
        self._frames_sent += 1
        self._last_sent_ns = self._clock.monotonic_ns()
        try:
            self._unflushed = not self._connection.offer(frame)
        except LinkLost:
            self._drop_broken()

    def _flush(self) -> None:
        try:
            if self._connection is not None:
                self._connection.flush()
        except LinkLost:
            self._drop_broken()
        self._unflushed = False

    def _send_state(self) -> None:
        assert self._connection is not None
        self._state_due = False
        received = tuple(inbox.received for inbox in self._in)
        missing = tuple((lane, *wanted) for lane, wanted in tuple(self._missing.items()))
        sent = tuple(outbox.last for outbox in self._out)
        frame = m.state_frame(m.State(sent, received, missing, self._asks))
        self._told_received = received
        self._unacked_records = self._unacked_bytes = 0
        connection, before = self._connection, self._connection.sent_bytes
        self._send([frame])
        self._heartbeats += 1
        self._heartbeat_bytes += connection.sent_bytes - before

    def _settle(self, state: m.State) -> None:
        """Act on what the other station says has arrived there and what has not."""
        for outbox, received in zip(self._out, state.received, strict=True):
            outbox.acknowledge(received)
        self._has_room = all(outbox.has_room for outbox in self._out)
        for lane, first, last in state.missing:
            self._send_again(lane, first, last)
        with self._changed:
            self._changed.notify_all()

    def _send_again(self, lane: int, first: int, last: int) -> None:
        batches = self._out[lane].missing(first, last)
        self._resent += len(batches)
        self._frames.extend((lane, batch) for batch in batches)

    def _drop_broken(self) -> None:
        """The reader notices it by itself, and tells everybody."""
        if self._connection is not None:
            self._connection.close()
            self._keep_bytes(self._connection)
            self._connection = None
            self.lost_since = self._clock.monotonic_ns()
            with self._changed:
                self._changed.notify_all()

    def _keep_bytes(self, connection: Connection | None) -> None:
        if connection is not None:
            sent, received = self._old_bytes
            self._old_bytes = sent + connection.sent_bytes, received + connection.received_bytes

    def _forget(self) -> None:
        self._out = [Outbox() for _ in range(LANES)]
        self._in = [Inbox() for _ in range(LANES)]
        self._has_room = True
        self._told.clear()
        self._told_received = (0,) * LANES

    # Reading. By the reader alone, but for what says otherwise.

    def _take(self, frame: memoryview) -> None:
        kind = frame[0]
        if kind == m.DATA:
            self._take_data(frame)
        elif kind == m.STATE:
            self._take_state(m.read_state(frame, self.name))
        elif kind == m.BYE:
            raise LinkLost(self.name, m.read_bye(frame))
        else:
            raise BadFrame(self.name, f"a frame of kind {kind}")

    def _take_data(self, frame: memoryview) -> None:
        lane, batch = m.read_data(frame, self.name)
        inbox = self._in[lane]
        ready = inbox.take(batch)
        self._unacked_records += batch.count
        self._unacked_bytes += len(frame)
        if not ready or lane in self._missing:
            self._look_for_gap(lane, inbox)
        for taken, skip in ready:
            self._deliver(taken, skip)

    def _look_for_gap(self, lane: int, inbox: Inbox[memoryview]) -> None:
        """Ask for what is missing, once; heartbeats repeat it."""
        wanted = inbox.wanted()
        if wanted is None:
            self._missing.pop(lane, None)
        elif self._missing.get(lane) != wanted:
            self._missing[lane] = wanted
            self._tell_state()

    def _take_state(self, state: m.State) -> None:
        self._check_received(state.received)
        for lane, (inbox, sent) in enumerate(zip(self._in, state.sent, strict=True)):
            inbox.heard_of(sent)
            wanted = inbox.wanted()
            if wanted is not None:
                self._missing[lane] = wanted
        self._states.append(state)
        if self._missing or (state.asks and self._told_received != tuple(i.received for i in self._in)):
            self._state_due = True
        self.pump()

    def _tell_state(self) -> None:
        self._state_due = True
        self.pump()

    def _deliver(self, batch: Batch[memoryview], skip: int) -> None:
        count = 0
        for run in m.read_runs(batch.payload, self.name):
            left = max(0, skip - count)
            if run.stream == m.MESSAGES:
                told = m.read_messages(run.records, self.name)
                for message in told[left:]:
                    self._listener.on_message(self, message)
                count += len(told)
            else:
                count += self._listener.on_run(self, run, left)
        if count != batch.count:
            raise BadFrame(self.name, f"a frame with {count} records says it has {batch.count}")

    def _check_received(self, received: tuple[int, ...]) -> None:
        for lane, number in enumerate(received):
            if number > self._out[lane].last:
                raise BadFrame(
                    self.name, f"record {number} of lane {lane} is acknowledged but was never sent"
                )

    def _is_owed(self) -> bool:
        return bool(self._messages) or any(outbox.unacked for outbox in self._out)


def _runs(items: list[Item], *, several: bool) -> list[tuple[Any, list[Item]]]:
    """Items in runs of one class."""
    if not several:
        return [(type(items[0][0]), items)]
    runs: list[tuple[Any, list[Item]]] = []
    for item in items:
        if not runs or runs[-1][0] is not type(item[0]):
            runs.append((type(item[0]), []))
        runs[-1][1].append(item)
    return runs
