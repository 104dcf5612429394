"""The window of a coordinator: events handed out and not yet acknowledged, with leases and attempts. Pure.

    window = Window(lease_ns=30 * SECOND, max_deliveries=5)
    window.join("worker-1", 100)
    window.offer(120, event, key=("north",))
    window.take("worker-1", now)        # [InFlightEvent(120, event, attempt=1, again=False)]
    window.nak(120, "worker-1", now, delay_ns=SECOND)
    window.tick(now + SECOND)           # it may be taken again

An event is ready, in the hands of a member, waiting for its delay to pass, or held back behind an earlier one
of its key. What is not acknowledged comes back: when the member says so (`nak`), when its lease is over, or
when the member leaves. After `max_deliveries` it is dead: the window says so once, and keeps the event until
`ack` says that it has been buried.

Events with a key go to the member that scores highest for it, so a key stays with its member while nobody
joins or leaves; events without one go to whoever asks first. With `by_key`, one event of a key is out at a
time, so that a key's order holds however often one of them comes again.

A number says where an event is in its stream: one that is made of several, as a history of several partitions
is, tells them apart by the bits above the 64th (`numbered`), and each has a low watermark of its own. Each
can be paused: nothing of it is handed out then, it takes no room, and it holds back no key of the others.

It is a pure state machine: time comes in, and nothing is done here.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from heliograph.channel.ack_protocol import place_of, stream_of
from heliograph.channel.routing.groups import score

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

I = TypeVar("I")  # noqa: E741 - the kind of item

READY, HANDED, DELAYED, HELD, DEAD = range(5)

MAX_OUT: Final = 8_192
"""Events of a window that are not settled: waiting, handed out, or acknowledged above an earlier one."""


class InFlightEvent(NamedTuple, Generic[I]):
    """An event in the hands of a member."""

    number: int
    item: I
    attempt: int
    again: bool
    """Whether somebody may have had it before."""


class Dead(NamedTuple, Generic[I]):
    """An event that was handed out as often as may be."""

    number: int
    item: I
    attempts: int


class Settled(NamedTuple, Generic[I]):
    """An event that will not come again."""

    item: I
    attempts: int


class WindowStats(NamedTuple):
    """What became of the events of a window."""

    ready: int
    out: int
    """In the hands of members."""
    delayed: int
    held: int
    acked: int
    redelivered: int
    lapsed: int
    """Leases that were over before the event was acknowledged."""
    dead: int


class _Entry(Generic[I]):
    __slots__ = ("again", "attempts", "due", "item", "key", "member", "number", "rank", "state")

    def __init__(self, number: int, rank: int, item: I, key: Hashable, *, again: bool) -> None:
        self.number = number
        self.rank = rank
        self.item = item
        self.key = key
        self.again = again
        self.attempts = 0
        self.state = READY
        self.member: str | None = None
        self.due = 0


class _Seat:
    __slots__ = ("holds", "most", "ready")

    def __init__(self, most: int) -> None:
        self.most = most
        self.ready: list[tuple[int, int]] = []
        self.holds: set[int] = set()


class Window(Generic[I]):
    """See the module.

    Args:
        lease_ns: how long a member may keep an event before it goes to somebody else; None: as it likes.
        max_deliveries: how often an event is handed out; None: until it is acknowledged.
        by_key: hand out one event of a key at a time.
    """

    def __init__(
        self,
        *,
        lease_ns: int | None = None,
        max_deliveries: int | None = None,
        by_key: bool = False,
    ) -> None:
        self._lease_ns = lease_ns
        self._max_deliveries = max_deliveries
        self._by_key = by_key
        self._entries: dict[int, _Entry[I]] = {}
        self._seats: dict[str, _Seat] = {}
        # Heaps of (rank, number): what was offered first is first again when it comes back.
        self._shared: list[tuple[int, int]] = []
        self._timers: list[tuple[int, int, int]] = []
        """When a delay or a lease ends: (due, number, attempts); stale when the entry has moved on."""
        self._held: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        self._busy: dict[Hashable, int] = {}
        # By stream:
        self._acks: defaultdict[int, set[int]] = defaultdict(set)
        self._lows: defaultdict[int, list[int]] = defaultdict(list)
        """Heaps of what was offered; those that are settled are dropped when they come to the top."""
        self._next: defaultdict[int, int] = defaultdict(int)
        self._paused: dict[int, int] = {}
        """How many events of a stream that is paused are here."""
        self._ranks = 0
        self._acked = self._redelivered = self._lapsed = self._dead = 0

    # Members

    def join(self, member: str, most: int) -> None:
        """A member that holds up to `most` events at a time."""
        self._seats[member] = _Seat(most)
        self._deal_anew()

    def leave(self, member: str) -> list[Dead[I]]:
        """A member is gone; what it held goes to others."""
        seat = self._seats.pop(member, None)
        if seat is None:
            return []
        dead = [found for number in sorted(seat.holds) for found in self._come_back(self._entries[number])]
        self._deal_anew()
        return dead

    def members(self) -> tuple[str, ...]:
        return tuple(self._seats)

    # Events

    @property
    def full(self) -> bool:
        """Whether no more should be offered for now."""
        # With nothing unsettled in it, what all of them wait for is still to come.
        unsettled = len(self._entries) - sum(self._paused.values())
        return unsettled > 0 and unsettled + sum(map(len, self._acks.values())) >= MAX_OUT

    def held_by(self) -> InFlightEvent[I] | None:
        """The event that a full window waits for: it came again, or most of the others are acknowledged.

        None where so many events are in hands for the first time: their members know.
        """
        entries = [one for one in self._entries.values() if stream_of(one.number) not in self._paused]
        oldest = min(entries, key=lambda one: one.rank, default=None)
        if oldest is None or (oldest.attempts < 2 and len(entries) > MAX_OUT // 2):
            return None
        return InFlightEvent(oldest.number, oldest.item, oldest.attempts, oldest.attempts > 1)

    def pause(self, stream: int) -> None:
        """Hand out nothing more of a stream until it goes on; what is in members' hands stays there."""
        of_stream = [entry for entry in self._entries.values() if stream_of(entry.number) == stream]
        self._paused[stream] = len(of_stream)
        for entry in of_stream:
            if entry.state == HELD:
                entry.state = READY
        self._deal_anew()

    def go_on(self, stream: int) -> None:
        """Hand out what there is of a stream that was paused."""
        if self._paused.pop(stream, None) is not None:
            self._deal_anew()

    def give_up(self, stream: int) -> list[I]:
        """A stream is over: what of it is not settled, wherever it is."""
        gone = [entry for entry in self._entries.values() if stream_of(entry.number) == stream]
        for entry in gone:
            del self._entries[entry.number]
            self._put_down(entry)
        for entry in gone:
            if self._by_key and self._busy.get(entry.key) == entry.number:
                self._next_of_key(entry.key)
        self._acks.pop(stream, None)
        self._lows.pop(stream, None)
        self._paused.pop(stream, None)
        self._deal_anew()
        return [entry.item for entry in gone]

    def remember(self, stream: int, settled: Iterable[int]) -> None:
        """What of a stream was acknowledged in an earlier life, above something that was not."""
        self._acks[stream].update(settled)

    def offer(
        self, number: int, item: I, key: Hashable = (), *, again: bool = False, attempts: int = 0
    ) -> list[Dead[I]]:
        """A further event of the stream. Numbers name events and need not come in order.

        One that was handed out as often as may be, in an earlier life, is dead.
        """
        self._ranks += 1
        stream = stream_of(number)
        self._next[stream] = max(self._next[stream], place_of(number) + 1)
        if stream in self._paused:
            self._paused[stream] += 1
        entry = self._entries[number] = _Entry(number, self._ranks, item, key, again=again)
        heapq.heappush(self._lows[stream], number)
        entry.attempts = attempts
        if attempts and self._is_dead(entry):
            entry.state = DEAD
            return [Dead(number, item, attempts)]
        self._deal(entry)
        return []

    def take(self, member: str, now: int, most: int = 1) -> list[InFlightEvent[I]]:
        """The next events for a member; none when it holds as many as it may."""
        seat = self._seats[member]
        handed: list[InFlightEvent[I]] = []
        while len(handed) < most and len(seat.holds) < seat.most:
            queue = self._first_of(seat)
            if queue is None:
                break
            entry = self._entries[heapq.heappop(queue)[1]]
            if self._by_key and self._busy.setdefault(entry.key, entry.number) != entry.number:
                entry.state = HELD
                heapq.heappush(self._held[entry.key], (entry.rank, entry.number))
                continue
            handed.append(self._hand(entry, member, seat, now))
        return handed

    def ack(self, number: int) -> Settled[I] | None:
        """An event is settled, whoever says so; None when it was before."""
        entry = self._entries.pop(number, None)
        if entry is None:
            return None
        if entry.state == DEAD:
            self._dead += 1
        else:
            self._acked += 1
        stream = stream_of(number)
        self._acks[stream].add(place_of(number))
        if stream in self._paused:
            self._paused[stream] -= 1
        self._put_down(entry)
        if entry.state == READY:
            self._deal_anew()  # a late acknowledgement: nobody shall find it among those that are ready
        if self._by_key and self._busy.get(entry.key) == number:
            self._next_of_key(entry.key)
        return Settled(entry.item, entry.attempts)

    def settle_early(self, number: int) -> bool:
        """An event is settled that was not offered yet, and need not be; False when it was."""
        acks, place = self._acks[stream_of(number)], place_of(number)
        if number in self._entries or place in acks:
            return False
        acks.add(place)
        return True

    def nak(self, number: int, member: str, now: int, delay_ns: int = 0) -> list[Dead[I]]:
        """The member could not do with it: it comes again, after a delay. Ignored for what it lost."""
        entry = self._entries.get(number)
        if entry is None or entry.state != HANDED or entry.member != member:
            return []
        if delay_ns <= 0 or self._is_dead(entry):
            return self._come_back(entry)
        self._put_down(entry)
        entry.state = DELAYED
        self._set_timer(entry, now + delay_ns)
        return []

    def reject(self, number: int, member: str) -> list[Dead[I]]:
        """The member says that nobody can do with it: it is dead. Ignored for what it lost."""
        entry = self._entries.get(number)
        if entry is None or entry.state != HANDED or entry.member != member:
            return []
        self._put_down(entry)
        entry.state = DEAD
        return [Dead(entry.number, entry.item, entry.attempts)]

    def extend(self, number: int, member: str, due: int) -> bool:
        """The member keeps it until an instant, where there are leases; False when it has lost it."""
        entry = self._entries.get(number)
        if entry is None or entry.state != HANDED or entry.member != member:
            return False
        if self._lease_ns is not None:
            self._set_timer(entry, due)
        return True

    def come_again(self, number: int) -> list[Dead[I]]:
        """An acknowledgement of it was not kept: as if whoever holds it had refused it."""
        entry = self._entries.get(number)
        return [] if entry is None or entry.state != HANDED else self._come_back(entry)

    def reopen(self, number: int, item: I, key: Hashable) -> None:
        """It was settled and is not any more: its acknowledgement was taken back."""
        self._acks[stream_of(number)].discard(place_of(number))
        self.offer(number, item, key, again=True)

    def give_back(self, number: int) -> None:
        """A member was not given what was taken for it: as if it had never been out."""
        entry = self._entries.get(number)
        if entry is None or entry.state != HANDED:
            return
        self._redelivered -= entry.again or entry.attempts > 1
        entry.attempts -= 1
        self._put_down(entry)
        entry.state = READY
        self._deal(entry)

    def expire(self, number: int) -> None:
        """What was taken for a member is too late for anybody: settled, as if it had never been out."""
        entry = self._entries[number]
        self._redelivered -= entry.again or entry.attempts > 1
        self.ack(number)
        self._acked -= 1

    def tick(self, now: int) -> list[Dead[I]]:
        """Delays and leases that are over by now."""
        dead: list[Dead[I]] = []
        while self._timers and self._timers[0][0] <= now:
            due, number, attempts = heapq.heappop(self._timers)
            entry = self._entries.get(number)
            if not self._is_timer_of(entry, due, attempts):
                continue
            assert entry is not None
            self._lapsed += entry.state == HANDED
            dead += self._come_back(entry)
        return dead

    @property
    def next_due(self) -> int | None:
        """When to call `tick`."""
        while self._timers:
            due, number, attempts = self._timers[0]
            if self._is_timer_of(self._entries.get(number), due, attempts):
                return due
            heapq.heappop(self._timers)
        return None

    # How far it has come

    def low(self, stream: int = 0, but: AbstractSet[int] = frozenset()) -> int:
        """Everything below is settled, as far as it was offered; with `but`, once those numbers are too."""
        lows = self._lows[stream]
        passed: list[int] = []
        while lows and (lows[0] not in self._entries or lows[0] in but):
            number = heapq.heappop(lows)
            if number in self._entries:
                passed.append(number)
        low = place_of(lows[0]) if lows else self._next[stream]
        for number in passed:
            heapq.heappush(lows, number)
        return low

    def behind(self, stream: int) -> int:
        """The place behind all that was offered of a stream."""
        return self._next[stream]

    def acks_above(self, low: int, stream: int = 0) -> set[int]:
        """What is settled from a place on; what is below is forgotten."""
        above = self._acks[stream] = {place for place in self._acks[stream] if place >= low}
        return above

    def is_known(self, number: int) -> bool:
        """Whether it was offered and is not settled."""
        return number in self._entries

    def is_settled(self, number: int) -> bool:
        """Whether it is acknowledged, and that is not forgotten."""
        return place_of(number) in self._acks[stream_of(number)]

    def holds(self, member: str) -> frozenset[int]:
        """The numbers that are in a member's hands."""
        seat = self._seats.get(member)
        return frozenset() if seat is None else frozenset(seat.holds)

    def unsettled(self) -> list[I]:
        """Everything that was offered and is not settled."""
        return [entry.item for entry in self._entries.values()]

    def is_idle(self) -> bool:
        """Whether everything that was offered is settled."""
        return not self._entries

    def stats(self) -> WindowStats:
        states = [0] * 5
        for entry in self._entries.values():
            states[entry.state] += 1
        return WindowStats(
            states[READY],
            states[HANDED],
            states[DELAYED],
            states[HELD],
            self._acked,
            self._redelivered,
            self._lapsed,
            self._dead + states[DEAD],
        )

    # Inside

    def _hand(self, entry: _Entry[I], member: str, seat: _Seat, now: int) -> InFlightEvent[I]:
        entry.state, entry.member = HANDED, member
        entry.attempts += 1
        again = entry.again or entry.attempts > 1
        self._redelivered += again
        seat.holds.add(entry.number)
        if self._lease_ns is not None:
            self._set_timer(entry, now + self._lease_ns)
        return InFlightEvent(entry.number, entry.item, entry.attempts, again)

    def _come_back(self, entry: _Entry[I]) -> list[Dead[I]]:
        self._put_down(entry)
        if self._is_dead(entry):
            entry.state = DEAD
            return [Dead(entry.number, entry.item, entry.attempts)]
        entry.state = READY
        self._deal(entry)
        return []

    def _put_down(self, entry: _Entry[I]) -> None:
        seat = None if entry.member is None else self._seats.get(entry.member)
        if seat is not None:
            seat.holds.discard(entry.number)
        entry.member = None

    def _is_dead(self, entry: _Entry[I]) -> bool:
        return self._max_deliveries is not None and entry.attempts >= self._max_deliveries

    def _set_timer(self, entry: _Entry[I], due: int) -> None:
        entry.due = due
        heapq.heappush(self._timers, (due, entry.number, entry.attempts))

    @staticmethod
    def _is_timer_of(entry: _Entry[I] | None, due: int, attempts: int) -> bool:
        return (
            entry is not None
            and entry.state in (HANDED, DELAYED)
            and entry.due == due
            and entry.attempts == attempts
        )

    def _next_of_key(self, key: Hashable) -> None:
        del self._busy[key]
        held = self._held.get(key)
        while held:
            entry = self._entries.get(heapq.heappop(held)[1])
            if entry is not None and entry.state == HELD:
                # It has the key from here on: a later one that is ready as well must not come before it.
                self._busy[key] = entry.number
                entry.state = READY
                self._deal(entry)
                return
        self._held.pop(key, None)

    def _deal(self, entry: _Entry[I]) -> None:
        if stream_of(entry.number) not in self._paused:
            heapq.heappush(self._queue_for(entry.key), (entry.rank, entry.number))
        elif self._by_key and self._busy.get(entry.key) == entry.number:
            self._next_of_key(entry.key)

    def _queue_for(self, key: Any) -> list[tuple[int, int]]:
        if not key or not self._seats:
            return self._shared
        if len(self._seats) == 1:
            return next(iter(self._seats.values())).ready
        # By rank: a member that leaves shares its keys out to all others, and no other key moves.
        return self._seats[max(self._seats, key=lambda member: score(member, key))].ready

    def _deal_anew(self) -> None:
        """Everybody's share, after a change of membership."""
        self._shared.clear()
        for seat in self._seats.values():
            seat.ready.clear()
        for entry in list(self._ready_entries()):
            self._deal(entry)

    def _ready_entries(self) -> Iterator[_Entry[I]]:
        return (entry for entry in self._entries.values() if entry.state == READY)

    def _first_of(self, seat: _Seat) -> list[tuple[int, int]] | None:
        """The queue whose first event is the earliest that this member may have."""
        if not seat.ready:
            return self._shared or None
        if not self._shared or seat.ready[0] < self._shared[0]:
            return seat.ready
        return self._shared
