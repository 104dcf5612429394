"""A peer: what this station knows of one other, what it has told it, and how events pass between the two.

Each concern has an object of its own:

    advertised   what the other station has said of its channels, formats and streams
    told         what it was told of this station's channels
    ingress      the ways in for its events
    carriers     the ways out for this station's events, by channel
    rings        the rings of shared memory, of both stations
    streams      the streams between hosts, of both stations
    losses       events of it that were not handed on, by reason
    reports      what it has confirmed of this station's events, and what was taken in of its own
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import BadFrame, FormatError
from heliograph.links.interest.advertisement import as_of_now
from heliograph.links.session import messages as m
from heliograph.links.session.confirmation import Confirmations
from heliograph.links.session.wire_events import WireEventReader
from heliograph.model.event import info_of
from heliograph.model.formats import FormatRegistry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heliograph.channel.channel import Channel
    from heliograph.links.broadcast.gateway import ReaderSession
    from heliograph.links.broadcast.reader import BroadcastReader
    from heliograph.links.mesh.carriers import Carrier
    from heliograph.links.mesh.ingress import Ingress
    from heliograph.links.mesh.worker_redelivery import AckSender, WorkerRedelivery
    from heliograph.links.session.link import Link
    from heliograph.links.streams.gateway import StreamStats
    from heliograph.model.formats import Format
    from heliograph.runtime.ports import Tasks

MAX_CHANNELS: Final = 65_536
"""Channels, and streams of events, that one station may tell of."""


class Advertised:
    """What a peer has said of its channels, and the formats and streams of its events."""

    def __init__(self, link: Link, unreadable: Counter[str]) -> None:
        self._link = link
        self._unreadable = unreadable
        self.channels: dict[str, m.ChannelState] = {}
        self.streams: dict[int, WireEventReader] = {}
        self._formats = FormatRegistry()

    def format_of(self, format_id: bytes) -> Format | None:
        return self._formats[format_id] if format_id in self._formats else None  # noqa: SIM401 - no mapping

    def learn(self, format_id: bytes, description: bytes) -> Format:
        try:
            return self._formats.learn(format_id, description)
        except FormatError as error:
            raise BadFrame(self._link.name, f"describes a format that cannot be: {error}") from None

    def announced(self, said: m.Announce) -> None:
        """Every lane announces its streams by itself; the number of a stream is the same on all of them."""
        self.check_number(self.streams)
        fmt = self.learn(said.format_id, said.description)
        deadline_of = self._link.clock.deadline
        self.streams.setdefault(
            said.stream, WireEventReader(said.channel, fmt, self._unreadable, deadline_of)
        )

    def check_number(self, told: Mapping[Any, object]) -> None:
        if len(told) > MAX_CHANNELS:
            raise BadFrame(self._link.name, f"tells of more than {MAX_CHANNELS} channels or streams")

    def keeps(self, name: str) -> bool:
        """Whether the peer may have kept events of a channel in memory."""
        state = self.channels.get(name)
        return state is not None and state.durability in ("transient", "transient-local")


class Told:
    """What a peer was told of this station's channels in this session, and users of both."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._channels: dict[str, m.ChannelState] = {}
        self._formats: set[bytes] = set()
        self.direct: set[str] = set()
        """Channels of which users were told that a worker gets others' events without this station."""
        self.apart: set[str] = set()
        """What does not pass between the two stations, as far as users were told."""

    def tell(self, channel: Channel[Any], state: m.ChannelState) -> None:
        """Tell the peer of a channel, unless it knows. Under the lock of the mesh."""
        if self._channels.get(channel.name) == state:
            return
        self._channels[channel.name] = state
        formats = [info_of(cls).format for cls in channel.types]
        new = [fmt for fmt in formats if fmt.id not in self._formats]
        self._formats.update(fmt.id for fmt in new)
        notes = [m.FormatNote(fmt.id, fmt.description) for fmt in new]
        self._link.post(*notes, as_of_now(state, channel))

    def forget(self, name: str) -> None:
        """The channel is closed here."""
        self._channels.pop(name, None)

    def begin(self) -> None:
        """In a new session the peer knows nothing."""
        self._channels.clear()
        self._formats.clear()


class PeerIngress:
    """The ways in for a peer's events, by channel."""

    def __init__(self) -> None:
        self.by_link: dict[str, Ingress] = {}
        self.by_ring: dict[str, Ingress] = {}
        self.by_stream: dict[str, Ingress] = {}
        self.leaving: Sequence[Ingress] = ()
        """Those of a session that is over through which events still wait for room in queues."""

    def end(self) -> list[Ingress]:
        """The ways in of the session that ends; the next one has others."""
        ended = [*self.by_link.values(), *self.by_ring.values(), *self.by_stream.values()]
        self.by_link, self.by_ring, self.by_stream = {}, {}, {}
        return ended


class PeerRings:
    """The rings of shared memory between two stations: the peer's that this one reads, and the other way."""

    def __init__(self) -> None:
        self.listening: dict[int, BroadcastReader] = {}
        """What reads the peer's rings here, by lane."""
        self.is_shunned = False
        """Whether reading one of them has failed."""
        self.offered: set[int] = set()
        """The lanes of this station that the peer was offered, and has not answered for yet."""
        self.reads: dict[int, ReaderSession] = {}
        """Those that the peer reads."""
        self.reasons: dict[int, str] = {}
        """Why it does not read others."""
        self.is_expelled = False
        """Whether the peer was overtaken in this session: it gets no gateway before the next one."""
        self.sent_before = 0
        """Events that were broadcast to it in sessions that are over."""

    def look_again(self) -> None:
        """A channel of this station has come or gone: what the peer broadcasts goes elsewhere."""
        for listening in tuple(self.listening.values()):
            listening.forget()


class PeerLosses:
    """Events of a peer that reached nobody here, by reason and channel."""

    def __init__(self) -> None:
        self.missed: Counter[str] = Counter()
        """Events of the peer's broadcast that it says did not come here."""
        self.left_out: Counter[str] = Counter()
        """Events that came too late to be handed on."""
        self.fell_behind: Counter[str] = Counter()
        """Those of its best-effort broadcast that were overtaken here."""
        self.unrepaired: Counter[str] = Counter()
        """Those of its streams that did not come and could not be had any more."""
        self.unwanted = 0
        """Events that came for channels that are not open here any more."""
        self._tallies: list[Counter[str]] = []

    def tally(self) -> Counter[str]:
        """Where one reader of the peer's events counts those that do not fit this station's class."""
        self._tallies.append(Counter())
        return self._tallies[-1]

    @property
    def unreadable(self) -> int:
        """Events that do not fit this station's class though their format does."""
        return sum(tally.total() for tally in self._tallies)


class PeerStreams:
    """The streams between two stations."""

    def __init__(self) -> None:
        self.is_read = False
        """Whether streams of the peer are read."""
        self.sent_before = 0
        """Events of this station's streams that the peer hears no more."""
        self.ended: dict[tuple[str, str], StreamStats] = {}
        """What came of the peer's streams that this station takes no more, by channel and derivation."""

    def add_ended(self, stats: StreamStats) -> None:
        key = stats.channel, stats.derivation
        before = self.ended.get(key)
        if before is not None or len(self.ended) < MAX_CHANNELS:
            self.ended[key] = stats if before is None else before.added_to(stats)


class Peer:
    """See the module."""

    def __init__(self, link: Link, tasks: Tasks) -> None:
        self.link = link
        self.readers = 0
        """Tasks that read its link, two while one connection takes another's place, or its broadcast."""
        self.is_gone = False
        """Whether its process has ended, or it was given up. What it had sent may still be read."""
        self.losses = PeerLosses()
        self.advertised = Advertised(link, self.losses.tally())
        self.told = Told(link)
        self.ingress = PeerIngress()
        self.carriers: dict[str, Carrier] = {}
        self.rings = PeerRings()
        self.streams = PeerStreams()
        self.reports = Confirmations(tasks)
        self.worker: WorkerRedelivery | None = None
        """What supervises it, if it is a band worker of this station."""
        self.settled: AckSender | None = None
        """Acknowledges its events to it, if it is the station that supervises this one."""

    @property
    def is_handing_on(self) -> bool:
        """Whether what it had sent is still on its way to receivers here."""
        return self.readers > 0 or any(arrived.aside for arrived in self.ingress.leaving)

    def begin(self) -> None:
        """A session begins: what was said in the last one does not count."""
        self.told.begin()
        self.advertised.streams.clear()
