"""The gateway of a channel into the ring of its station, and what each reader of that ring has confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
from heliograph.channel.selection import Selection
from heliograph.links.broadcast.carrier_choice import BEST_EFFORT, HIGH, NORMAL
from heliograph.links.broadcast.queue import OVERTAKEN, BroadcastQueue
from heliograph.links.session.audience import Audience, Hearing
from heliograph.links.session.gateway import PeerGateway

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.ledger import QueueCounts
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.broadcast.loss_count import Wishes
    from heliograph.links.broadcast.publisher import Broadcast
    from heliograph.links.session.confirmation import Owed
    from heliograph.model.event import Event, EventId

READERS: Final = {
    NORMAL: "all who read the ring",
    HIGH: "all who read the ring of high priority",
    BEST_EFFORT: "all who read the best-effort ring",
}

NOT_SAID: Final = 1 << 63


class ReaderSession:
    """One session of a station as reader of a lane; its next one is another, in a row of its own."""

    __slots__ = ("hearings", "is_ended", "is_over", "row", "sent", "station", "takes", "wishes")

    def __init__(self, station: int, row: int) -> None:
        self.station = station
        self.row = row
        self.hearings: list[Hearing[BroadcastGateway, ReaderSession]] = []
        """What it was sent of the channels that it takes or took last, and has confirmed."""
        self.takes: set[str] = set()
        """The channels of which it gets what is written behind all that has been made."""
        self.wishes: dict[str, Wishes] = {}
        """What it wants, or wanted last, of each channel that it takes or has left."""
        self.sent = 0
        """Events of channels that it has left."""
        self.is_over = False
        """Whether its session has ended; it may still read what was written till then."""
        self.is_ended = False
        """Whether it was overtaken."""


Hearings: TypeAlias = "Audience[BroadcastGateway, ReaderSession]"


class BroadcastGateway(PeerGateway):
    """The gateway of a channel to all stations that read the ring."""

    queue_kind = BroadcastQueue

    def __init__(
        self, channel: Channel[Any], conditions: Mapping[type[Event], Any], sender: Broadcast
    ) -> None:
        super().__init__(channel, READERS[sender.lane], Selection(dict(conditions)), sender)
        assert isinstance(self.queue, BroadcastQueue)
        self.broadcast = sender
        self.queue.line = sender
        self.queue.gateway = self
        self.queue.default_priority = channel.qos.priority
        self._audience: Hearings = Audience()
        self.wants: dict[ReaderSession, Mapping[type[Event], Any]] = {}
        """What each station wants."""
        self.paused_by: set[ReaderSession] = set()
        self.heads: dict[type[Event], tuple[bytes, int]] = {}
        """How a lone event of a class begins, and its stream; said in the ring before."""
        self.sent_before: dict[ReaderSession, int] = {}
        """How many were sent before each station came."""
        self.made = 0
        """Events of records that were made, but for those that pushing threads wrote from rows."""
        self.begins_at = NOT_SAID
        """Records of the ring below this are those of an earlier gateway of the channel."""
        self._overtaken: dict[int, int] = {}
        """Of records, the events that a station did not get, a bit for each: those are counted."""
        self._lost: set[EventId] = set()
        """Events that waited when a station that wanted them was given up: those are counted, too."""

    @property
    def sent(self) -> int:
        """Events that were written."""
        assert isinstance(self.queue, BroadcastQueue)
        return self.queue.counts().delivered + self.queue.missed

    @property
    def aired(self) -> int:
        """Events that are in the ring, or will be before all that is made from now on; while it is still."""
        assert isinstance(self.queue, BroadcastQueue)
        return self.made + self.queue.written

    def count_made(self, events: int = 1) -> None:
        """So many events were written without having been queued, and not from rows."""
        assert isinstance(self.queue, BroadcastQueue)
        self.made += events
        self.queue.direct.done += events

    def waiting(self) -> list[Item]:
        """What waits to be written."""
        assert isinstance(self.queue, BroadcastQueue)
        return self.queue.peek()

    def count_overtaken(self, record: int, events: int, reason: str = OVERTAKEN) -> int:
        """A station did not get these events of a record, a bit for each; those that others did not get
        either count once. How many that are."""
        assert isinstance(self.queue, BroadcastQueue)
        if record < self.begins_at:
            return 0
        before = self._overtaken.get(record, 0)
        self._overtaken[record] = before | events
        new = (events & ~before).bit_count()
        self.queue.count_overtaken(new, reason)
        return new

    def hear(self, hearer: ReaderSession, owed: Owed, ask: Callable[[], None]) -> None:
        """A station reads the channel's events from now on, and says what it has taken in."""
        hearing = Hearing(self, hearer, owed, ask)
        hearer.hearings = [one for one in hearer.hearings if one.channel.name != self.channel.name]
        hearer.hearings.append(hearing)
        self._audience.add(hearing, self.wants.__contains__)

    def hearings_of(self, hearer: ReaderSession) -> list[Hearing[BroadcastGateway, ReaderSession]]:
        return self._audience.of(hearer)

    def said(self, hearer: ReaderSession, aired: int, *, takes: bool) -> None:
        """It stands in the ring, behind so many events, that a station takes the channel, or no more."""
        for hearing in self.hearings_of(hearer)[-1:]:
            (hearing.begin if takes else hearing.end)(aired)

    def counts(self) -> QueueCounts:
        """As the queue counts what was written; it is delivered when all who take it have said so."""
        with self.broadcast.counting:
            return self._audience.applied_to(self.queue.counts())

    @property
    def is_final(self) -> bool:
        return self._audience.is_final

    def wait_confirmed(self, timeout: float) -> bool:
        return self._audience.wait_confirmed(self.channel.ports.clock, timeout)

    def lose(self, hearer: ReaderSession, items: list[Item], reason: str) -> None:
        """These wait to be written, and will not reach a station that wanted them.

        Those that another station does not get either count once.
        """
        assert isinstance(self.queue, BroadcastQueue)
        lost = {header.id for _, header, _ in items}
        new = len(lost - self._lost)
        for hearing in self.hearings_of(hearer)[-1:]:
            hearing.missed += new
        if not self.queue.closed:  # else they wait for nobody, and are dropped already
            self._lost = lost | {header.id for _, header, _ in self.waiting()} & self._lost
            self.queue.count_overtaken(new, reason)

    def count_outrun(self) -> None:
        """Not everybody who takes the channel has got an event that was written."""
        assert isinstance(self.queue, BroadcastQueue)
        self.queue.count_overtaken(1)

    def forget_overtaken(self, below: int) -> None:
        """Everybody has read the records below this one."""
        self._overtaken = {record: events for record, events in self._overtaken.items() if record >= below}

    def held_up_by(self) -> set[int]:
        """The stations that its events wait for now."""
        return {hearer.station for hearer in tuple(self.paused_by)} or self.broadcast.held_up_by()

    def all_wants(self) -> dict[type[Event], Any]:
        """What any station wants, by event type."""
        found: dict[type[Event], list[ReceiverCondition]] = {}
        for conditions in self.wants.values():
            for cls, condition in conditions.items():
                each = condition.alternatives if isinstance(condition, AnyCondition) else (condition,)
                found.setdefault(cls, []).extend(each)
        return {cls: _either(conditions) for cls, conditions in found.items()}


def _either(conditions: list[ReceiverCondition]) -> ReceiverCondition | AnyCondition:
    if any(condition.is_open for condition in conditions):
        return ReceiverCondition()
    return conditions[0] if len(conditions) == 1 else AnyCondition(tuple(conditions))
