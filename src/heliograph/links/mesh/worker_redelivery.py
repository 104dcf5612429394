"""Redelivery to workers: events handed to a supervised process and not acknowledged go to the next one.

A band worker's process may be killed at any time. The gateways to it outlive it: what is pushed meanwhile
waits in them, and what had been sent and was not acknowledged is sent again to the next process, marked
redelivered and before all the rest. On best-effort channels what had been sent is lost, and counted. Until
the next process has subscribed to all that it wants, what the last one wanted stands.

So it is with what other stations push, where the worker asks for that (`ChannelState.relayed`): they send it
here, on its behalf, and nothing to the worker.

An event may be what kills them. Those that came again are handed to consumers one by one, and the worker says
when it begins and when it has settled each: at once, and not by the link, whose queue dies with the process.
So it is known with which one a process died. After `MOST_HANDED` processes, the first that had it included,
an event is given up.

    handed = WorkerRedelivery("alarms", gates.lock, ...)  of one worker, over all its processes
    gates.supervise(process, handed)            before that process can have dialled
    handed.resume(station)                      it has subscribed to all that it wants
    handed.begun(channel, event, now)           it has said so, see above
    handed.settled(channel, event)
    handed.end(is_lost=True)                    no process follows

`AckSender` is the other side: it says, many at a time, which events are settled. Persistent channels take
care of themselves. On those whose pushes wait for acknowledgements a process that dies has left, as any
receiver.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.history.memory import meets
from heliograph.channel.selection import Selection
from heliograph.errors import GivenUp
from heliograph.links.session import messages as m
from heliograph.links.session.gateway import GatewayQueue, PeerGateway
from heliograph.model.event import EventId

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.channel import Channel
    from heliograph.channel.observer import Outcome
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.session.confirmation import Owed
    from heliograph.links.session.link import Link
    from heliograph.model.event import Event, Header
    from heliograph.runtime.ports import Lock, Tasks

MOST_HANDED: Final = 3
"""Processes to which an event is handed that they die with; then it is given up."""
SETTLED_EVERY: Final = 0.01
"""Seconds for which a worker collects what is settled before it says so."""
SETTLED_AT_ONCE: Final = 1_024
"""Events of one message about it."""


class UnackedLog:
    """The events of one channel that were handed over and are not settled, in their order."""

    def __init__(self) -> None:
        self._entries: dict[EventId, tuple[Item, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def events(self) -> set[EventId]:
        return set(self._entries)

    def add(self, item: Item) -> None:
        self._entries[item[1].id] = (item, 1)

    def settle(self, event: EventId) -> None:
        self._entries.pop(event, None)

    def sent(self, waiting: set[EventId]) -> list[tuple[Item, int]]:
        """Those that do not wait, with how many processes had them in hand at most."""
        return [entry for event, entry in list(self._entries.items()) if event not in waiting]

    def hand_again(self, item: Item, times: int) -> Item:
        """The same, marked, in its old place."""
        again = (item[0], msgspec.structs.replace(item[1], redelivered=True), item[2])
        self._entries[item[1].id] = (again, times)
        return again


class UnackedQueue(GatewayQueue):
    """A gateway's queue that writes down what enters it."""

    book: UnackedLog

    def put(self, item: Item) -> None:
        self.book.add(item)
        super().put(item)

    def put_many(self, items: Sequence[Item], *, largest: int | None = None) -> None:
        for item in items:
            self.book.add(item)
        super().put_many(items, largest=largest)

    def put_bulk(self, bulk: OutgoingBatch) -> None:
        for item in bulk:
            self.book.add(item)
        super().put_bulk(bulk)

    def put_back(self, choose: Callable[[set[EventId]], list[Item]]) -> int:
        """Have wait again, before all others, what is chosen given what waits; how many that are."""
        with self._lock:
            items = choose({item[1].id for band in self._bands.values() for item in band})
            self._taken += len(items)
            self._put_back(items)
        return len(items)

    def settled(self, header: Header, outcome: Outcome, reason: str = "", sends: int = 1) -> None:  # noqa: ARG002 - as a watch is called
        """It was dropped here, or has expired, and is counted as that."""
        self.book.settle(header.id)


class RedeliveringGateway(PeerGateway):
    """A gateway to whichever process of a worker is there."""

    queue_kind = UnackedQueue

    def __init__(
        self, channel: Channel[Any], home: WorkerRedelivery, selection: Selection, link: Link
    ) -> None:
        self._link = link
        super().__init__(channel, home.worker, selection, link)
        self.name = self.queue.name = f"band worker {home.worker} ({link.name})"
        self.book = UnackedLog()
        self._home = home
        self._next: tuple[Mapping[type[Event], Any], m.ChannelState] | None = None
        self.is_waited_for = False
        """Whether another process has taken the place of the one before, and is not ready yet."""
        self.relayed: m.ChannelState | None = None
        """What the worker said that it wants of other stations' events, by way of this one."""
        self._unacked = self.queue if isinstance(self.queue, UnackedQueue) else None
        """Its queue; None for one that keeps one event per key, which has nothing to hand over again."""
        if self._unacked is not None:
            self._unacked.book = self.book
            self._unacked.watch = self._unacked.settled

    @property
    def link(self) -> Link:
        return self._link

    @property
    def sends_again(self) -> bool:
        """The next process gets what the last one had not settled."""
        return True

    @property
    def conditions(self) -> Mapping[type[Event], Any]:
        """What the worker wants, or will get as soon as it is ready."""
        return self.selection.conditions if self._next is None else self._next[0]

    @property
    def to_come(self) -> set[EventId]:
        """What was pushed and will be sent as soon as it is ready."""
        return self.book.events() if self.is_waited_for else set()

    def move(self, link: Link) -> None:
        """Another process or session takes the place of the last; nothing is sent to it before `resume`."""
        self.paused = self.is_waited_for = True
        if link is not self._link:
            self._link.close()
            self._link.quiesce()
            self._link = link
            self.listed = False
            self.bind(link)

    def want(self, conditions: Mapping[type[Event], Any], state: m.ChannelState) -> None:
        """What the worker wants is this from now on, or from `resume` on."""
        if self.is_waited_for:
            self._next = conditions, state
            return
        self.channel.neighbours.change_gateway(self, conditions)
        self.relay(state)

    def relay(self, state: m.ChannelState) -> None:
        """Get what other stations push, if the worker said so."""
        before, self.relayed = self.relayed, state if state.relayed else None
        if (before is None) is not (self.relayed is None):
            if self.bypassed is not None:
                # Elsewhere events may have a lifespan, though here they have none.
                self.bypassed.expires = True
            self.channel.neighbours.relay(self, self._home if state.relayed else None)

    def resume(self, choose: Callable[[set[EventId]], list[Item]]) -> int:
        """Send again what is chosen, then what waits; how many those are that are sent again."""
        self.is_waited_for = False
        if self._next is not None:
            self.want(*self._next)
            self._next = None
        unacked = self._unacked
        again = 0 if unacked is None else self.channel.neighbours.put_back(unacked, choose)
        self._link.pause(self, paused=False)
        return again


class WorkerRedelivery:
    """See the module.

    Args:
        worker: its name.
        lock: that of the gates.
        on_lost: told of an event that is given up.
        retell: tells other stations of a channel again, of which a worker wants something else now.
    """

    def __init__(
        self,
        worker: str,
        lock: Lock,
        *,
        on_lost: Callable[[str, Header, GivenUp], object],
        retell: Callable[[Channel[Any]], object],
    ) -> None:
        self.worker = worker
        self._lock = lock
        self._on_lost = on_lost
        self._retell = retell
        self._gateways: dict[str, RedeliveringGateway] = {}
        self._is_first = True
        self._running = 0
        """The station of the process that was last said to be ready."""
        self._in_hand: dict[tuple[str, EventId], int] = {}
        """What the process has begun and not settled, of what came again, and when it said so."""
        self._closed: dict[str, list[UnackedLog]] = {}
        """What the process had in hand of channels when they were closed here."""
        self.redelivered = 0
        self.lost = 0

    @property
    def unacknowledged(self) -> int:
        return sum(len(gateway.book) for gateway in list(self._gateways.values()))

    def _lose_closed(self) -> None:
        """The process is gone, and with it what it had in hand of channels that were closed here."""
        self.lost += sum(len(book) for books in self._closed.values() for book in books)
        self._closed.clear()

    # For gates, under their lock

    def keeps(self, channel: Channel[Any]) -> bool:
        """Whether events of a channel are its business."""
        return channel.store is None and channel.monitor is None

    def join(
        self,
        channel: Channel[Any],
        link: Link,
        conditions: dict[type[Event], Any],
        state: m.ChannelState,
        owed: Owed,
    ) -> RedeliveringGateway:
        """The gateway of a channel to the worker: a new one, or that of the process or session before."""
        is_running = link.station == self._running
        gateway = self._gateways.get(channel.name)
        if gateway is None or gateway.channel is not channel:
            gateway = RedeliveringGateway(channel, self, Selection(conditions), link)
            gateway.paused = gateway.is_waited_for = not (is_running or self._is_first)
            self._gateways[channel.name] = gateway
            gateway.report_in(owed)
            channel.neighbours.join_gateway(gateway)
            gateway.relay(state)
            return gateway
        gateway.move(link)
        gateway.report_in(owed)
        gateway.want(conditions, state)
        if is_running:  # what was under way in the session before may not have come
            self.redelivered += gateway.resume(partial(self._left_by_the_last, gateway, {}, []))
        return gateway

    def leave(self, gateway: RedeliveringGateway) -> None:
        """The worker wants nothing of that channel any more."""
        if self._gateways.get(gateway.channel.name) is gateway:
            del self._gateways[gateway.channel.name]

    def channel_closed(self, gateway: RedeliveringGateway) -> None:
        """The station has closed a channel: what the process has in hand of it can be handed to no other."""
        self.leave(gateway)
        if len(gateway.book):
            self._closed.setdefault(gateway.channel.name, []).append(gateway.book)

    def acked(self, channel: str, events: Iterable[tuple[str, int, int]]) -> None:
        """The process has settled events of a channel that is closed here."""
        for book in self._closed.get(channel, ()):
            for event in events:
                book.settle(EventId(*event))

    # For whoever supervises

    def begun(self, channel: str, event: EventId, now: int) -> None:
        """A process has an event in hand that came again, since an instant of the monotonic clock."""
        self._in_hand[channel, event] = now

    def hung(self, since: int) -> None:
        """The process is killed for what it has been doing since then: what it began later is not at fault.

        What it began first is, even if that was heard of late.
        """
        latest = max(since, min(self._in_hand.values(), default=since))
        self._in_hand = {key: begun for key, begun in self._in_hand.items() if begun <= latest}

    def settled(self, channel: str, event: EventId) -> None:
        """A process has come to an end with an event that came again."""
        self._in_hand.pop((channel, event), None)
        gateway = self._gateways.get(channel)
        if gateway is not None:
            gateway.book.settle(event)

    def resume(self, station: int) -> None:
        """The process of that station is ready: hand over what the one before left."""
        given_up: list[tuple[RedeliveringGateway, Item, int]] = []
        with self._lock:
            self._is_first, self._running = False, station
            self._lose_closed()
            gateways = list(self._gateways.values())
            for gateway in gateways:
                if gateway.link.station != station:
                    self._drop(gateway, is_lost=True)
                elif gateway.is_waited_for:
                    choose = partial(self._left_by_the_last, gateway, self._in_hand, given_up)
                    self.redelivered += gateway.resume(choose)
            self._in_hand.clear()
        for gateway in gateways:
            self._retell(gateway.channel)
        for gateway, item, times in given_up:
            self._on_lost(gateway.name, item[1], GivenUp(gateway.name, str(item[1].id), times))

    def end(self, *, is_lost: bool) -> None:
        """No process comes any more: what waits is dropped and counted.

        Args:
            is_lost: whether what was handed over is lost; a worker that is closed deals with it as it ends.
        """
        with self._lock:
            gateways = list(self._gateways.values())
            for gateway in gateways:
                self._drop(gateway, is_lost=is_lost)
            if is_lost:
                self._lose_closed()
        for gateway in gateways:
            self._retell(gateway.channel)

    def _drop(self, gateway: RedeliveringGateway, *, is_lost: bool) -> None:
        self.leave(gateway)
        self.lost += len(gateway.book) if is_lost else 0
        gateway.close()

    def _left_by_the_last(
        self,
        gateway: RedeliveringGateway,
        in_hand: Container[tuple[str, EventId]],
        given_up: list[tuple[RedeliveringGateway, Item, int]],
        waiting: set[EventId],
    ) -> list[Item]:
        """What to send again of what had been sent. The rest is settled: lost, or wanted by nobody now."""
        again: list[Item] = []
        is_reliable = gateway.channel.qos.reliability == "reliable"
        for item, handed in gateway.book.sent(waiting):
            times = handed + ((gateway.channel.name, item[1].id) in in_hand)
            if not meets(gateway.selection.conditions, item):
                gateway.book.settle(item[1].id)
            elif is_reliable and times < MOST_HANDED:
                again.append(gateway.book.hand_again(item, times))
            else:
                gateway.book.settle(item[1].id)
                self.lost += 1
                if is_reliable:
                    given_up.append((gateway, item, times))
        return again


class AckSender:
    """Tells the supervising station which of its events are settled here.

    Args:
        tasks: run what collects them.
        post: sends a message by the link.
        tell_at_once: tells that an event that came again is begun or settled, whatever becomes of us.
    """

    def __init__(
        self,
        tasks: Tasks,
        post: Callable[[m.Message], object],
        tell_at_once: Callable[[str, EventId, bool], object],
    ) -> None:
        self._tasks = tasks
        self._post = post
        self._tell_at_once = tell_at_once
        self._events: deque[tuple[str, EventId]] = deque()
        self._bell = tasks.signal("settled events")
        self._closed = False
        tasks.spawn_soon("settled events", self._run)

    def begun(self, channel: str, event: EventId) -> None:
        self._tell_at_once(channel, event, False)

    def settled(self, channel: str, event: EventId, again: bool) -> None:
        """Called under any lock."""
        if again:
            self._tell_at_once(channel, event, True)
        else:
            self._events.append((channel, event))
            self._bell.notify()

    def flush(self) -> None:
        while self._events:
            by_channel: defaultdict[str, list[EventId]] = defaultdict(list)
            with suppress(IndexError):  # several threads may be at it
                for _ in range(SETTLED_AT_ONCE):
                    channel, event = self._events.popleft()
                    by_channel[channel].append(event)
            for channel, events in by_channel.items():
                self._post(m.Acked(channel, tuple(events)))

    def close(self) -> None:
        self._closed = True
        self._bell.notify()

    def _run(self) -> None:
        while not self._closed:
            self._bell.wait()
            self._tasks.sleep(SETTLED_EVERY)
            self.flush()
