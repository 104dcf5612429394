"""Who of the stations on this host hears whom by ring: offers, answers, and what is done when one ends.

When two stations begin a session and both use rings, each makes its broadcast ring, if it has none yet, and
offers it as the first thing it says. The other one opens it and answers. Only then do gateways come to be:
by ring for what `heliograph.link.broadcast.carries`, by the link for all else, and for whoever declined. So a
channel never changes its carrier within a session, and there is no order to be kept across a change.

A station whose reader stood still beyond its lease was overtaken, and has missed events. Its session is ended
at once, it is told how many of which channel as soon as it can be, and it is offered no ring any more. One
that would miss nothing is overtaken sooner, and may read again.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import RingError
from heliograph.link import messages as m
from heliograph.link.broadcast import Aired, Broadcast, carries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.core import Channel
    from heliograph.event import Event
    from heliograph.link.arrivals import Arrivals
    from heliograph.link.gates import Peer
    from heliograph.link.link import LinkStats
    from heliograph.link.listening import Listening
    from heliograph.link.runs import EventWriter
    from heliograph.ports import Ports
    from heliograph.ring import RingFolder, WaitMode

log = logging.getLogger(__name__)

SLOTS: Final = 1 << 16
"""A ring of four megabytes for each station, so that an event of one goes as one record."""
LANE: Final = 1
"""Of the broadcast; lane 0 is for rings between two stations."""
LOOK_FOR_WRITER_EVERY: Final = 2.0
"""As in `heliograph.link.ring`."""
DRAIN_LIMIT: Final = 1.0
"""Seconds without progress after which what another station has written is left out when it begins anew."""

LEASE: Final = 10.0
"""Seconds for which a reader that stands still may hold up the broadcast: as long as a link is waited for."""

NOT_HERE: Final = "this station uses no rings"
NOT_THERE: Final = "the other station uses no rings"
NOT_YET: Final = "the other station has not answered yet"
FAILED: Final = "this station's reading of a broadcast has failed before"
OVERTAKEN: Final = "the other station stood still for longer than its lease"


class Rings(msgspec.Struct, frozen=True):
    """Where a station has its rings, and how it waits for what comes in those of others."""

    folder: Any
    """A `RingFolder`."""
    wait: Any = "block"
    """A `WaitMode`."""


class ChannelCarrier(msgspec.Struct, frozen=True):
    """How the events of a channel reach one station."""

    peer: str
    carrier: str
    """`broadcast`, or what carries the link: `socket`, `ring`, `memory`."""
    reason: str
    """Why it is no broadcast; empty when it is one."""


class _Silence:
    """In place of a broadcast where there is none."""

    due_ns = 0


class Airing:
    """See the module.

    Args:
        station: this one.
        rings: None where it uses none.
        arrivals: the way in for a channel's events that a station broadcasts.
        begin_reading: told when a station's broadcast is read from now on.
        end_reading: told when all of it has been taken in, or what was read of it.
        peer_of: what is known of a station.
        leave: has a station leave all channels.
    """

    def __init__(
        self,
        station: int,
        rings: Rings | None,
        ports: Ports,
        *,
        writer: EventWriter,
        stream_of: Callable[[str, bytes], int],
        arrivals: Callable[[Peer, str], Arrivals | None],
        begin_reading: Callable[[Peer], None],
        end_reading: Callable[[Peer], None],
        peer_of: Callable[[int], Peer | None],
        leave: Callable[[Peer], None],
    ) -> None:
        self._station = station
        self._folder: RingFolder | None = None if rings is None else rings.folder
        self._wait: WaitMode = "block" if rings is None else rings.wait
        self._ports = ports
        self._writer = writer
        self._stream_of = stream_of
        self._arrivals = arrivals
        self._begin_reading = begin_reading
        self._end_reading = end_reading
        self._peer_of = peer_of
        self._leave = leave
        self._leaving: dict[int, Counter[str]] = {}
        self._missed: dict[int, Counter[str]] = {}
        self._lock = ports.tasks.lock("airing")
        self._broadcast: Broadcast | None = None
        self._reason = NOT_HERE
        self._closed = False

    @property
    def is_wanted(self) -> bool:
        """Whether this station uses rings; said in its hello."""
        return self._folder is not None

    # A session begins

    def begin(self, peer: Peer) -> list[m.Message]:
        """What to say first to a station with which a session begins."""
        station = peer.link.station
        peer.reads_ring, peer.owes_answer = False, False
        peer.ring_reason = NOT_HERE if self._folder is None else NOT_THERE
        if self._folder is None or not peer.link.peer.rings:
            return []
        if self._missed.get(station) or station in self._leaving:
            peer.ring_reason = OVERTAKEN
            return [m.Missed(dict(self._missed.get(station, {})))]
        broadcast = self._opened()
        if broadcast is None:
            peer.ring_reason = self._reason
            return []
        peer.owes_answer, peer.ring_reason = True, NOT_YET
        return [m.RingOffer(broadcast.ring.name.lane, broadcast.ring.name.incarnation)]

    def answered(self, peer: Peer, answer: m.RingAnswer) -> bool:
        """Whether this answer was owed, so that gateways can be made now."""
        if not peer.owes_answer:
            return False
        peer.owes_answer, peer.reads_ring = False, answer.reads
        peer.ring_reason = "" if answer.reads else f"the other station: {answer.reason[: m.MAX_REASON]}"
        assert self._broadcast is not None
        if answer.reads and not self._broadcast.is_read_by(peer.link.station, answer.row):
            peer.reads_ring, peer.ring_reason = False, OVERTAKEN
        return True

    def offered(self, peer: Peer, offer: m.RingOffer) -> m.RingAnswer:
        """Read the ring that a station offers, if that can be."""
        if self._folder is None or peer.shuns_rings or peer.listening is not None:
            return m.RingAnswer(reads=False, reason=FAILED if peer.shuns_rings else NOT_HERE)
        from heliograph.link.listening import Listening  # noqa: PLC0415 - stations without rings need not load it
        from heliograph.ring import RingName  # noqa: PLC0415 - likewise

        name = RingName(peer.link.station, offer.lane, offer.incarnation & 0xFFFFFFFFFFFFFFFF)
        try:
            reader = self._folder.open(
                name,
                self._ports,
                reliable=True,
                wait=self._wait,
                look_every=LOOK_FOR_WRITER_EVERY,
                reuse=True,
            )
        except RingError as error:
            log.warning("the broadcast of station %s stays unread: %s", peer.link.name, error)
            return m.RingAnswer(reads=False, reason=str(error))
        broadcast = self._opened()
        self._begin_reading(peer)
        peer.listening = Listening(
            reader,
            self._station,
            peer.link.name,
            self._ports,
            arrivals=lambda channel: self._arrivals(peer, channel),
            own=_Silence() if broadcast is None else broadcast,
            on_failed=lambda listening, reason: self._failed(peer, listening, reason),
            on_ended=lambda: self._end_reading(peer),
            left_out=peer.left_out,
        )
        if peer.is_gone:  # meanwhile, and whoever said so saw no broadcast
            peer.listening.finish()
        return m.RingAnswer(reads=True, row=reader.row)

    # Gateways

    def takes(self, peer: Peer, channel: Channel[Any]) -> bool:
        """Whether a channel's events reach this station by ring."""
        return peer.reads_ring and not carries(channel)

    def admit(self, peer: Peer, channel: Channel[Any], conditions: Mapping[type[Event], Any]) -> Aired:
        assert self._broadcast is not None, "nobody reads what is not there"
        return self._broadcast.admit(peer.link.station, channel, conditions)

    def change(self, peer: Peer, gateway: Aired, conditions: Mapping[type[Event], Any]) -> None:
        assert self._broadcast is not None
        self._broadcast.change(peer.link.station, gateway, conditions)

    def leave(self, peer: Peer, gateway: Aired) -> None:
        assert self._broadcast is not None
        station = peer.link.station
        waited = self._broadcast.leave(station, gateway)
        if waited and station in self._leaving:
            self._leaving[station][gateway.channel.name] += waited

    def pause(self, peer: Peer, gateway: Aired, *, paused: bool) -> None:
        assert self._broadcast is not None
        self._broadcast.pause(peer.link.station, gateway, paused=paused)

    def stats(self, peer: Peer) -> LinkStats:
        """Of the link to a station, and of what reaches it by broadcast."""
        stats = peer.link.stats()
        sent = 0 if self._broadcast is None else self._broadcast.sent_to(peer.link.station)
        return msgspec.structs.replace(
            stats,
            events_sent=stats.events_sent + sent,
            broadcast=peer.reads_ring,
            broadcast_reason=peer.ring_reason,
            overtaken=dict(self._missed.get(peer.link.station, {})),
            missed=dict(peer.missed + peer.left_out),
        )

    def carrier(self, peer: Peer, channel: Channel[Any]) -> ChannelCarrier:
        """How a channel's events reach a station."""
        if self.takes(peer, channel):
            return ChannelCarrier(peer.link.name, "broadcast", "")
        reason = carries(channel) if peer.reads_ring else peer.ring_reason
        return ChannelCarrier(peer.link.name, peer.link.stats().carrier, reason)

    # A session ends

    def finish(self, peer: Peer) -> None:
        """The other station is gone: what it has written is taken in, however long that takes."""
        listening = peer.listening
        if listening is not None:
            listening.finish()

    def end(self, peer: Peer) -> None:
        """Take in what the other station has written by now, and read its ring no more."""
        peer.reads_ring = peer.owes_answer = False
        listening = peer.listening
        if listening is not None:
            listening.drain(DRAIN_LIMIT)
            peer.listening = None

    def _expel(self, station: int) -> None:
        """A station was overtaken: end its session, and serve the others again as soon as it has left."""
        peer = self._peer_of(station)
        if peer is not None:
            # As if it had not answered: it gets no other gateways before its next session.
            peer.owes_answer, peer.reads_ring, peer.ring_reason = True, False, OVERTAKEN
            self._leave(peer)
        if self._broadcast is not None:
            self._broadcast.released(station)
        self._missed[station] = self._missed.get(station, Counter()) + self._leaving.pop(station)
        log.error(
            "station %016x stood still for longer than its lease of the broadcast; it is linked anew, and "
            "did not get: %s",
            station,
            _by_channel(self._missed[station]),
        )
        if peer is not None:
            peer.link.begin_anew()

    def has_missed(self, peer: Peer, told: m.Missed) -> None:
        """Another station says that this one was overtaken."""
        news = Counter(told.events) - peer.missed
        peer.missed = Counter(told.events)
        if news:
            log.error(
                "this station stood still, and the broadcast of station %s has gone on without it; lost: %s",
                peer.link.name,
                _by_channel(news),
            )

    def forget(self, peer: Peer, *, is_dead: bool) -> None:
        """A station is gone; while it lives it may come back, and is to hear what it missed."""
        if self._broadcast is not None:
            self._broadcast.forget(peer.link.station)
        if is_dead:
            self._missed.pop(peer.link.station, None)

    def close(self, timeout: float) -> None:
        """Say in the ring that nothing more comes; before the links end, so that readers have it all.

        For so many seconds at most what waits is written first.
        """
        with self._lock:
            self._closed = True
            broadcast = self._broadcast
        if broadcast is not None:
            broadcast.close(timeout)

    def abandon(self) -> None:
        """In the child of a fork."""
        if self._broadcast is not None:
            self._broadcast.abandon()

    def _opened(self) -> Broadcast | None:
        """The broadcast, made when it is first needed; None, with a reason, when that cannot be."""
        with self._lock:
            if self._broadcast is None and self._folder is not None and not self._closed:
                try:
                    ring = self._folder.create(self._station, LANE, self._ports, slots=SLOTS, lease=LEASE)
                except RingError as error:
                    self._reason = str(error)
                    log.warning("this station broadcasts nothing: %s", error)
                    return None
                self._broadcast = Broadcast(ring, self._ports, self._writer, self._stream_of, self._overtaken)
            return self._broadcast

    def _overtaken(self, station: int, missed: Counter[str]) -> None:
        self._leaving[station] = missed
        self._ports.tasks.spawn("overtaken station", lambda: self._expel(station))

    def _failed(self, peer: Peer, listening: Listening, reason: str) -> None:
        """Events may be lost: begin a new session, without the ring."""
        peer.shuns_rings = True
        if peer.listening is listening:
            peer.listening = None
            log.error("station %s is linked anew, without its broadcast: %s", peer.link.name, reason)
            peer.link.begin_anew()


def _by_channel(events: Counter[str]) -> str:
    return ", ".join(f"{n} events of {channel}" for channel, n in sorted(events.items())) or "no events"
