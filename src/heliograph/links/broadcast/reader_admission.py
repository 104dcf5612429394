"""Offers a station's ring to its peers on the host, admits their readers and removes them.

When another station that uses rings wants something of a channel, it is offered the lane of the broadcast
that carries it (`heliograph.links.broadcast.carrier_choice`), if it has it not yet. It opens that ring and
answers. Only then does the gateway come to be: by ring, or by the link for all that is not broadcast, and
for whoever declined. So a channel never changes its carrier within a session, and no order is to be kept
across a change.

A station whose reader stood still beyond its lease was overtaken, and has missed events. Its session is ended
at once, it is told how many of which channel as soon as it can be, and it is offered no ring any more. One
that would miss nothing is overtaken sooner, and may read again. If the session of that reader was over
already, because its station was struck off or has begun anew, no other session of the station is ended.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import RingError
from heliograph.links.broadcast.carrier_choice import BEST_EFFORT, HIGH, NORMAL, lane_of, why_by_link
from heliograph.links.broadcast.publisher import Broadcast
from heliograph.links.broadcast.queue import OVERTAKEN as BY_STANDING_STILL
from heliograph.links.contract import NETWORK
from heliograph.links.session import messages as m
from heliograph.links.session.confirmation import CLOSED, PEER_LOST
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.dispatch.reader_handover import NewReader
    from heliograph.links.broadcast.gateway import BroadcastGateway, ReaderSession
    from heliograph.links.broadcast.reader import BroadcastReader
    from heliograph.links.broadcast.shared_memory import Rings
    from heliograph.links.mesh.ingress import Ingress
    from heliograph.links.mesh.peer import Peer
    from heliograph.links.session.link import LinkStats
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event
    from heliograph.ring import RingFolder, RingReader, WaitMode
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

SLOTS: Final = 1 << 16
"""A ring of four megabytes for the lane of most channels, so that an event of one goes as one record."""
PART: Final = {NORMAL: 1, HIGH: 8, BEST_EFFORT: 4}
"""Which part of that the ring of each lane has."""
LOOK_FOR_WRITER_EVERY: Final = 2.0
"""Seconds between two looks of a sleeping reader at whether the other station lives: seldom, since the
transport says so when it does not, and with many peers each look counts."""
DRAIN_LIMIT: Final = 1.0
"""Seconds without progress after which what another station has written is left out when it begins anew."""

SESSION_LIMIT: Final = 5.0
"""Seconds after which a station that was overtaken begins a new session itself, if the other one has not."""

LEASE: Final = 10.0
"""Seconds for which a reader that stands still may hold up the broadcast: as long as a link is waited for."""

NOT_HERE: Final = "this station uses no rings"
OTHER_HOST: Final = "it is reached over the network, where no memory is shared"
NOT_THERE: Final = "the other station uses no rings; its own stats say why"
NOT_YET: Final = "the other station has not answered yet"
NOT_USED: Final = "the other station has wanted nothing that is broadcast there"
FAILED: Final = "this station's reading of a broadcast has failed before"
OVERTAKEN: Final = "the other station stood still for longer than its lease"


class ChannelCarrier(msgspec.Struct, frozen=True):
    """How the events of a channel reach one station."""

    peer: str
    carrier: str
    """`ring`, or what carries the link: `socket`, `memory`."""
    reason: str
    """Why it is no ring; empty when it is one."""


class BroadcastNegotiation:
    """See the module.

    Args:
        station: this one.
        rings: where it has its own, or why it has none.
        arrivals: the way in for a channel's events that a station broadcasts.
        begin_reading: told when a station's broadcast is read from now on.
        end_reading: told when all of it has been taken in, or what was read of it.
        peer_of: what is known of a station.
        leave: has a station leave all channels.
        new_reader: what a thread that reads runs callbacks with.
    """

    def __init__(
        self,
        station: int,
        rings: Rings,
        ports: Ports,
        *,
        writer: EventWriter,
        stream_of: Callable[[str, bytes], int],
        arrivals: Callable[[Peer, str], Ingress | None],
        begin_reading: Callable[[Peer], None],
        end_reading: Callable[[Peer], None],
        peer_of: Callable[[int], Peer | None],
        leave: Callable[[Peer], None],
        new_reader: NewReader,
    ) -> None:
        self._station = station
        self._rings = rings
        self._folder: RingFolder | None = rings.folder
        self._wait: WaitMode = rings.wait
        self._ports = ports
        self._writer = writer
        self._stream_of = stream_of
        self._arrivals = arrivals
        self._begin_reading = begin_reading
        self._end_reading = end_reading
        self._peer_of = peer_of
        self._leave = leave
        self._new_reader = new_reader
        self._leaving: dict[int, Counter[str]] = {}
        self._missed: dict[int, Counter[str]] = {}
        self._lock = ports.tasks.lock("airing")
        self._broadcasts: dict[int, Broadcast] = {}
        self._lines: list[Broadcast] = []
        self._closed = False
        self._closing = ports.tasks.event("end of airing")

    def remove_dead_rings(self) -> None:
        """A station may have died: what it left in shared memory is removed."""
        self._rings.remove_dead()

    @property
    def is_wanted(self) -> bool:
        """Whether this station uses rings; said in its hello."""
        return self._folder is not None

    # A session begins

    def begin(self, peer: Peer) -> list[m.Message]:
        """What to say first to a station with which a session begins; it has left the last one."""
        self._end_session(peer, is_gone=False)
        peer.rings.offered.clear()
        peer.rings.reasons.clear()
        peer.rings.is_expelled = False
        missed = self._missed.get(peer.link.station)
        return [m.Missed(dict(missed))] if missed else []

    def is_settled(self, peer: Peer, channel: Channel[Any]) -> bool:
        """Whether it is known how a channel's events reach a station; if not, it is asked."""
        lane = lane_of(channel)
        if (
            why_by_link(channel)
            or self._why_none(peer)
            or lane in peer.rings.reads
            or lane in peer.rings.reasons
        ):
            return True
        if lane in peer.rings.offered:
            return False
        broadcast = self._opened(lane, peer)
        if broadcast is None:
            return True
        peer.rings.offered.add(lane)
        peer.link.post(m.RingOffer(lane, broadcast.ring.name.incarnation))
        return False

    def answered(self, peer: Peer, answer: m.RingAnswer) -> bool:
        """Whether this answer was owed, so that gateways can be made now."""
        lane = answer.lane
        if lane not in peer.rings.offered:
            return False
        if not answer.reads:
            peer.rings.reasons[lane] = f"the other station: {answer.reason[: m.MAX_REASON]}"
        else:
            hearer = self._broadcasts[lane].read_by(peer.link.station, answer.row)
            if hearer is not None:
                peer.rings.reads[lane] = hearer
            if hearer is None or hearer.is_ended:  # after it is known: whoever ends it looks there
                peer.rings.reads.pop(lane, None)
                peer.rings.reasons[lane] = OVERTAKEN
        peer.rings.offered.discard(lane)
        return True

    def hear(self, peer: Peer, message: m.RingOffer | m.RingGap | m.Missed) -> None:
        """Do what another station asks in words of its broadcast, or of this one's."""
        match message:
            case m.RingOffer():
                peer.link.post(self._offered(peer, message))
            case m.RingGap(lane=lane) if lane in peer.rings.reads:
                self._broadcasts[lane].repeat(peer.rings.reads[lane])
            case m.Missed():
                self._has_missed(peer, message)

    def _offered(self, peer: Peer, offer: m.RingOffer) -> m.RingAnswer:
        """Read the ring that a station offers, if that can be."""
        lane = offer.lane
        if self._folder is None or peer.rings.is_shunned or lane in peer.rings.listening or lane not in PART:
            return m.RingAnswer(lane, reads=False, reason=FAILED if peer.rings.is_shunned else NOT_HERE)
        from heliograph.ring import RingName  # noqa: PLC0415 - stations without rings need not load it

        name = RingName(peer.link.station, lane, offer.incarnation & 0xFFFFFFFFFFFFFFFF)
        try:
            reader = self._folder.open(
                name,
                self._ports,
                reliable=lane != BEST_EFFORT,
                wait=self._wait,
                look_every=LOOK_FOR_WRITER_EVERY,
                reuse=True,
            )
        except RingError as error:
            log.warning("the broadcast of station %s stays unread: %s", peer.link.name, error)
            return m.RingAnswer(lane, reads=False, reason=str(error))
        self._begin_reading(peer)
        listening = peer.rings.listening[lane] = self._listening(peer, lane, reader)
        if peer.is_gone:  # meanwhile, and whoever said so saw no broadcast
            listening.finish()
        return m.RingAnswer(lane, reads=True, row=reader.row)

    def _listening(self, peer: Peer, lane: int, reader: RingReader) -> BroadcastReader:
        from heliograph.links.broadcast.best_effort_reader import BestEffortReader  # noqa: PLC0415 - likewise
        from heliograph.links.broadcast.reader import BroadcastReader  # noqa: PLC0415 - stations without rings need not load it

        kind: Callable[..., BroadcastReader] = BroadcastReader
        if lane == BEST_EFFORT:
            kind = partial(
                BestEffortReader,
                missed=peer.losses.fell_behind,
                on_gap=lambda: peer.link.post(m.RingGap(lane)),
            )
        return kind(
            reader,
            self._station,
            peer.link.name,
            self._ports,
            arrivals=lambda channel: self._arrivals(peer, channel),
            own=self._lines,
            on_failed=lambda listening, reason: self._failed(peer, lane, listening, reason),
            on_overtaken=lambda listening: self._expect_session(peer, lane, listening),
            on_ended=lambda: self._end_reading(peer),
            left_out=peer.losses.left_out,
            unreadable=peer.losses.tally(),
            refuse=peer.reports.taken.refuse,
            deadline_of=peer.link.clock.deadline,
            turn=self._new_reader(f"broadcast of {peer.link.name}", is_direct=True),
        )

    # Gateways

    def takes(self, peer: Peer, channel: Channel[Any]) -> bool:
        """Whether a channel's events reach this station by ring."""
        return lane_of(channel) in peer.rings.reads and not why_by_link(channel)

    def admit(
        self, peer: Peer, channel: Channel[Any], conditions: Mapping[type[Event], Any]
    ) -> BroadcastGateway:
        lane = lane_of(channel)
        # Of the best-effort lane nobody confirms anything: who falls behind there knows what it missed.
        owed = None if lane == BEST_EFFORT else peer.reports.owed
        return self._broadcasts[lane].admit(peer.rings.reads[lane], channel, conditions, owed, peer.link.ask)

    def change(self, peer: Peer, gateway: BroadcastGateway, conditions: Mapping[type[Event], Any]) -> None:
        gateway.broadcast.change(peer.rings.reads[gateway.broadcast.lane], gateway, conditions)

    def leave(self, peer: Peer, gateway: BroadcastGateway, reason: str = CLOSED) -> None:
        """A station wants nothing more of a channel, or is gone: then what waits is lost to it.

        What waits for others, too, is written for them.
        """
        broadcast, name = gateway.broadcast, gateway.channel.name
        hearer = peer.rings.reads[broadcast.lane]
        reason = BY_STANDING_STILL if peer.rings.is_expelled else reason
        waiting = broadcast.leave(hearer, gateway, reason)
        if not waiting or reason == CLOSED:
            return
        missed = broadcast.wanted_by(hearer, name, waiting)
        if peer.rings.is_expelled:
            self._add_missed(peer.link.station, +Counter({name: len(missed)}))
        gateway.lose(hearer, missed, reason)

    def pause(self, peer: Peer, gateway: BroadcastGateway, *, paused: bool) -> None:
        hearer = peer.rings.reads.get(gateway.broadcast.lane)
        if hearer is not None:
            gateway.broadcast.pause(hearer, gateway, paused=paused)

    def stats(self, peer: Peer) -> LinkStats:
        """Of the link to a station, and of what reaches it by broadcast."""
        stats = peer.link.stats()
        reads = tuple(peer.rings.reads.items())
        sent = peer.rings.sent_before + sum(self._broadcasts[lane].sent_to(hearer) for lane, hearer in reads)
        reason = self._why_none(peer) or next(
            iter(peer.rings.reasons.values()), NOT_YET if peer.rings.offered else NOT_USED
        )
        return msgspec.structs.replace(
            stats,
            events_sent=stats.events_sent + sent,
            left_out=stats.left_out + peer.losses.unreadable,
            carrier="ring" if peer.rings.reads and stats.carrier else stats.carrier,
            carrier_reason="" if peer.rings.reads else reason,
            overtaken=dict(self._missed.get(peer.link.station, {})),
            missed=dict(peer.losses.missed + peer.losses.left_out + peer.losses.fell_behind),
        )

    def carrier(self, peer: Peer, channel: Channel[Any]) -> ChannelCarrier:
        """How a channel's events reach a station."""
        if self.takes(peer, channel):
            return ChannelCarrier(peer.link.name, "ring", "")
        lane = lane_of(channel)
        unknown = NOT_YET if lane in peer.rings.offered else NOT_USED
        reason = self._why_none(peer) or why_by_link(channel) or peer.rings.reasons.get(lane, unknown)
        return ChannelCarrier(peer.link.name, peer.link.stats().carrier, reason)

    def _why_none(self, peer: Peer) -> str:
        """Why a station hears nothing of this one by ring; empty when it may."""
        station = peer.link.station
        if peer.link.stats().carrier == NETWORK:
            return OTHER_HOST
        if self._folder is None or not peer.link.peer.rings:
            return self._rings.reason or NOT_THERE
        return OVERTAKEN if self._missed.get(station) or station in self._leaving else ""

    # A session ends

    def finish(self, peer: Peer, *, is_dead: bool) -> None:
        """The other station is gone: what it has written is taken in, however long that takes."""
        self._bury(peer, is_dead=is_dead)
        self._end_session(peer, is_gone=True)
        for listening in tuple(peer.rings.listening.values()):
            listening.finish()

    def end(self, peer: Peer) -> None:
        """Take in what the other station has written by now, and read its rings no more."""
        peer.rings.offered.clear()
        while peer.rings.listening:
            _, listening = peer.rings.listening.popitem()
            listening.drain(DRAIN_LIMIT)

    def _expel(self, lane: int, hearer: ReaderSession) -> None:
        """A reader was overtaken: end its session, and serve the others again as soon as it has left."""
        peer = self._peer_of(hearer.station)
        is_its_session = peer is not None and peer.rings.reads.get(lane) is hearer
        try:
            if peer is not None and is_its_session:
                peer.rings.is_expelled = True
                self._leave(peer)
        finally:  # whatever happens, the others are served, and the station is told
            self._broadcasts[lane].released(hearer)
            missed = self._publish_missed(hearer.station)
            log.error(
                "station %016x stood still for longer than it is waited for; %s did not get: %s",
                hearer.station,
                "it is linked anew, and" if is_its_session else "its last session",
                _by_channel(missed),
            )
            if peer is not None and is_its_session:
                peer.link.begin_anew()
            elif peer is not None and missed:
                peer.link.post(m.Missed(dict(missed)))

    def _publish_missed(self, station: int) -> Counter[str]:
        """All that a station has missed by now."""
        with self._lock:
            missed = self._missed.get(station, Counter()) + self._leaving.pop(station, Counter())
            self._missed[station] = missed
            return missed

    def _has_missed(self, peer: Peer, told: m.Missed) -> None:
        """Another station says that this one was overtaken."""
        news = Counter(told.events) - peer.losses.missed
        peer.losses.missed = Counter(told.events)
        if news:
            log.error(
                "this station stood still, and the broadcast of station %s has gone on without it; lost: %s",
                peer.link.name,
                _by_channel(news),
            )

    def forget(self, peer: Peer, *, is_dead: bool) -> None:
        """A station is gone; while it lives it may come back, and is to hear what it missed."""
        self._bury(peer, is_dead=is_dead)
        self._end_session(peer, is_gone=True)
        if is_dead:
            self._missed.pop(peer.link.station, None)

    def close(self, timeout: float) -> None:
        """Say in the ring that nothing more comes; before the links end, so that readers have it all.

        For so many seconds at most what waits is written first.
        """
        with self._lock:
            self._closed = True
            broadcasts = tuple(self._lines)
        self._closing.set()
        clock = self._ports.clock
        deadline = clock.monotonic_ns() + round(timeout * 1e9)
        for broadcast in broadcasts:
            broadcast.close(seconds_until(clock, deadline))
        self._rings.leave()

    def abandon(self) -> None:
        """In the child of a fork."""
        for broadcast in self._lines:
            broadcast.abandon()

    def _opened(self, lane: int, peer: Peer) -> Broadcast | None:
        """A lane, made when it is first needed; None, and a reason for this station, when that cannot be."""
        with self._lock:
            if lane not in self._broadcasts and self._folder is not None and not self._closed:
                try:
                    ring = self._folder.create(
                        self._station, lane, self._ports, slots=SLOTS // PART[lane], lease=LEASE
                    )
                except RingError as error:
                    peer.rings.reasons[lane] = str(error)
                    log.warning("station %s hears less by broadcast: %s", peer.link.name, error)
                    return None
                on_overtaken = partial(self._overtaken, lane)
                broadcast = Broadcast(ring, self._ports, self._writer, self._stream_of, on_overtaken)
                self._broadcasts[lane] = broadcast
                self._lines.append(broadcast)
            return self._broadcasts.get(lane)

    def _overtaken(self, lane: int, hearer: ReaderSession, missed: Counter[str]) -> None:
        self._add_missed(hearer.station, missed)
        self._ports.tasks.spawn_soon("overtaken station", lambda: self._expel(lane, hearer))

    def _add_missed(self, station: int, missed: Counter[str]) -> None:
        """Known to others when the station has left its channels: till then there is more to come."""
        with self._lock:
            self._leaving[station] = self._leaving.get(station, Counter()) + missed

    def _bury(self, peer: Peer, *, is_dead: bool) -> None:
        """Nobody reads what is in the rings for a process that has ended."""
        if is_dead:
            for lane, hearer in tuple(peer.rings.reads.items()):
                self._broadcasts[lane].add_dead_letter(hearer, peer.reports.owed.reason or PEER_LOST)

    def _end_session(self, peer: Peer, *, is_gone: bool) -> None:
        """A station has left all channels: what it hears from now on is another session."""
        while peer.rings.reads:
            lane, hearer = peer.rings.reads.popitem()
            peer.rings.sent_before += self._broadcasts[lane].sent_to(hearer)
            self._broadcasts[lane].end_session(hearer, is_gone=is_gone)

    def _expect_session(self, peer: Peer, lane: int, listening: BroadcastReader) -> None:
        """The other station goes on without this one: it says what was missed, and begins a new session."""

        def insist() -> None:
            if not self._closing.wait(SESSION_LIMIT) and peer.rings.listening.get(lane) is listening:
                log.error(
                    "station %s said nothing of what this one missed; it is linked anew", peer.link.name
                )
                peer.link.begin_anew()

        self._ports.tasks.spawn_soon("overtaken by another station", insist)

    def _failed(self, peer: Peer, lane: int, listening: BroadcastReader, reason: str) -> None:
        """Events may be lost: begin a new session, without rings."""
        peer.rings.is_shunned = True
        if peer.rings.listening.get(lane) is listening:
            peer.rings.listening.pop(lane, None)
            log.error("station %s is linked anew, without its broadcast: %s", peer.link.name, reason)
            peer.link.begin_anew()


def _by_channel(events: Counter[str]) -> str:
    return ", ".join(f"{n} events of {channel}" for channel, n in sorted(events.items())) or "no events"
