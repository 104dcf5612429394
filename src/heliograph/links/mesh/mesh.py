"""The mesh: a station's links to all peers of its domain, and what each of them is interested in.

A station tells all others of each of its channels: its formats, and what its consumers want of it. It hears
the same of them, and gives each channel that somebody wants a gateway to that station. Events go out from
where they were pushed and nowhere else, so in a full mesh none comes twice and none runs in circles. Only
band workers get them from the station that started them (`heliograph.links.mesh.egress`), and from no other.

Locks: `_lock` orders what this station says of its channels. It comes before the locks of channels, and
nothing that holds a channel's lock calls in here.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.dispatch.reader_handover import HandedOver
from heliograph.channel.members_only import Admission
from heliograph.errors import (
    BadFrame,
    LinkLost,
    LinkRefused,
    NotPossible,
    NotVouched,
    QueryFailed,
    Suspended,
)
from heliograph.errors.sentences import station_text
from heliograph.links.broadcast.carrier_choice import lane_of, why_by_link
from heliograph.links.broadcast.reader_admission import BroadcastNegotiation
from heliograph.links.broadcast.shared_memory import Rings
from heliograph.links.contract import KNOCK, NETWORK, SOCKET
from heliograph.links.groups.server import GroupHost
from heliograph.links.history.client import RemotePartition, RemoteStore, ToKeepers
from heliograph.links.history.directory import check_state, find_keepers, recorded
from heliograph.links.history.late_join import LateJoinFetcher
from heliograph.links.history.server import HistoryServer
from heliograph.links.interest.advertisement import RemoteStation, describe
from heliograph.links.interest.derivation_wire import read_derivation
from heliograph.links.interest.filter_wire import from_data
from heliograph.links.mesh.egress import Egress
from heliograph.links.mesh.failure_detector import FailureDetector
from heliograph.links.mesh.peer import Peer
from heliograph.links.session import messages as m
from heliograph.links.session.confirmation import CLOSED, PEER_LEFT, PEER_LOST
from heliograph.links.session.link import HEARTBEAT, Link, LinkStats
from heliograph.links.session.rpc import GONE, Rpc
from heliograph.links.session.wire_events import EventWriter
from heliograph.links.streams.gateway import StreamLimits, StreamStats
from heliograph.links.streams.publisher import REPAIR, StreamPublisher
from heliograph.links.streams.reader import StreamReader
from heliograph.links.transports.backoff import Backoff, Stalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.dispatch.reader_handover import NewReader, Reader
    from heliograph.channel.history.store import OnDurable
    from heliograph.channel.queueing.history_merge import LateJoin
    from heliograph.links import Identity
    from heliograph.links.broadcast.reader_admission import ChannelCarrier
    from heliograph.links.contract import Connection, StreamTransport, Transport
    from heliograph.links.session.confirmation import Confirmations
    from heliograph.links.session.rpc import Outcome, Reply, Responder
    from heliograph.model.event import Event
    from heliograph.model.formats import Format
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

OLD_SESSION_LIMIT: Final = 1.0
"""Seconds that the next session with a station waits until all that came in the last one is handed on."""
HELLO_LIMIT: Final = 5.0
"""Seconds that a caller has to say hello."""
ASK_LIMIT: Final = 5.0
"""Seconds that a question waits for its answer."""
STREAMS: Final = "streams"
"""The topic of the question for a station's streams."""
STREAM_LIMITS: Final = StreamLimits()
CLOSING: Final = "is closing"
"""Why a station ends its links when it leaves."""


class PeerCarrier(msgspec.Struct, frozen=True):
    """What carries the live events of a station to one other; see `LinkStats`."""

    peer: str
    name: str
    carrier: str
    reason: str
    """Why it is not shared memory; empty where it is."""


class Mesh:
    """See the module.

    Args:
        identity: of this station.
        transport: finds the others.
        channel: a channel of this station by its name, or None.
        new_reader: what a thread that reads runs callbacks with.
        heartbeat: seconds between two heartbeats of a link.
        rings: with which to broadcast on this host; None: not at all, which its transport decides.
        peer_limit: seconds of silence after which a station is suspected; None: never.
        stalls: counts what could not be done because the host had no descriptor or thread left.
        stream_limits: what streams to other hosts keep for readers that did not get it.
    """

    def __init__(
        self,
        identity: Identity,
        transport: Transport,
        ports: Ports,
        channel: Callable[[str], Channel[Any] | None],
        new_reader: NewReader,
        *,
        heartbeat: float = HEARTBEAT,
        rings: Rings | None = None,
        peer_limit: float | None = None,
        stalls: Stalls | None = None,
        stream_limits: StreamLimits = STREAM_LIMITS,
    ) -> None:
        self.identity = identity
        self._transport = transport
        self._ports = ports
        self._channel = channel
        self._new_reader = new_reader
        self._heartbeat = heartbeat
        self._lock = ports.tasks.lock("mesh")
        self._said: dict[str, m.ChannelState] = {}
        self._peers: dict[int, Peer] = {}
        self._before: dict[int, Confirmations] = {}
        """Of stations that were given up and live: they may come back and say what they had taken in."""
        self._old: dict[int, list[Peer]] = {}
        """Their sessions, of which something may still be on its way to receivers here."""
        self.gates = Egress(channel, self._said.get, ports.tasks, self._peers.get)
        self.gates.retell = partial(self.tell, again=True)
        self._changed = ports.tasks.condition(self._lock, "stations of the mesh")
        self._changes = 0
        self._writer = EventWriter(ports.clock)
        self._streams: dict[tuple[str, bytes], int] = {}
        self._stream_numbers = count(1)
        self._airing = self.gates.airing = BroadcastNegotiation(
            identity.station,
            rings or Rings(),
            ports,
            writer=self._writer,
            stream_of=self._stream_of,
            arrivals=self.gates.arrivals_by_ring,
            begin_reading=self._begin_reading,
            end_reading=self._end_reading,
            peer_of=self._peers.get,
            leave=self.gates.leave,
            new_reader=new_reader,
        )
        self._questions = Rpc(ports)
        self._streaming: StreamReader | None = None
        if transport.streams is not None:
            self._streaming = StreamReader(
                transport.streams,
                ports,
                self._questions,
                is_met=self._peers.__contains__,
                hand_on=lambda peer, run, skip: self.on_run(peer.link, run, skip, by_stream=peer),
                begin_reading=self._begin_reading,
                end_reading=self._end_reading,
                new_reader=new_reader,
            )
            self.gates.streams = StreamPublisher(
                identity.station,
                transport.streams,
                ports,
                writer=self._writer,
                stream_of=self._stream_of,
                limits=stream_limits,
            )
            self._questions.answer(REPAIR, self._repair)
        self._questions.answer("here", lambda _, __, reply: reply(None))
        self._questions.answer("links", lambda _, __, reply: reply(self._carried()))
        self._questions.answer(STREAMS, lambda _, __, reply: reply(self.streams()))
        self.keeper = HistoryServer(
            self._questions,
            channel,
            self._writer,
            self.gates.wanted,
            self._name_of,
            self.gates.is_carried,
            ports.tasks,
            keeps=self._keeps,
            own=station_text(identity.station, identity.name),
        )
        self._host = GroupHost(self._questions, channel, self._writer, self._format_of, ports.tasks)
        self._elsewhere = LateJoinFetcher(
            self._questions,
            channel,
            self._writer,
            wanted=self.gates.wanted,
            to_come=self.gates.to_come,
            tasks=ports.tasks,
        )
        self._way = ToKeepers(self._keeper_of, self._questions, self._writer, ports)
        self._watchers: list[Callable[[], object]] = []
        self.reopened = self.gates.reopened
        self.derives = True
        """Whether this station says that it derives channels for others."""
        self._closed = False
        self._stalls = stalls or Stalls()
        self._reading = Backoff("reading a link", self._stalls)
        self._suspected: set[int] = set()
        self._silence = FailureDetector(peer_limit, ports.tasks, self._peers, self.suspect)

    # The face

    def start(self) -> None:
        """Find the other stations; returns when those that are there now have been dialled."""
        self._transport.start(self._connected, self._ended)
        self._silence.start()

    def tell(self, channel: Channel[Any], *, again: bool = False) -> None:
        """A channel was opened, or its consumers or types have changed; `again`: if it is still open."""
        with self._lock:
            is_over = self._closed or self.gates.is_ending
            if is_over or (again and self._channel(channel.name) is not channel):
                return
            is_new = channel.name not in self._said
            state = self._said[channel.name] = describe(channel)
            peers = list(self._peers.values())
            for peer in peers:
                peer.told.tell(channel, self.gates.for_peer(peer, channel, state))
        for peer in peers:
            peer.rings.look_again()
            self.gates.fit(peer, channel.name)
            known = peer.advertised.channels.get(channel.name)
            if is_new and known is not None and known.keeper is not None:
                self._keeper_came(channel, known)

    def wait_carried(self, channel: Channel[Any], timeout: float) -> None:
        """Wait until it is known how a channel's events reach the stations that want some already.

        Till then they have no gateway, and what is pushed would not be for them.
        """
        if why_by_link(channel):
            return
        lane = lane_of(channel)
        wanting = [peer for peer in tuple(self._peers.values()) if channel.name in peer.advertised.channels]

        def is_answered(_: Mesh) -> bool:
            return not any(lane in peer.rings.offered for peer in wanting if not peer.is_gone)

        self.wait_for(is_answered, timeout)
        for peer in wanting:  # the thread that read the answer may not have come to it
            self.gates.fit(peer, channel.name)

    def forget(self, name: str) -> None:
        """A channel has been closed."""
        with self._lock:
            if self.gates.is_ending or self._said.pop(name, None) is None:
                return
            peers = tuple(self._peers.values())
            for peer in peers:
                peer.told.forget(name)
                peer.link.post(m.ChannelGone(name))
                peer.rings.look_again()
        for peer in peers:
            self.gates.fit(peer, name)

    def stations(self) -> tuple[RemoteStation, ...]:
        """The other stations that are linked, and what they have said of their channels.

        One that is gone is listed, without channels, until all that it had sent is taken in.
        """
        with self._lock:
            return tuple(
                RemoteStation(station, hello.name, hello.pid, tuple(peer.advertised.channels.values()))
                for station, peer in sorted(self._peers.items())
                if (hello := peer.link.peer).pid
            )

    def formats(self, name: str) -> tuple[Format, ...]:
        """The formats in which other stations have a channel."""
        found: dict[bytes, Format] = {}
        with self._lock:
            for peer in self._peers.values():
                state = peer.advertised.channels.get(name)
                for format_id in state.formats if state is not None else ():
                    fmt = peer.advertised.format_of(format_id)
                    if fmt is not None:
                        found[format_id] = fmt
        return tuple(found.values())

    def meet_all(self, timeout: float = ASK_LIMIT) -> bool:
        """Wait until every station that is there is linked and has told all it had to tell by now.

        Stations that are suspected are not waited for.
        """
        return self.meet(self._transport.others() - self._suspected, timeout)

    @property
    def stalls(self) -> dict[str, int]:
        """How often what links need could not be done, because no descriptor or thread was left."""
        return dict(self._stalls.counts)

    @property
    def suspected(self) -> frozenset[int]:
        """The stations that are there and have said nothing for longer than `peer_limit`."""
        with self._lock:
            return frozenset(self._suspected)

    def meet(self, others: set[int], timeout: float) -> bool:
        """The same of some stations."""
        deadline = self._ports.clock.monotonic_ns() + round(timeout * 1e9)
        met = self.wait_for(lambda mesh: others <= {other.station for other in mesh.stations()}, timeout)
        for station in others & {other.station for other in self.stations()}:
            # An answer comes after everything that was said on the control lane before it.
            left = max(0.0, (deadline - self._ports.clock.monotonic_ns()) / 1e9)
            try:
                self.ask(station, "here", None, left)
            except QueryFailed:
                met = False
        return met

    def wait_for(self, wanted: Callable[[Mesh], bool], timeout: float | None = None) -> bool:
        """Wait until what is known of other stations satisfies a condition; it is called without a lock."""
        deadline = None if timeout is None else self._ports.clock.monotonic_ns() + round(timeout * 1e9)
        while not wanted(self):
            left = None if deadline is None else (deadline - self._ports.clock.monotonic_ns()) / 1e9
            if left is not None and left <= 0:
                return False
            with self._lock:
                # Bounded, because a change between the look and the wait is not heard.
                self._changed.wait(0.05 if left is None else min(0.05, left))
        return True

    def wait_changed(self, seen: int, timeout: float) -> int:
        """Wait until something has changed of what peers have since it was looked at; the number of changes.

        `seen` is that number when it was looked at, or -1.
        """
        with self._lock:
            if self._changes == seen:
                self._changed.wait(timeout)
            return self._changes

    def wake(self) -> None:
        """Have those look again who wait for a change."""
        self._notify()

    def stats(self) -> tuple[LinkStats, ...]:
        with self._lock:
            peers = tuple(self._peers.values())
        # Without the lock: a broadcast that takes in a reader waits for suppliers, and those may ask for it.
        return tuple(self._stats(peer) for peer in peers)

    def _stats(self, peer: Peer) -> LinkStats:
        stats, streams = self._airing.stats(peer), self.gates.streams
        if streams is None:
            return stats
        missed = Counter(stats.missed) + peer.losses.unrepaired
        sent = stats.events_sent + streams.sent_to(peer)
        return msgspec.structs.replace(stats, events_sent=sent, missed=dict(missed))

    @property
    def network(self) -> StreamTransport | None:
        """What carries streams to other hosts; None: there is no network."""
        return self._transport.streams

    def streams(self) -> tuple[StreamStats, ...]:
        """The streams to and from stations of other hosts, those included that were taken before."""
        if self._streaming is None or self.gates.streams is None:
            return ()
        with self._lock:
            peers = tuple(self._peers.values())
        found = {(one.peer, one.channel, one.derivation): one for one in self.gates.streams.stats()}
        for peer in peers:
            found.update({(one.peer, *key): one for key, one in tuple(peer.streams.ended.items())})
        for one in self._streaming.stats():
            key = one.peer, one.channel, one.derivation
            found[key] = found[key].added_to(one) if key in found else one
        return tuple(found.values())

    def _carried(self) -> list[PeerCarrier]:
        return [
            PeerCarrier(stats.peer, self._name_of(int(stats.peer, 16)), stats.carrier, stats.carrier_reason)
            for stats in self.stats()
        ]

    def links_of(self, station: int, timeout: float = ASK_LIMIT) -> list[PeerCarrier]:
        """What another station says of its links; QueryFailed when it does not answer."""
        return msgspec.msgpack.decode(self.ask(station, "links", None, timeout), type=list[PeerCarrier])

    def streams_of(self, station: int, timeout: float = ASK_LIMIT) -> list[StreamStats]:
        """What another station says of its streams; QueryFailed when it does not answer, or knows of none."""
        return msgspec.msgpack.decode(self.ask(station, STREAMS, None, timeout), type=list[StreamStats])

    def carriers(self, name: str) -> tuple[ChannelCarrier, ...]:
        """How the events of a channel of this station reach each of the others, and why so."""
        channel = self._channel(name)
        if channel is None:
            raise NotPossible(name, "is not open in this station: station.channel(name, ...)")
        with self._lock:
            peers = tuple(self._peers.values())
        return tuple(self._airing.carrier(peer, channel) for peer in peers)

    def answer(self, topic: str, responder: Responder) -> None:
        """Answer questions of a topic; see `heliograph.links.session.rpc`."""
        self._questions.answer(topic, responder)

    def ask(self, station: int, topic: str, body: Any, timeout: float = ASK_LIMIT) -> msgspec.Raw:
        """Ask another station something and wait for its answer; QueryFailed when there is none."""
        with self._lock:
            peer = self._peers.get(station)
        if peer is None:
            raise QueryFailed(f"station {station:016x}", "is not linked")
        return self._questions.ask(peer.link, topic, body, timeout)

    def ask_later(self, station: int, topic: str, body: Any, outcome: Outcome) -> Callable[[], object]:
        """Ask, and have the answer told by the task that reads it; what is returned gives the question up."""
        with self._lock:
            peer = self._peers.get(station)
        if peer is None:
            outcome(QueryFailed(f"station {station:016x}", GONE))
            return lambda: None
        return partial(self._questions.forget, self._questions.ask_later(peer.link, topic, body, outcome))

    def derives_there(self, station: int) -> bool:
        """Whether another station derives channels that are asked for; older ones do not."""
        peer = self._peers.get(station)
        return peer is not None and peer.link.peer.derives

    def watch(self, hear: Callable[[], object]) -> None:
        """Have this called, without any lock, when what is known of other stations' channels has changed."""
        self._watchers.append(hear)

    def _told_of_channels(self) -> None:
        for hear in self._watchers:
            hear()

    def on_left(self, hear: Callable[[int], object]) -> None:
        """Have this called with a station that will ask nothing more; see `heliograph.links.session.rpc`."""
        self._questions.on_left(hear)

    @property
    def questions_asked(self) -> int:
        """Questions that wait for an answer of another station."""
        return self._questions.asked

    @property
    def writer(self) -> EventWriter:
        """Makes events into bytes, as all links of this station do."""
        return self._writer

    def open_store(
        self,
        channel: str,
        types: Callable[[], tuple[type[Event], ...]],
        on_durable: OnDurable,  # noqa: ARG002 - the keeper's gateway tells the channel
        qos: QoS,
    ) -> RemoteStore:
        """Where a station without a folder has its pushes kept; NotPossible when nobody keeps the channel.

        Of several keepers it is the one whose partition comes first, so that stations agree.
        """
        keepers = find_keepers(self, channel, types(), qos)
        first = min(keepers)
        return RemoteStore(channel, first, types, self._way, qos.missing, keepers[first].epochs)

    def recorded(self, name: str, asked: QoS | None) -> QoS | None:
        """How a channel is kept in the domain, if it is; see `heliograph.links.history.directory`."""
        return recorded(self, name, asked)

    def keepers_of(self, name: str) -> dict[str, m.ChannelState]:
        """What the stations that keep a channel have said of it, by partition."""
        with self._lock:
            states = [peer.advertised.channels.get(name) for peer in self._peers.values()]
        return {state.keeper: state for state in states if state is not None and state.keeper is not None}

    def fetch_kept(self, channel: Channel[Any], late: LateJoin) -> None:
        """A receiver has joined late: give it what linked stations have kept in memory."""
        with self._lock:
            links = [peer.link for peer in self._peers.values() if peer.advertised.keeps(channel.name)]
        self._elsewhere.fetch(channel, [late], links)

    def wait_fetched(self, timeout: float) -> bool:
        """Wait until those who joined late have what was kept for them."""
        return self.wait_for(lambda _: not self._elsewhere.fetching, timeout)

    def close(self, timeout: float = 1.0) -> None:
        """Let the others have what was sent, for up to `timeout` seconds, and leave."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            peers = list(self._peers.values())
        self._silence.close()
        deadline = self._ports.clock.monotonic_ns() + round(timeout * 1e9)
        self._airing.close(timeout)
        if self.gates.streams is not None:
            self.gates.streams.close(timeout)
        for peer in peers:
            if peer.settled is not None:
                peer.settled.flush()
            peer.link.post(*peer.reports.news())
            peer.link.wait_acknowledged(max(0.0, (deadline - self._ports.clock.monotonic_ns()) / 1e9))
        self._questions.close()
        for peer in peers:
            peer.reports.owed.give_up(CLOSED)
            self._drop_peer(peer, CLOSING)
        if self._streaming is not None:
            self._streaming.close()
        # Last: without its lock file this station counts as dead, and nobody would acknowledge anything.
        self._transport.close()

    def abandon(self) -> None:
        """In the child of a fork: no lock can be trusted; only descriptors are let go."""
        self._closed = True
        self._transport.abandon()
        self._airing.abandon()
        for peer in self._peers.values():
            peer.link.abandon()
            for listening in peer.rings.listening.values():
                listening.abandon()

    # Connections

    def _connected(self, connection: Connection, dialled: int | None) -> None:
        self._ports.tasks.spawn("link reader", lambda: self._serve(connection, dialled))

    def _serve(self, connection: Connection, dialled: int | None) -> None:
        """The life of one connection, in a task of its own, until another one may take it over."""
        peer: Peer | None = None
        try:
            if dialled is not None:
                peer = self._peer(dialled)
                connection.offer([m.hello_frame(self._hello(peer.link, connection))])
            # A station that was dialled may be stopped, and answers when it goes on.
            limit = HELLO_LIMIT if dialled is None else None
            first, *more = connection.receive_hello(self._ports.clock, limit)
            if bytes(first) == KNOCK:
                self._transport.look()
                self._disconnected(connection, None, None, dialled)
                return
            peer, epoch = self._greeted(connection, first, dialled)
        except BaseException as error:  # noqa: BLE001 - what ends the process is raised again
            self._disconnected(connection, peer, error, dialled)
            return
        self._begin_reading(peer)
        self._reading.worked()
        turn = self._new_reader("link reader")
        turn.go_on = partial(self._read, peer, connection, epoch, [], turn)
        self._read(peer, connection, epoch, more, turn)

    def _read(
        self, peer: Peer, connection: Connection, epoch: int, frames: list[memoryview], turn: Reader
    ) -> None:
        try:
            turn.begin()
            peer.link.read(connection, epoch, frames, turn)
        except HandedOver:
            return
        except BaseException as error:  # noqa: BLE001 - as above
            turn.end()
            self._disconnected(connection, peer, error, greeted=True)

    def _disconnected(
        self,
        connection: Connection,
        peer: Peer | None,
        error: BaseException | None,
        dialled: int | None = None,
        *,
        greeted: bool = False,
    ) -> None:
        """A connection has ended, by what was raised."""
        failed = False
        try:
            if isinstance(error, LinkLost):
                log.debug("link ended: %s", error)
                if error.reason == CLOSING and peer is not None:
                    self._let_go(peer, PEER_LEFT)
            elif isinstance(error, LinkRefused):
                self._refused(connection, error, dialled)
            elif isinstance(error, BadFrame):
                log.error("connection closed: %s", error)
            elif isinstance(error, Exception):
                failed = True
                log.error("connection closed", exc_info=error)
                self._reading.failed(error)
            elif error is not None:
                raise error
        finally:
            connection.close()
            if peer is None and dialled is not None:
                self._transport.lost(dialled, soon=False)
            elif peer is not None and peer.link.detach(connection):
                self._transport.lost(peer.link.station, soon=greeted and not failed)
            if greeted and peer is not None:
                self._end_reading(peer)

    def _begin_reading(self, peer: Peer) -> None:
        with self._lock:
            peer.readers += 1

    def _end_reading(self, peer: Peer) -> None:
        with self._lock:
            peer.readers -= 1
            is_over = peer.is_gone and not peer.readers
        if is_over:
            self._drop_peer(peer, None)

    def _greeted(self, connection: Connection, first: memoryview, dialled: int | None) -> tuple[Peer, int]:
        """The other station has said hello. The one who dialled spoke first, the other answers here."""
        if first[0] == m.BYE:
            raise LinkRefused("the other station", m.read_bye(first))
        hello = m.read_hello(first, "a caller" if dialled is None else f"station {dialled:016x}")
        who = f"station {hello.station:016x} (pid {connection.process.pid or hello.pid})"
        if hello.domain != self.identity.domain:
            raise LinkRefused(who, f"is of domain {hello.domain[:70]!r}, not {self.identity.domain!r}")
        if hello.station == self.identity.station or dialled not in (None, hello.station):
            raise LinkRefused(who, "is not the station that was dialled")
        # Before anything of that station is touched: a stranger must not end or take its session.
        doubt = self._transport.doubt(hello.station, connection.process, hello.secret)
        if doubt:
            raise NotVouched(who, doubt)
        while True:
            peer = self._peer(hello.station)
            # Of two connections that are greeted at once, the second finds all that the first has said and
            # done; else one of them would go on in the other's session, with numbers that are not its own.
            with peer.link.greeting:
                if not peer.is_gone:
                    return peer, self._attached(connection, peer.link, hello, dialled)

    def _attached(self, connection: Connection, link: Link, hello: m.Hello, dialled: int | None) -> int:
        """Go on with a station over this connection, in the last session or a new one; see `Link.attach`."""
        link.drop_connection()
        resumed = link.can_resume(hello)
        if dialled is not None and hello.resumed and not resumed:
            # It answers a hello of a session that is over here: over another connection, one began since.
            link.renew(answering=True)
            raise LinkLost(link.text, "goes on in a session that is over here")
        resumed = resumed and (dialled is None or hello.resumed)
        if not resumed:
            link.renew(answering=dialled is None)
        if dialled is None:
            connection.offer([m.hello_frame(self._hello(link, connection, resumed=resumed))])
        with self._lock:
            self._suspected.discard(hello.station)
        self._transport.linked(hello.station, connection.process)
        return link.attach(connection, hello, resumed=resumed)

    def _refused(self, connection: Connection, error: LinkRefused, dialled: int | None) -> None:
        log.error("no link: %s", error)
        if error.retriable:
            return
        with suppress(LinkLost):
            connection.offer([m.bye_frame(str(error))])
        if dialled is not None:
            self._transport.refuse(dialled)

    def _hello(self, link: Link, connection: Connection, *, resumed: bool = False) -> m.Hello:
        own = m.Hello(
            self.identity.station,
            self.identity.name,
            self.identity.domain,
            os.getpid(),
            0,
            0,
            (),
            rings=self._airing.is_wanted and connection.carrier != NETWORK,
            streams=self._streaming is not None and connection.carrier != SOCKET,
            secret=self._transport.secret,
            oldest=m.OLDEST,
            derives=self.derives,
        )
        return link.hello(own, resumed=resumed)

    def _peer(self, station: int) -> Peer:
        with self._lock:
            if self._closed:
                raise LinkLost(f"station {station:016x}", "this station is closing")
            peer = self._peers.get(station)
            if peer is None or peer.is_gone:
                if peer is not None:
                    self._old.setdefault(station, []).append(peer)
                link = Link(
                    station,
                    ports=self._ports,
                    writer=self._writer,
                    listener=self,
                    stream_of=self._stream_of,
                    heartbeat=self._heartbeat,
                )
                peer = self._peers[station] = Peer(link, self._ports.tasks)
                self._writer.links = len(self._peers)
            return peer

    def forget_dead(self, names: frozenset[str] = frozenset()) -> frozenset[str]:
        """Let go of stations whose process has ended, though nothing was read of that yet.

        Returns which of the named stations have ended; another thread may still be letting go of one.
        """
        with self._lock:
            stations = set(self._peers)
        living = self._transport.others()
        for station in stations - living:
            self._gone(station)
        return names - {f"{station:016x}" for station in living}

    def _ended(self, station: int) -> None:
        """A station's process has ended."""
        with self._lock:
            self._suspected.discard(station)
        self._airing.remove_dead_rings()
        self._gone(station)

    def suspect(self, station: int) -> None:
        """A station says nothing, or cannot be reached: nobody waits for it before it greets again."""
        with self._lock:
            self._suspected.add(station)
        self._gone(station)

    def _gone(self, station: int) -> None:
        """A station is given up."""
        with self._lock:
            peer = self._peers.get(station)
        if peer is not None:
            self._let_go(peer)

    def _let_go(self, peer: Peer, why: str = PEER_LOST) -> None:
        """A station is gone. Whoever reads what it sent takes in all of that, and the last one drops it."""
        peer.reports.owed.give_up(why)
        with self._lock:
            peer.is_gone = True
            is_read = peer.readers > 0
        if is_read:
            self._leave(peer, None)
            self._airing.finish(peer, is_dead=peer.link.station not in self._transport.others())
            if self._streaming is not None:
                self._streaming.finish(peer)
        else:
            self._drop_peer(peer, None)

    def _leave(self, peer: Peer, reason: str | None) -> None:
        """Send nothing more to a station, and expect no answer of it."""
        peer.link.close(reason)
        self._questions.station_left(peer.link)
        self.gates.leave(peer, peer.reports.owed.reason or PEER_LOST)

    def _drop_peer(self, peer: Peer, reason: str | None) -> None:
        self._airing.end(peer)  # first: whoever sees that a station is gone has all that it wrote
        if self._streaming is not None:
            self._streaming.end(peer)
        with self._lock:
            if self._peers.get(peer.link.station) is peer:  # it may have come back already
                del self._peers[peer.link.station]
                self._old.setdefault(peer.link.station, []).append(peer)
            self._writer.links = len(self._peers)
            self._changes += 1
            self._changed.notify_all()
        self._leave(peer, reason)
        self.gates.drop(peer, is_gone=True, reason=peer.reports.owed.reason)
        is_dead = peer.link.station not in self._transport.others()
        self._airing.forget(peer, is_dead=is_dead)
        self._end_session(peer, is_dead=is_dead)
        self._told_of_channels()

    def _end_session(self, peer: Peer, *, is_dead: bool) -> None:
        """Tell of what was lost with a station. While it lives it may come back and say that it was less."""
        station, reports = peer.link.station, peer.reports
        self.gates.report_lost(reports.owed, peer.link.text)
        with self._lock:
            others = self._transport.others()
            for gone in self._before.keys() - others:
                self._before.pop(gone).conclude()
            for gone in self._old.keys() - others:
                del self._old[gone]
            current = self._peers.get(station)
            if is_dead or self._closed:
                reports.conclude()
            elif not reports.has_begun:
                pass  # it was dialled and never answered: what is known of the last session stands
            elif current is None or not current.reports.has_begun:
                self._before[station] = reports
            else:
                current.reports.follow(reports)
                current.link.post(*current.reports.last_reports())

    def _stream_of(self, channel: str, format_id: bytes) -> int:
        key = (channel, format_id)
        number = self._streams.get(key)
        if number is None:
            # Two threads may number the same stream at once; the first number stays.
            number = self._streams.setdefault(key, next(self._stream_numbers))
        return number

    def _peer_of(self, link: Link) -> Peer | None:
        """The station at the other end; None when it was dropped, though it may have come back since."""
        peer = self._peers.get(link.station)
        return peer if peer is not None and peer.link is link else None

    # What arrives: the listener of every link.

    def on_reset(self, link: Link) -> None:
        peer = self._peer_of(link)
        if peer is None:
            return
        self._end_old(link.station)
        self._airing.end(peer)
        if self._streaming is not None:
            self._streaming.end(peer)
        self.gates.drop(peer)
        # Questions of the last session are not answered in this one, and what was held for them is let go of.
        self._questions.station_left(link)
        with self._lock:
            self.gates.greet(peer, self._ports.random.id64(), self._before.pop(link.station, None))
            link.post(m.SessionNote(peer.reports.owed.session))
            link.post(*self._airing.begin(peer))
            link.post(*peer.reports.last_reports())
            for state in self._said.values():
                channel = self._channel(state.name)
                if channel is not None:
                    peer.told.tell(channel, self.gates.for_peer(peer, channel, state))

    def _end_old(self, station: int) -> None:
        """A station that was given up is back: receivers get nothing of earlier sessions behind this one."""
        with self._lock:
            old = self._old.pop(station, [])
        self.wait_for(lambda _: not any(peer.is_handing_on for peer in old), OLD_SESSION_LIMIT)
        for peer in old:
            self.gates.cut(peer)

    def on_lost(self, link: Link) -> None:
        self._gone(link.station)

    def on_beat(self, link: Link) -> None:
        peer = self._peer_of(link)
        if peer is not None:
            acks = [] if self._streaming is None else self._streaming.acks(peer)
            link.post(*acks, *peer.reports.news())

    def on_left_out(self, link: Link, run: m.Run, events: int) -> None:
        peer = self._peer_of(link)
        stream = None if peer is None else peer.advertised.streams.get(run.stream)
        if peer is not None and stream is not None:
            peer.reports.taken.refuse(stream.channel, events)

    def on_message(self, link: Link, message: m.Message) -> None:
        peer = self._peer_of(link)
        if peer is None:
            return
        match message:
            case m.SessionNote(session=session):
                peer.reports.taken.session = session
            case m.Taken():
                self.gates.confirmed(peer, message)
            case m.FormatNote():
                peer.advertised.learn(message.id, message.description)
            case m.Announce():
                self._announced(peer, message)
            case _ if peer.is_gone:
                pass  # nobody waits for what follows from it, and nobody would undo it
            case m.ChannelState():
                self._told_of_channel(peer, message)
            case m.ChannelGone(name=name):
                self.gates.channel_gone(peer, name)
                self._notify()
                self._told_of_channels()
            case m.Flow(channel=name, paused=paused):
                self.gates.pause(peer, name, paused=paused)
            case m.RingOffer() | m.RingGap() | m.Missed():
                self._airing.hear(peer, message)
            case m.RingAnswer():
                if self._airing.answered(peer, message):
                    for name in tuple(peer.advertised.channels):
                        self.gates.fit(peer, name)
                    self.keeper.carried(link.station)
                    self._notify()
            case m.StreamBegin() | m.StreamEnd() | m.StreamAck() | m.StreamLost():
                self._hear_of_stream(peer, message)
            case m.Acked():
                self.gates.acked(peer, message)
            case m.Ask():
                self._questions.on_ask(link, message)
            case m.Answer():
                self._questions.on_answer(link, message)

    def on_run(self, link: Link, run: m.Run, skip: int, *, by_stream: Peer | None = None) -> None:
        """Take events in that came over a link, or `by_stream` of the network from this peer."""
        peer = by_stream or self._peer_of(link)
        if peer is None:
            raise LinkLost(link.text, "was dropped here")
        stream = peer.advertised.streams.get(run.stream)
        if stream is None:
            raise BadFrame(link.name, f"events of stream {run.stream}, which was never announced")
        way_in = self.gates.arrivals if by_stream is None else self.gates.arrivals_by_stream
        arrivals = way_in(peer, stream.channel)
        if arrivals is None:
            peer.losses.unwanted += run.length
            peer.reports.taken.refuse(stream.channel, run.length - skip)
        else:
            channel = arrivals.channel
            types = channel.types
            if stream.prepared_for is not types:
                channel.meet_version(stream.wire)
                types = channel.types
            items = stream.read(run, types, link.name, skip, channel.qos.missing)
            if len(items) < run.length - skip:
                # First: who takes them in may be relieved of the reading, and does not come back here.
                peer.reports.taken.refuse(stream.channel, run.length - skip - len(items))
            if stream.refused:
                self.gates.refused(peer, channel, [one.header.id for one in stream.refused])
                arrivals.refuse(items, stream.refused)
            else:
                arrivals.add(items)

    def _told_of_channel(self, peer: Peer, message: m.ChannelState) -> None:
        for want in message.wants:
            if want.tree is not None:
                from_data(want.tree, peer.link.name)  # what is kept can be trusted from here on
        if message.derived is not None:
            read_derivation(message.derived.data, peer.link.name)
        known = peer.advertised.channels.get(message.name)
        peer.advertised.check_number(peer.advertised.channels)
        self.gates.channel_told(peer, message)
        if known is None and peer.advertised.keeps(message.name):
            self._meet_kept(message.name, peer.link)
        channel = self._channel(message.name)
        if channel is not None and (known is None or known.keeper != message.keeper):
            self._keeper_came(channel, message)
        elif channel is not None and known is not None:
            self._hear_manager(channel, known, message)
        self._notify()
        self._told_of_channels()

    def _announced(self, peer: Peer, message: m.Announce) -> None:
        peer.advertised.announced(message)
        if self._streaming is not None:
            self._streaming.announced(peer)

    def _hear_of_stream(
        self, peer: Peer, message: m.StreamBegin | m.StreamEnd | m.StreamAck | m.StreamLost
    ) -> None:
        if isinstance(message, m.StreamAck | m.StreamLost):
            if self.gates.streams is not None:
                self.gates.streams.hear(peer, message)
        elif self._streaming is not None:
            self._streaming.hear(peer, message)

    def _repair(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        peer, streams = self._peers.get(station), self.gates.streams
        if peer is None or streams is None:
            raise QueryFailed(f"station {station:016x}", "is not linked")
        streams.repair(peer, body, reply)

    def _name_of(self, station: int) -> str:
        peer = self._peers.get(station)
        return "" if peer is None else peer.link.peer.name

    def _format_of(self, station: int, format_id: bytes) -> Format | None:
        peer = self._peers.get(station)
        return None if peer is None else peer.advertised.format_of(format_id)

    def _keeper_of(self, name: str, partition: str, timeout: float) -> Link | None:
        """The link to the station that keeps a partition of a channel."""
        found: list[Link] = []

        def is_known(mesh: Mesh) -> bool:
            # A copy, made at once, and no lock: a supplier asks while it holds its own, and whoever has the
            # lock of the mesh may wait for a channel that waits for that supplier.
            for peer in tuple(mesh._peers.values()):
                state = peer.advertised.channels.get(name)
                if state is not None and state.keeper == partition:
                    found.append(peer.link)
            return bool(found)

        self.wait_for(is_known, timeout)
        return found[0] if found else None

    def _meet_kept(self, name: str, link: Link) -> None:
        """A station that has the channel too is met: it may have kept what receivers here asked for."""
        channel = self._channel(name)
        late = [] if channel is None else list(channel.neighbours.late_joiners())
        if channel is not None and late:
            self._elsewhere.fetch(channel, late, [link])

    def _keeper_came(self, channel: Channel[Any], state: m.ChannelState) -> None:
        """A station that keeps a part of the history is there; while it was away more may have been kept."""
        if state.keeper is None or channel.qos == self.reopened.get(channel.name):
            return
        try:
            check_state(channel.name, state, channel.qos)
        except NotPossible as conflict:
            channel.neighbours.conflict(conflict)
            return
        assert channel.store is not None, "what is not kept conflicts with what is"
        if channel.store.kept_here and channel.store.partition == state.keeper:
            log.error(
                "another station keeps partition %s of %s too, in a copy of this folder: what it keeps is "
                "not read here; start one of the two in a folder of its own",
                state.keeper,
                channel.name,
            )
            return
        partition = RemotePartition(
            channel.name, state.keeper, lambda: channel.types, self._way, channel.qos.missing, state.epochs
        )
        channel.neighbours.partition_came(partition, state.watermark)
        _hear_suspension(channel, state)
        self._hear_admission(channel, state)

    def _hear_manager(self, channel: Channel[Any], known: m.ChannelState, state: m.ChannelState) -> None:
        """What the manager of a keeper's station says of a channel may have changed."""
        if known.suspended != state.suspended:
            _hear_suspension(channel, state)
        if known.admitted != state.admitted:
            self._hear_admission(channel, state)

    def _hear_admission(self, channel: Channel[Any], state: m.ChannelState) -> None:
        """As a suspension: what a manager has said last holds also while its station is away."""
        told, source = state.admitted, state.keeper
        if source is None or (told is None and channel.admission is None):
            return
        admission = None if told is None else Admission(channel.name, *map(frozenset, told))
        channel.admit(lambda: admission, source)
        for peer in tuple(self._peers.values()):
            self.gates.fit(peer, channel.name)

    def _keeps(self, station: int, name: str) -> bool:
        peer = self._peers.get(station)
        state = None if peer is None else peer.advertised.channels.get(name)
        return state is not None and state.keeper is not None

    def _notify(self) -> None:
        with self._lock:
            self._changes += 1
            self._changed.notify_all()


def _hear_suspension(channel: Channel[Any], state: m.ChannelState) -> None:
    """What the manager of a keeper's station says holds in all of the domain, also while it is away."""
    owner, source = state.suspended, state.keeper
    known = None if source is None else channel.suspended_by(source)
    if source is not None and getattr(known, "owner", None) != owner:
        channel.suspend(lambda: None if owner is None else partial(Suspended, channel.name, owner), source)
