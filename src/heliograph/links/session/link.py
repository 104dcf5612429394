"""The session with one peer: all that two stations say to each other, over one connection after another.

A link outlives its connections. When one breaks while the other station lives, the next one resumes: each
side says up to which number each lane has arrived, and the rest is sent again. A new incarnation of the
other station is another station, with a link of its own.

    post(message)        interest, queries and the like, on the control lane
    gateways             events to the other station; see `heliograph.links.session.gateway`
    on_message, on_run   what has arrived, called in the task that reads

Locks: `_sending` is held while frames are made and offered, and never while somebody waits for room in the
connection: the link's own task does that, and meanwhile nobody offers anything (`has_unsent`). Pushing
threads and the reader do not wait for the lock either: a thread that finds `_is_sending`, which may be itself
in a signal handler in the middle of a frame, or `_task_sends` leaves what it had to do to that task. Under
the lock nothing is called that takes a lock of a channel or supplier.

A thread that pushes may be interrupted at any instant, by Ctrl-C or by what a signal handler raises. What it
took is then either numbered (`heliograph.links.session.retransmission.Outbox.add`), and the other station
asks for it if it was not sent, or it waits as before; a frame that was sent in part is sent to its end by
the task.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations at run time
from contextlib import suppress
from functools import partial
from operator import le
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from heliograph.errors import BadFrame, LinkLost
from heliograph.links.contract import CONTROL, LANES
from heliograph.links.session import messages as m
from heliograph.links.session.lifetimes import PeerClock
from heliograph.links.session.pack import Packer, Posted
from heliograph.links.session.send_scheduler import QUIET_NS, SendScheduler
from heliograph.links.session.unpack import Unpacker
from heliograph.links.transports.peer_process import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.dispatch.reader_handover import Reader
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.contract import Buffer, Connection
    from heliograph.links.session.gateway import PeerGateway
    from heliograph.links.session.retransmission import Batch
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

P = TypeVar("P")

HEARTBEAT: Final = 0.5
"""Seconds between two heartbeats; a lost tail is found at the next one."""
ACK_RECORDS: Final = 2_048
ACK_BYTES: Final = 1 << 20
"""What a link takes in before it acknowledges without waiting for the next heartbeat."""
RESUME_LIMIT: Final = 10.0
"""Seconds without a connection after which the other station is given up, though it may live."""


class LinkListener(Protocol):
    """Who is told of what arrives; called in the task that reads the link."""

    def on_message(self, link: Link, message: m.Message) -> None: ...

    def on_run(self, link: Link, run: m.Run, skip: int) -> None:
        """Take in a run of events without its first `skip`."""
        ...

    def on_reset(self, link: Link) -> None:
        """Nothing said before counts: called before the first message of a new session goes out."""
        ...

    def on_beat(self, link: Link) -> None:
        """Say what has been taken in: the other station wants to know, or a heartbeat is due."""
        ...

    def on_left_out(self, link: Link, run: m.Run, events: int) -> None:
        """The last events of a run could not be handed on, and will not come again."""
        ...

    def on_lost(self, link: Link) -> None:
        """There has been no connection for too long."""
        ...


NOTHING: Final[Mapping[str, int]] = {}


class LinkStats(msgspec.Struct, frozen=True):
    """One instant of a link."""

    peer: str
    connected: bool
    carrier: str
    """What carries live events to the other station: `ring` if it reads this one's, where channels that keep
    nothing go (`Mesh.carriers` says which); else what carries the link, `socket` or `memory`; empty without a
    connection."""
    connections: int
    events_sent: int
    """Events, each once however often it was sent again; by broadcast, those that any station wants."""
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
    left_out: int
    """Records that came and could not be handed on, however often they were sent, and events that do not fit
    this station's class though their format does."""
    carrier_reason: str = ""
    """Why it is no ring, in words; empty where it is one."""
    overtaken: Mapping[str, int] = NOTHING
    """Events of this station's broadcast that the other one did not get, for it stood still; by channel."""
    missed: Mapping[str, int] = NOTHING
    """Events of the other station that this one did not get, for it stood still, or that came too late to be
    handed on; by channel."""


class Link:
    """See the module."""

    def __init__(
        self,
        station: int,
        *,
        ports: Ports,
        writer: EventWriter,
        listener: LinkListener,
        stream_of: Callable[[str, bytes], int],
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self.station = station
        self.name = f"{station:016x}"
        self.peer = m.Hello(station, "", "", 0, 0, 0, (0,) * LANES)
        self.process = UNKNOWN
        """Of the other station, as the kernel says."""
        self.session = ports.random.id64()
        self.closed = False
        self.clock = PeerClock(ports.clock.monotonic_ns)
        """The other station's."""
        self.lost_since: int | None = ports.clock.monotonic_ns()
        self._clock = ports.clock
        self._random = ports.random
        self._packer = Packer(writer, stream_of)
        self._listener = listener
        self._heartbeat = heartbeat
        self.greeting = ports.tasks.lock(f"greeting of {self.name}")
        """Held by whoever takes in a new connection, until it is the link's."""
        self._sending = ports.tasks.lock(f"link {self.name}")
        self._reading = ports.tasks.lock(f"reader of {self.name}")
        self._epoch = 0
        self._wake = ports.tasks.signal(f"link {self.name}")
        # Entered by itself: an interrupt inside of the `__enter__` of the condition would leave it locked.
        self._acks = ports.tasks.lock(f"acks of {self.name}")
        self._changed = ports.tasks.condition(self._acks, f"acks of {self.name}")
        self._connection: Connection | None = None
        self._is_sending = False
        """Whether somebody has the lock and makes frames."""
        self._task_sends = False
        """Whether the link's own task does, or waits until it can."""
        self._waits = False
        # What is to be done under `_sending`; anybody may add to it.
        self._states: deque[m.State] = deque()
        self._state_due = False
        self._asks = self._asks_once = False
        self._frames: deque[tuple[int, Batch[bytes]]] = deque()
        self._messages = Posted()
        self._scheduler = SendScheduler(self._wake, self._is_quiet, self.pump)
        self._ready = self._scheduler.listed
        self._arm = self._scheduler.arm
        self.ready = self._scheduler.ready
        """A gateway has events."""
        self._unpacker = Unpacker(
            self.name,
            lambda message: listener.on_message(self, message),
            partial(listener.on_run, self),
            partial(listener.on_left_out, self),
        )
        # Counters; those of sending are written under `_sending`, those of reading by the reader alone.
        self._connections = 0
        self._frames_sent = 0
        self._heartbeats = 0
        self._heartbeat_bytes = 0
        self._resent = 0
        self._old_bytes = (0, 0)
        self._last_sent_ns = 0
        self._told_received: tuple[int, ...] = ()
        self._forget()
        self._task = ports.tasks.spawn(f"link to {self.name}", self._write)

    # For whoever has something to send

    def post(self, *posted: m.Message) -> None:
        """Send messages, in order and without fail, as long as both stations live."""
        self._messages.post(posted)
        self.pump()

    def send_now(self, gateway: PeerGateway, item: Item) -> bool:
        """Send an event that was pushed this instant, by the shortest way: somebody may wait for it.

        False when it has to be queued: because something waits already, or in a burst, where events are
        cheaper together: see `heliograph.links.session.send_scheduler`.
        """
        return self._is_quiet() and self._send_at_once(gateway, self._packer.only, item)

    def send_bulk(self, gateway: PeerGateway, bulk: OutgoingBatch) -> bool:
        """Send events that were pushed together, as one frame; False when they have to be queued."""
        return self._send_at_once(gateway, self._packer.bulk, bulk)

    def _is_quiet(self) -> bool:
        return self._unpacker.heard or self._clock.monotonic_ns() - self._last_sent_ns > QUIET_NS

    def _send_at_once(
        self, gateway: PeerGateway, pack: Callable[[PeerGateway, P], list[Buffer] | None], what: P
    ) -> bool:
        if self._is_sending or self._task_sends:
            return False
        with self._sending:
            self._is_sending = True
            try:
                while self._states:
                    self._settle(self._states.popleft())
                connection = self._connection
                if (
                    connection is None
                    or connection.has_unsent
                    or self._frames
                    or self._messages
                    or self._state_due
                    or gateway.paused
                    or self.closed
                ):
                    return False
                frame = pack(gateway, what)
                if frame is None:
                    return False
                if not self._send(connection, frame):
                    self._arm()
            except BaseException:
                self._arm_interrupted()
                raise
            else:
                return True
            finally:
                self._is_sending = False

    def pump(self) -> None:
        """Send what can be sent without waiting; the link's own task does the rest."""
        if self._is_sending or self._task_sends:
            self._arm()
            return
        with self._sending:
            self._is_sending = True
            try:
                if not self._send_all():
                    self._arm()
            except BaseException:
                self._arm_interrupted()
                raise
            finally:
                self._is_sending = False

    def _arm_interrupted(self) -> None:
        """Have the other station told what it should have by now, and go on where this thread left off."""
        self._state_due = True
        self._arm()

    def pause(self, gateway: PeerGateway, *, paused: bool) -> None:
        """Stop sending a channel's events, or go on."""
        gateway.paused = paused
        if not paused:
            self._scheduler.list(gateway)
            self.pump()

    def ask(self) -> None:
        """Have the other station say at once what has arrived there, and what it has taken in."""
        self._asks_once = self._state_due = True
        self.pump()

    def wait_acknowledged(self, timeout: float) -> bool:
        """Wait until the other station has everything; False when it will not, or the time ran out."""
        self._asks = self._state_due = True
        self.pump()
        with self._acks:
            self._changed.wait_for(
                lambda: self.closed or self._connection is None or not self._is_owed(), timeout
            )
        return not self._is_owed()

    @property
    def text(self) -> str:
        """The station as errors call it: by its id and, once it has said hello, by its name."""
        return f"{self.name} ({self.peer.name})" if self.peer.name else self.name

    def stats(self) -> LinkStats:
        """Read without a lock: a link that waits for its peer still tells how it is."""
        connection = self._connection
        sent, received = self._old_bytes
        if connection is not None:
            sent, received = sent + connection.sent_bytes, received + connection.received_bytes
        return LinkStats(
            self.name,
            connection is not None,
            "" if connection is None else connection.carrier,
            self._connections,
            self._packer.events_sent,
            self._frames_sent,
            self._heartbeats,
            self._heartbeat_bytes,
            sent,
            received,
            self._resent,
            sum(inbox.gaps for inbox in self._unpacker.inboxes),
            sum(inbox.duplicates for inbox in self._unpacker.inboxes),
            sum(outbox.unacked for outbox in self._packer.out),
            self._packer.lost,
            self._unpacker.left_out,
        )

    @property
    def called(self) -> str:
        """The other station's id and, once it has said so, its name: as users see it behind "station"."""
        return f"{self.name} ({self.peer.name})" if self.peer.name else self.name

    @property
    def waits_behind(self) -> int | None:
        """The bytes that have come over its connection, when the reader waits for more; else None."""
        connection = self._connection
        return connection.received_bytes if connection is not None and self._waits else None

    def cpu_ticks(self) -> int | None:
        """Processor time that the other station's process has used; None where that cannot be known."""
        connection = self._connection
        return None if connection is None else connection.process.cpu_ticks()

    # The life of a link

    def hello(self, own: m.Hello, *, resumed: bool) -> m.Hello:
        """What to greet the other station with: what it says to all, and what is between these two."""
        return msgspec.structs.replace(
            own,
            session=self.session,
            known_session=self.peer.session,
            received=self._unpacker.received,
            resumed=resumed,
        )

    def can_resume(self, hello: m.Hello) -> bool:
        """Whether both stations still know what they said to each other."""
        return (
            hello.known_session == self.session
            and hello.session == self.peer.session
            and all(map(le, hello.received, self._sent()))
        )

    def renew(self, *, answering: bool) -> None:
        """Begin a new session: what was not acknowledged is given up.

        Who answers a hello names the session anew, because its answer may get lost; who dialled has named
        its own already.
        """
        with self._reading, self._sending:
            self._epoch += 1
            if answering:
                self.session = self._random.id64()
            self._forget()
            self._messages.clear()

    def begin_anew(self) -> None:
        """End the session and its connection: what both stations know of each other is not to be trusted."""
        self.renew(answering=True)
        self.drop_connection()

    def attach(self, connection: Connection, hello: m.Hello, *, resumed: bool) -> int:
        """Go on over this connection; returns the session's number, for `read`."""
        self.process = connection.process
        if not resumed:
            self.peer = hello
            self._listener.on_reset(self)
        with self._sending:
            self._connection = connection
            self.peer = hello
            self.lost_since = None
            self._connections += 1
            self._unpacker.missing.clear()
            self._frames.clear()
            if resumed:
                self._check_received(hello.received)
                for lane, outbox in enumerate(self._packer.out):
                    outbox.acknowledge(hello.received[lane])
                    self._send_again(lane, outbox.acked + 1, outbox.last)
                self._packer.look_for_room()
            epoch = self._epoch
        if self.closed:  # after the connection is known: whoever closed the link may not have seen it
            raise LinkLost(self.text, "was given up meanwhile")
        self._wake.notify()
        return epoch

    def drop_connection(self) -> None:
        """Close the connection in use, if there is one: a new one takes its place."""
        connection = self._connection
        if connection is not None:
            self.detach(connection)

    def read(self, connection: Connection, epoch: int, frames: list[memoryview], turn: Reader) -> None:
        """Take in frames, and what arrives after them until the connection ends; raises what ended it.

        HandedOver when another thread reads by now.
        """
        while True:
            turn.received()
            # While one connection takes the place of another, there are two readers for an instant.
            with self._reading:
                if epoch != self._epoch:
                    raise LinkLost(self.text, "has begun a new session over another connection")
                for frame in frames:
                    if frame[0] != m.DATA:
                        self._take(frame)
                    elif self._unpacker.take(frame):
                        self._tell_state()
            if self._unpacker.unacked_records >= ACK_RECORDS or self._unpacker.unacked_bytes >= ACK_BYTES:
                self._tell_state()
            turn.run_claims()
            self._waits = True
            frames = connection.receive()
            self._waits = False

    def detach(self, connection: Connection) -> bool:
        """The connection has ended; whether the link has none now."""
        connection.close()
        with self._sending:
            if self._connection is connection:
                self._drop_broken()
            return self._connection is None

    def quiesce(self) -> None:
        """Wait until nobody takes anything from a gateway of this link, which is closed, any more."""
        with self._sending:
            pass

    def close(self, reason: str | None = None) -> None:
        """End the link. With a reason, the other station is told; without, it is gone.

        What a station that is gone had sent can still be read: as much as has come, then its connection ends.
        """
        if self.closed:
            return
        self.closed = True
        self._wake.notify()
        connection = self._connection
        if connection is not None and reason is not None:
            with self._sending, suppress(LinkLost):
                if not connection.has_unsent:
                    connection.offer([m.bye_frame(reason)])
        if connection is not None and reason is None:
            connection.drain()
        elif connection is not None:
            connection.close()
        with self._acks:
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
                self._listener.on_beat(self)
            self._scheduler.is_armed = False
            self._task_sends = True
            while not self._send_more():
                self._flush()
            self._task_sends = False
            since = self.lost_since
            if since is not None and self._clock.monotonic_ns() - since > RESUME_LIMIT * 1e9:
                self._listener.on_lost(self)

    def _send_more(self) -> bool:
        with self._sending:
            self._is_sending = True
            try:
                return self._send_all()
            finally:
                self._is_sending = False

    def _send_all(self) -> bool:
        """Send until nothing is left, no more may be sent, or the connection is full; False in that case."""
        while self._states:
            self._settle(self._states.popleft())
        while (connection := self._connection) is not None and not self.closed:
            if connection.has_unsent:
                return False
            if self._state_due:
                self._send_state(connection)
            elif self._frames or self._make_frames():
                self._send(connection, m.data_frame(*self._frames.popleft()))
                if not (self._frames or self._ready or self._messages):
                    return not connection.has_unsent
            else:
                break
        return True

    def _make_frames(self) -> bool:
        """Make frames of what waits; whether there are any."""
        if self._messages:
            self._frames.append((CONTROL, self._packer.messages(self._messages)))
            return True
        while self._ready and self._packer.has_room:
            gateway = self._ready[0]
            # Before its events are taken: who queues the first one from here on lists it again.
            gateway.listed = False
            made = None if gateway.paused else self._packer.events(gateway)
            # In a queue where some still wait, nobody queues a first one. A journal's tells by giving none.
            if made is not None and (gateway.bypassed is None or gateway.queue.waiting):
                gateway.listed = True
                self._ready.rotate(-1)
            else:
                self._ready.popleft()
            if made:
                self._frames.extend(made)
                return True
        return False

    def _send(self, connection: Connection, frame: list[Buffer]) -> bool:
        """Whether nothing of it waits."""
        self._frames_sent += 1
        self._unpacker.heard = False
        is_sent = True
        try:
            is_sent = connection.offer(frame)
        except LinkLost:
            self._drop_broken()
        # After sending, while the other end wakes up.
        self._last_sent_ns = self._clock.monotonic_ns()
        return is_sent

    def _flush(self) -> None:
        """Wait until the connection has taken all that was offered. By the link's own task, without lock."""
        connection = self._connection
        try:
            if connection is not None:
                connection.flush()
        except LinkLost:
            with self._sending:
                if self._connection is connection:
                    self._drop_broken()

    def _send_state(self, connection: Connection) -> None:
        self._state_due = False
        received = self._unpacker.received
        missing = tuple((lane, *wanted) for lane, wanted in tuple(self._unpacker.missing.items()))
        sent = self._sent()
        stamp = self._clock.monotonic_ns()
        frame = m.state_frame(m.State(sent, received, missing, self._asks or self._asks_once, stamp))
        self._asks_once = False
        self._told_received = received
        self._unpacker.unacked_records = self._unpacker.unacked_bytes = 0
        before = connection.sent_bytes
        self._send(connection, [frame])
        self._heartbeats += 1
        self._heartbeat_bytes += connection.sent_bytes - before

    def _settle(self, state: m.State) -> None:
        """Act on what the other station says has arrived there and what has not."""
        for outbox, received in zip(self._packer.out, state.received, strict=True):
            outbox.acknowledge(received)
        self._packer.look_for_room()
        for lane, first, last in state.missing:
            self._send_again(lane, first, last)
        with self._acks:
            self._changed.notify_all()

    def _sent(self) -> tuple[int, ...]:
        """The last number of each lane."""
        return tuple(outbox.last for outbox in self._packer.out)

    def _send_again(self, lane: int, first: int, last: int) -> None:
        batches = self._packer.out[lane].missing(first, last)
        self._resent += len(batches)
        self._frames.extend((lane, batch) for batch in batches)

    def _drop_broken(self) -> None:
        """The reader takes in what has come, notices it by itself, and tells everybody."""
        if self._connection is not None:
            self._connection.drain()
            self._keep_bytes(self._connection)
            self._connection = None
            self.lost_since = self._clock.monotonic_ns()
            with self._acks:
                self._changed.notify_all()

    def _keep_bytes(self, connection: Connection | None) -> None:
        if connection is not None:
            sent, received = self._old_bytes
            self._old_bytes = sent + connection.sent_bytes, received + connection.received_bytes

    def _forget(self) -> None:
        self._packer.forget()
        self._unpacker.forget()
        self._told_received = (0,) * LANES

    # Reading. By the reader alone, but for what says otherwise.

    def _take(self, frame: memoryview) -> None:
        """A frame that is no data."""
        kind = frame[0]
        if kind == m.STATE:
            self._take_state(m.read_state(frame, self.name))
        elif kind == m.BYE:
            raise LinkLost(self.name, m.read_bye(frame))
        else:
            raise BadFrame(self.name, f"a frame of kind {kind}")

    def _take_state(self, state: m.State) -> None:
        self._check_received(state.received)
        self.clock.heard(state.stamp)
        self._unpacker.heard_of(state.sent)
        self._states.append(state)
        if self._unpacker.missing or (state.asks and self._told_received != self._unpacker.received):
            self._state_due = True
        if state.asks:
            self._listener.on_beat(self)
        self.pump()

    def _tell_state(self) -> None:
        self._state_due = True
        self.pump()

    def _check_received(self, received: tuple[int, ...]) -> None:
        for lane, number in enumerate(received):
            if number > self._packer.out[lane].last:
                raise BadFrame(
                    self.name, f"record {number} of lane {lane} is acknowledged but was never sent"
                )

    def _is_owed(self) -> bool:
        return bool(self._messages) or any(outbox.unacked for outbox in self._packer.out)
