"""Dispatch orders: of the events that wait for consumers, which comes next.

    strict     priority, then arrival: the default
    ranked     priority, then sub-priority, then arrival: TAO's order within a band
    aged       priority times waiting, so that nothing starves
    deadline   the earliest deadline first

    station.channel("air.tracks", Track, qos=hg.QoS(dispatch="deadline", latency=0.05))
    tracks.subscribe(on_track, dispatch="aged")

Events wait in *lines*. Those of one line stay in the order of their arrival, so an order has to choose only
among the heads of the lines, however many events wait. An order of one's own is any object with these two
attributes, given as `dispatch=` in place of a name:

    class NewestFirst:
        by = ("supplier",)                        # what makes a line: any of `FACTS`

        def first(self, heads, now_ns):           # the index of the head that comes next
            return len(heads) - 1

`first` is asked about the lines of one consumer, and about the heads of all consumers that have something to
deliver, so more than once for each event. An order that has to remember what went has a third attribute: a
method `taken(header)`. No lock is held while either is called. What they raise, or an index that does not
exist, is reported, and the head that arrived first goes on.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from heliograph.model.event import LATENCY, SUB_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from heliograph.model.event import Event, Header

log = logging.getLogger(__name__)

OrderName: TypeAlias = Literal["strict", "ranked", "aged", "deadline"]
FACTS: Final = ("priority", "sub_priority", "latency_ns", "supplier", "type", "key")
"""What lines can be made by."""
MAX_SUB_PRIORITY: Final = 255
NEVER: Final = 1 << 63
"""The deadline, in ns, of what has none."""
SLACK: Final = 64
"""Entries that do not count any more, beside as many as there are lines, before they are cleared away."""


class Waiting(NamedTuple):
    """An event that waits for one consumer. The first three are what the consumer is given."""

    event: Event
    header: Header
    expires_ns: int
    """The monotonic instant when its lifespan ends; 0 when it has none."""
    since_ns: int
    """The monotonic instant when it came into this consumer's queue."""
    priority: int
    """The consumer's, if it has one, else the event's own. So it is with the next two."""
    sub_priority: int
    latency_ns: int | None
    """How long it may wait; without one from the consumer or the push, the channel's."""
    arrival: int
    """Its number among all that wait in this process: the lower came first."""

    @property
    def due_ns(self) -> int:
        """The monotonic instant by which it should be delivered; `NEVER` when nothing was said."""
        return NEVER if self.latency_ns is None else self.since_ns + self.latency_ns

    def as_old_as(self, other: Waiting) -> Waiting:
        """The same with the age of another."""
        return self._replace(since_ns=other.since_ns, arrival=other.arrival)

    @property
    def supplier(self) -> str:
        return self.header.supplier

    @property
    def type(self) -> str:
        return self.header.type

    @property
    def key(self) -> tuple[Any, ...]:
        return self.header.key


class Order(Protocol):
    """See the module."""

    @property
    def by(self) -> tuple[str, ...]:
        """Which of `FACTS` make a line."""
        ...

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
        """The index of the head that comes next; heads are in the order of their arrival."""
        ...


class Ranked:
    """Priority, then sub-priority, then arrival."""

    by = ("priority", "sub_priority")

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:  # noqa: ARG002 - time changes nothing
        return _best(heads, lambda head: (head.priority, head.sub_priority))

    @staticmethod
    def rank(head: Waiting) -> tuple[int, int]:
        """The least comes next."""
        return -head.priority, -head.sub_priority


class Aged:
    """Priority times waiting; among equals, as all are that have just come, priority, then arrival."""

    by = ("priority",)

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
        return _best(heads, lambda head: (head.priority * (now_ns - head.since_ns), head.priority))


class EarliestDeadline:
    """The earliest deadline; among equals, and among those that have none, priority, then arrival."""

    by = ("latency_ns", "priority")

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:  # noqa: ARG002 - deadlines stand still
        return _best(heads, lambda head: (-head.due_ns, head.priority))

    @staticmethod
    def rank(head: Waiting) -> tuple[int, int]:
        """The least comes next."""
        return head.due_ns, -head.priority


def _best(heads: Sequence[Waiting], key: Callable[[Waiting], Any]) -> int:
    """The index of the greatest; of equals the first."""
    return max(range(len(heads)), key=lambda place: key(heads[place]))


_BY_NAME: Final[dict[str, Order | None]] = {
    "strict": None,  # the queues themselves go by it
    "ranked": Ranked(),
    "aged": Aged(),
    "deadline": EarliestDeadline(),
}


def order_named(order: OrderName | Order) -> Order | None:
    """What stands behind a name or is given itself; None for `strict`."""
    return _BY_NAME[order] if isinstance(order, str) else order


def uses(order: OrderName | Order, said: str) -> bool:
    """Whether an order can go by `sub_priority` or `latency`; one of the user's own by both."""
    return not isinstance(order, str) or order == {"sub_priority": "ranked", "latency": "deadline"}[said]


def why_not(order: Any) -> str | None:
    """What an order may be, when this is none."""
    if isinstance(order, str):
        allowed = f"one of {', '.join(get_args(OrderName))}, or an object with `by` and `first`"
        return None if order in _BY_NAME else allowed
    by = getattr(order, "by", None)
    if not callable(getattr(order, "first", None)) or isinstance(order, type):
        return "an object that has a method first(heads, now_ns), not a class"
    if not isinstance(by, tuple) or not by or not all(fact in FACTS for fact in by):
        return f"an object whose `by` is a tuple of any of {', '.join(FACTS)}"
    return None


class Heads:
    """The heads of one consumer's lines, in a heap, for an order whose choice does not change with time.

    Asking all heads for each event costs as much as there are lines, and with `deadline` each latency that
    pushes have said makes one; this costs the logarithm of that. A line has one entry that counts, made when
    it began and looked at when it is the least of all. Its first event may have gone by then: the entry is
    made anew for the one that stands there now, which is never less. Only what comes back to the front of its
    line is less, and is said. All of it runs under the lock of the consumer's queue.

    Args:
        rank: of an event; the least comes next, and of equals the one that arrived first.
    """

    def __init__(self, rank: Callable[[Waiting], Any]) -> None:
        self._rank = rank
        self._heap: list[tuple[Any, int, int, Hashable]] = []
        self._known: dict[Hashable, tuple[Any, int, int, Hashable]] = {}
        self._number = count().__next__

    def __contains__(self, line: Hashable) -> bool:
        return line in self._known

    def __len__(self) -> int:
        """Entries that are held, whether they count or not."""
        return len(self._heap)

    def put(self, line: Hashable, head: Waiting) -> None:
        """A line has begun, or has a first event that comes before the one it had."""
        heappush(self._heap, self._entry(line, head))
        if len(self._heap) > 2 * len(self._known) + SLACK:
            self._heap = list(self._known.values())
            heapify(self._heap)

    def end(self, lines: Iterable[Hashable]) -> None:
        """Nothing waits in these lines any more."""
        for line in lines:
            self._known.pop(line, None)

    def first(self, lines: Mapping[Any, Any], head_of: Callable[[Any], Waiting]) -> Waiting | None:
        """What comes next of lines, each of which may be empty and, if it is not, has a first event."""
        heap, known = self._heap, self._known
        while heap:
            entry = heap[0]
            line = entry[3]
            if known.get(line) is not entry:
                heappop(heap)
            elif not (waiting := lines.get(line)):
                heappop(heap)
                del known[line]
            elif (head := head_of(waiting)).arrival == entry[1]:
                return head
            else:
                heapreplace(heap, self._entry(line, head))
        return None

    def _entry(self, line: Hashable, head: Waiting) -> tuple[Any, int, int, Hashable]:
        # The number keeps two entries from being compared by their lines, which have no order.
        entry = self._known[line] = self._rank(head), head.arrival, self._number(), line
        return entry


_next_arrival: Final = count(1).__next__


class Ranking:
    """How the events of one consumer wait: its order, and what it says in place of the events themselves.

    Args:
        order: chooses among the heads of the lines.
        now: the monotonic clock.
        priority, sub_priority, latency_ns: the consumer's own, if any.
        default_latency_ns: the channel's.
    """

    def __init__(
        self,
        order: Order,
        now: Callable[[], int],
        *,
        priority: int | None = None,
        sub_priority: int | None = None,
        latency_ns: int | None = None,
        default_latency_ns: int | None = None,
    ) -> None:
        self.order = order
        self._taken: Callable[[Header], object] | None = getattr(order, "taken", None)
        self._now = now
        self._priority = priority
        self._sub_priority = sub_priority
        self._latency_ns = latency_ns
        self._default_latency_ns = default_latency_ns
        # Of what was taken under the order before this one, and comes back.
        self._since_ns = now()
        self._before_all = _next_arrival()
        self.line: Callable[[Waiting], Hashable] = attrgetter(*order.by)
        """The line of an event."""
        self.heads: Heads | None = None
        """Where the order is one of our own, and goes by what stays as it is."""
        if type(order) is EarliestDeadline or type(order) is Ranked:
            self.heads = Heads(order.rank)

    def place(self, priority: int, sub_priority: int) -> bool:
        """What the consumer says from the next event on; whether that is new."""
        before = self._priority, self._sub_priority
        self._priority, self._sub_priority = priority, sub_priority
        return before != (priority, sub_priority)

    def waiting(self, event: Event, header: Header, expires_ns: int) -> Waiting:
        """An event that comes in now."""
        sub_priority, latency_ns = self._sub_priority, self._latency_ns
        if sub_priority is None:
            sub_priority = _said(header, SUB_PRIORITY, MAX_SUB_PRIORITY) or 0
        if latency_ns is None:
            latency_ns = latency_of(header)
            latency_ns = self._default_latency_ns if latency_ns is None else latency_ns
        priority = self._priority or header.priority
        return Waiting(
            event, header, expires_ns, self._now(), priority, sub_priority, latency_ns, _next_arrival()
        )

    def returned(self, held: Waiting, taken: Waiting | None) -> Waiting:
        """One that comes back, as old as it was; of several, the last comes back first.

        Unless it is what was taken last, it was taken under another order: before all that wait in this one.
        """
        if taken is not None and taken.header is held.header:
            return held.as_old_as(taken)
        arrival = self._before_all
        self._before_all -= 1
        return held._replace(since_ns=self._since_ns, arrival=arrival)

    def began(self, line: Hashable, head: Waiting, *, anew: bool = False) -> None:
        """Something waits in a line that may have been empty, or begins anew with what came back."""
        if self.heads is not None and (anew or line not in self.heads):
            self.heads.put(line, head)

    def ended(self, *lines: Hashable) -> None:
        """Nothing waits in these lines any more."""
        if self.heads is not None:
            self.heads.end(lines)

    def first(self, heads: Sequence[Waiting]) -> int:
        return choose(self.order, heads, self._now())

    def told(self, header: Header) -> None:
        """An event went to its consumer."""
        if self._taken is not None:
            try:
                self._taken(header)
            except Exception:
                log.exception("%r could not be told what went", self.order)


def as_ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def latency_of(header: Header) -> int | None:
    """Within how many ns its supplier wants an event delivered; None when the push did not say."""
    return _said(header, LATENCY, NEVER)


def _said(header: Header, name: str, highest: int) -> int | None:
    """The number in a free header; it may have come from anywhere, so it may be nonsense: then None."""
    text = None if header.headers is None else header.headers.get(name)
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > len(str(highest)):
        return None
    return min(int(text), highest)


def choose(order: Order, heads: Sequence[Waiting], now_ns: int) -> int:
    """The index that an order chooses; the first when it fails."""
    if len(heads) == 1:
        return 0
    try:
        place = order.first(heads, now_ns)
        if type(place) is int and 0 <= place < len(heads):
            return place
        log.error("%r chose index %r of %d; the oldest goes on", order, place, len(heads))
    except Exception:
        log.exception("%r could not choose among %d events; the oldest goes on", order, len(heads))
    return 0
