"""The gateway of one stream: it stands for all stations that want the same of a channel.

A stream has a ring for each lane (`heliograph.links.streams.sent_ring`). A station hears it from one event on
until another one. What it has of it, it acknowledges; what it lacks, it asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations at run time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.selection import Selection
from heliograph.links.contract import LANES, StreamKey
from heliograph.links.session.audience import Audience, Hearing
from heliograph.links.session.gateway import PeerGateway
from heliograph.links.session.pack import MOST_AT_ONCE
from heliograph.links.streams.sent_ring import SentRing
from heliograph.runtime.endpoints import REPAIR_BYTES, REPAIR_EVENTS

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel
    from heliograph.channel.ledger import QueueCounts
    from heliograph.links.contract import StreamPutter, StreamTransport
    from heliograph.links.mesh.peer import Peer
    from heliograph.links.streams.publisher import StreamPublisher
    from heliograph.model.event import Event

OVERRUN: Final = "overrun"
"""The reason under which both ends count what a station did not get and nobody has any more."""


class StreamLimits(msgspec.Struct, frozen=True):
    """What a lane of a stream keeps for readers that did not get it."""

    events: int = REPAIR_EVENTS
    bytes: int = REPAIR_BYTES


class StreamStats(msgspec.Struct, frozen=True):
    """One stream at one instant: of this station, or of a peer whose events it takes."""

    channel: str
    derivation: str
    """A digest of what was asked for of the channel."""
    peer: str
    """The station that puts the events; empty: this one."""
    readers: int
    """Stations that take it; of a stream of a peer, this one."""
    events: int
    puts: int
    """Without heartbeats."""
    bytes: int
    """Of these puts."""
    repaired: int
    """Events that did not come by themselves and were asked for."""
    lost: Mapping[str, int]
    """Events that could not be repaired, by reason."""

    def added_to(self, later: StreamStats) -> StreamStats:
        """Both together, of one stream that was taken twice."""
        return msgspec.structs.replace(
            later,
            events=self.events + later.events,
            puts=self.puts + later.puts,
            bytes=self.bytes + later.bytes,
            repaired=self.repaired + later.repaired,
            lost=dict(Counter(self.lost) + Counter(later.lost)),
        )


class StreamHearer:
    """One station in the audience of a stream, from one event on until another one."""

    __slots__ = ("acked", "hearing", "is_behind", "moved_ns", "peer", "since", "until")

    def __init__(self, peer: Peer, since: tuple[int, ...], now: int) -> None:
        self.peer = peer
        self.since = since
        self.until: tuple[int, ...] | None = None
        """Where it ends, if it does."""
        self.acked = list(since)
        self.is_behind = False
        """Whether it stood still for so long that nobody waits for it."""
        self.moved_ns = now
        """When it last acknowledged something new."""
        self.hearing: Hearing[StreamGateway, StreamHearer] | None = None

    def ack(self, received: tuple[int, ...], now: int) -> None:
        """It has all up to these numbers."""
        for lane, number in enumerate(received):
            most = number if self.until is None else min(number, self.until[lane])
            if most > self.acked[lane]:
                self.acked[lane] = most
                self.moved_ns = now

    @property
    def is_done(self) -> bool:
        """Whether it wants nothing more, and has all up to there."""
        return self.until is not None and all(map(int.__ge__, self.acked, self.until))


class StreamGateway(PeerGateway):
    """See the module."""

    def __init__(
        self,
        channel: Channel[Any],
        conditions: Mapping[type[Event], Any],
        sender: StreamPublisher,
        *,
        derivation: str,
        number: int,
        station: int,
        limits: StreamLimits,
    ) -> None:
        super().__init__(channel, f"stream {derivation[:8]}", Selection(dict(conditions)), sender)
        assert self.bypassed is not None, "what is kept or coalesced goes by links"
        self.derivation = derivation
        self.number = number
        self.is_reliable = channel.qos.reliability == "reliable"
        self.rings: dict[int, SentRing] = {}
        """By lane, made when it is first used."""
        self.putters: dict[int, StreamPutter] = {}
        """By lane, for those that hear the stream now."""
        self._retired: list[StreamPutter] = []
        """For those that heard it before: what was put by them may still be on its way."""
        self._station = station
        self.told: dict[type[Event], int] = {}
        """The number of a class, which all who hear the stream were told."""
        self.hearers: list[StreamHearer] = []
        """Those that hear it, and those that have left and have not acknowledged all that was theirs."""
        self.paused_by: set[Peer] = set()
        self.is_full = False
        """Whether it waits for a reader before it puts more."""
        self.full_since = 0
        self.beat_after = 0
        self.last_put_ns = 0
        self.audience: Audience[StreamGateway, StreamHearer] = Audience()
        self._limits = limits
        self.at_once = max(1, min(MOST_AT_ONCE, limits.events // 4))
        """Events in one put at most."""
        self._gone: dict[int, list[tuple[int, int]]] = {}
        self.overrun = 0
        """Events that some station did not get."""
        self.puts = 0
        self.put_bytes = 0
        self.repaired = 0

    @property
    def aired(self) -> int:
        """Events that were numbered: they are put, or will be asked for."""
        return sum([ring.last for ring in self.rings.values()])

    @property
    def lasts(self) -> tuple[int, ...]:
        """The number of the last event of each lane."""
        return tuple([self.rings[lane].last if lane in self.rings else 0 for lane in range(LANES)])

    def ring(self, lane: int) -> SentRing:
        ring = self.rings.get(lane)
        if ring is None:
            ring = self.rings[lane] = SentRing(self._limits.events, self._limits.bytes)
        return ring

    def putter(self, lane: int, transport: StreamTransport) -> StreamPutter:
        putter = self.putters.get(lane)
        if putter is None:
            key = StreamKey(self.channel.name, self.derivation, self._station, lane)
            stations = [hearer.peer.link.station for hearer in self.current]
            putter = self.putters[lane] = transport.putter(key, stations)
        return putter

    def readdress(self) -> None:
        """Others hear it from now on."""
        for putter in self._retired:
            putter.close()
        self._retired = [*self.putters.values()]
        self.putters = {}

    def close_putters(self) -> None:
        """Nothing more is put."""
        self.readdress()
        self.readdress()

    @property
    def current(self) -> list[StreamHearer]:
        """Those that hear it now."""
        return [hearer for hearer in self.hearers if hearer.until is None]

    def hearer_of(self, peer: Peer) -> StreamHearer | None:
        return next((hearer for hearer in self.current if hearer.peer is peer), None)

    def hearer_of_number(self, peer: Peer, lane: int, number: int) -> StreamHearer | None:
        """The one for which a peer takes an event: it may have left the stream and come back."""
        ring = self.rings.get(lane)
        for hearer in self.hearers:
            until = (0 if ring is None else ring.last) if hearer.until is None else hearer.until[lane]
            if hearer.peer is peer and hearer.since[lane] < number <= until:
                return hearer
        return None

    @property
    def is_confirmed(self) -> bool:
        """Whether all who hear it have all of it."""
        lasts = self.lasts
        for hearer in self.hearers:
            for lane, number in enumerate(lasts if hearer.until is None else hearer.until):
                if hearer.acked[lane] < number:
                    return False
        return True

    def tidy(self) -> None:
        """Let go of what nobody needs; sees whether it waits for a reader. Under the lock for sending."""
        self.hearers = [hearer for hearer in self.hearers if not hearer.is_done]
        is_full = False
        for lane, ring in self.rings.items():
            ring.confirm(min([hearer.acked[lane] for hearer in self.hearers], default=ring.last))
            if not ring.has_room:
                needed = self._needed(lane, ring)
                ring.evict(needed)
                is_full = is_full or (needed < ring.last and not ring.has_room)
        self.is_full = is_full

    def _needed(self, lane: int, ring: SentRing) -> int:
        """What is behind this number is kept, for somebody waits for it."""
        if not self.is_reliable:
            return ring.last
        return min([hearer.acked[lane] for hearer in self.hearers if not hearer.is_behind], default=ring.last)

    def lose(self, hearer: StreamHearer, lane: int, first: int, last: int) -> None:
        """A station did not get these, and they are gone: what others lost as well counts once."""
        hearing = hearer.hearing
        ranges = self._gone.setdefault(lane, [])
        new = last - first + 1 - sum(max(0, min(last, b) - max(first, a) + 1) for a, b in ranges)
        touching = [(a, b) for a, b in ranges if a <= last + 1 and b >= first - 1]
        for one in touching:
            ranges.remove(one)
        ranges.append((min([first, *(a for a, _ in touching)]), max([last, *(b for _, b in touching)])))
        self.overrun += new
        if hearing is not None:
            hearing.missed += last - first + 1
            hearing.owed.settle(hearing.account, last - first + 1)

    def counts(self) -> QueueCounts:
        counts = self.queue.counts()
        lost = min(self.overrun, counts.delivered)
        if lost:
            dropped = Counter(counts.dropped) + Counter({OVERRUN: lost})
            counts = msgspec.structs.replace(counts, delivered=counts.delivered - lost, dropped=dict(dropped))
        return self.audience.applied_to(counts)

    @property
    def is_final(self) -> bool:
        return self.audience.is_final

    def wait_confirmed(self, timeout: float) -> bool:
        return self.audience.wait_confirmed(self.channel.ports.clock, timeout)

    def stats(self) -> StreamStats:
        lost = {OVERRUN: self.overrun} if self.overrun else {}
        return StreamStats(
            self.channel.name,
            self.derivation,
            "",
            len(self.current),
            self.aired,
            self.puts,
            self.put_bytes,
            self.repaired,
            lost,
        )
