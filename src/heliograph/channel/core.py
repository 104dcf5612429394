"""The channel: a named, typed stream inside one process.

It opens and closes suppliers and receivers and keeps them in step. Whenever receivers change it builds the
next routes (`heliograph.channel.pipeline`) and swaps them in while it holds every supplier still for an
instant: event n leaves by the old routes before n + 1 enters the new ones, and a receiver that joins sees
everything from one instant on. Snapshots of the ledger are taken the same way.

Lock order: the channel's own lock, then suppliers in the order they were opened, then lanes. User code runs
under none of them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, deque
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

import msgspec

from heliograph.channel.consumer import (
    AsyncSubscription,
    Consumer,
    InlineSubscription,
    QueuedReceiver,
    Receiver,
    Subscription,
)
from heliograph.channel.crowd import MERGED, Crowd
from heliograph.channel.feed import JournalLane
from heliograph.channel.groups import Group
from heliograph.channel.history import History
from heliograph.channel.intake import FeedIntake, Intake
from heliograph.channel.journalled import Journalled, Point
from heliograph.channel.lane import CoalescingLane, Item, Lane
from heliograph.channel.ledger import ChannelStats, LaneCounts
from heliograph.channel.pipeline import InlineResult, Route, Target, build_route
from heliograph.channel.selection import (
    Options,
    Selection,
    check_names,
    check_options,
    conditions_for,
    select,
)
from heliograph.channel.supplier import DurableSupplier, Supplier, closed_routes, forked_routes
from heliograph.errors import Closed, ExpressionError, NotPossible
from heliograph.event import Event, Header, info_of
from heliograph.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.dispatch import DispatchPool
    from heliograph.channel.stamp import Said
    from heliograph.channel.store import Cursor, OnDurable, Store
    from heliograph.channel.supplier import Receipt
    from heliograph.ports import Ports
    from heliograph.qos import QoS

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)
Callback = TypeVar("Callback", bound="Callable[..., object]")


class Services(msgspec.Struct, frozen=True):
    """What a channel shares with the other channels of its station."""

    ports: Ports
    pool: DispatchPool
    next_station_seq: Callable[[], int]
    new_supplier_name: Callable[[], str]
    loop: Callable[[], asyncio.AbstractEventLoop]
    on_error: Callable[[str, Header | None, BaseException], None]
    open_store: Callable[[str, Callable[[], tuple[type[Event], ...]], OnDurable], Store] | None
    """Opens the store of a journalled channel: (channel, its types, what to tell); None without a folder."""
    changed: Callable[[Channel[Any]], object] = lambda _: None
    """Told, without any lock, when what a channel's receivers want or the types that it carries changed."""


class Channel(Generic[T]):
    """Opened with `station.channel(name, *event_types)`."""

    def __init__(self, name: str, types: tuple[type[T], ...], qos: QoS, services: Services) -> None:
        check_names(name, types)
        self.name = name
        self.qos = qos
        self.ports = services.ports
        self.pool = services.pool
        self.next_station_seq = services.next_station_seq
        self._services = services
        self._types: tuple[type[T], ...] = types
        self._lock = services.ports.tasks.lock(f"channel {name}")
        self._members_changed = services.ports.tasks.condition(self._lock, f"members of {name}")
        self._suppliers: list[Supplier[T]] = []
        self._receivers: dict[str, Receiver] = {}
        self._names: set[str] = set()
        self._groups: dict[str, Group] = {}
        self._crowd = Crowd()
        self._gateways: dict[str, QueuedReceiver] = {}
        self._remote_consumers: dict[str, int] = {}
        self._history = History(qos, services.ports.clock, services.ports.tasks)
        self._routes: Mapping[type, Route] = {}
        # What inline callbacks did, put here by pushing threads and counted when somebody looks.
        self.inline_log: deque[InlineResult] = deque()
        self._numbers = count(1)
        self._closed = False
        # What members that have left had counted; a lane that still delivers goes on counting in `_leaving`.
        self._left_pushed = 0
        self._left_matched = 0
        self._departed = LaneCounts()
        self._leaving: list[Receiver] = []
        self._journal = Journalled(name, qos, services, lambda: self._types) if qos.journalled else None
        self._rebuild()
        self._own = self.supplier()
        # The supplier's own methods take the place of those below: one call less for every push.
        self.push = self._own.push  # type: ignore[method-assign]  # the same signature
        self.push_many = self._own.push_many  # type: ignore[method-assign]  # likewise
        self.push_nowait = self._own.push_nowait  # type: ignore[method-assign]  # likewise
        self.apush = self._own.apush  # type: ignore[method-assign]  # likewise

    # The face

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of {', '.join(self.type_names)}{', closed' if self._closed else ''}>"

    @property
    def types(self) -> tuple[type[T], ...]:
        return self._types

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(info_of(cls).name for cls in self._types)

    def push(self, event: T, **said: Unpack[Said]) -> bool:
        """Hand an event to every consumer that wants it; True when the channel's ack level is met.

        Args:
            event: of one of the channel's types.
            **said: `priority` (1 to 5), `source_ts` (ns since 1970), `correlation_id`, `headers`.

        Raises QueueFull when a reliable consumer has no room for `max_blocking` seconds: nobody got it then.
        """
        return self._own.push(event, **said)

    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any) -> bool:
        """Push events in order: events, a mapping of columns, or an Arrow batch or table.

        All are checked before the first is pushed.
        """
        return self._own.push_many(events)

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """As `push`, without waiting: for a place in a queue, or for the disk. The receipt tells."""
        return self._own.push_nowait(event, **said)

    async def apush(self, event: T, **said: Unpack[Said]) -> bool:
        """As `push`, for asyncio."""
        return await self._own.apush(event, **said)

    def supplier(self, name: str | None = None) -> Supplier[T]:
        """A source of its own, with its own order. Without a name it gets one that is unique for ever."""
        # A name may come back, an id may not: the epoch tells its lives apart.
        epoch = 1 if name is None else self.ports.clock.time_ns() // 1000
        full_name = name or self._services.new_supplier_name()
        supplier: Supplier[T]
        if self._journal is None:
            supplier = Supplier(self, full_name, epoch)
        else:
            supplier = DurableSupplier(self, full_name, epoch, self._journal.store)
        with self._lock:
            self._check_open()
            if any(other.name == supplier.name for other in self._suppliers):
                raise NotPossible(self.name, f"there is a supplier {supplier.name!r} already; close it first")
            supplier.use(self._routes)
            self._suppliers.append(supplier)
        return supplier

    @overload
    def subscribe(
        self,
        callback: Callback,
        *,
        inline: bool = ...,
        name: str | None = ...,
        start: Point = ...,
        **options: Unpack[Options],
    ) -> Receiver: ...
    @overload
    def subscribe(
        self,
        *,
        inline: bool = ...,
        name: str | None = ...,
        start: Point = ...,
        **options: Unpack[Options],
    ) -> Callable[[Callback], Callback]: ...
    def subscribe(
        self,
        callback: Any = None,
        *,
        inline: bool = False,
        name: str | None = None,
        start: Point = None,
        **options: Unpack[Options],
    ) -> Any:
        """Have a function called with each event that matches; also as a decorator.

        Args:
            callback: takes (event) or (event, header); may be `async def`.
            inline: call it in the pushing thread: fastest, not isolated.
            name: in statistics and errors; else the function's own.
            start: as in `consumer`.
            **options: `where` and `params`, `types`, `sources`, `priority`, `group`, `queue`, `overflow`;
                see `heliograph.channel.selection.select`.
        """
        check_options("subscribe", options, "inline", "name", "start")
        if callback is None:
            return self._decorator(inline=inline, name=name, start=start, **options)
        if not callable(callback):
            raise TypeError(f"{callback!r} cannot be called; a filter goes into where=")
        selection = self._placed(self.select(**options), start, None)
        own_name: str = getattr(callback, "__name__", type(callback).__name__)
        full_name = self._unique(name or own_name)
        receiver: Receiver
        if inline:
            if self._journal is not None:
                raise NotPossible(full_name, "inline=True: on a persistent channel nobody runs inside push")
            if selection.group is not None or selection.queue is not None or selection.overflow is not None:
                raise NotPossible(full_name, "inline=True has no queue, so no group=, queue= or overflow=")
            receiver = InlineSubscription(self, full_name, selection, callback)
        elif inspect.iscoroutinefunction(callback):
            receiver = AsyncSubscription(self, full_name, selection, callback, self._loop())
        else:
            receiver = Subscription(self, full_name, selection, callback, self.pool)
        self._join(receiver, start)
        return receiver

    def unsubscribe(self, callback: Callable[..., object]) -> None:
        """Close every subscription of that function on this channel."""
        with self._lock:
            found = [r for r in self._receivers.values() if getattr(r, "callback", None) == callback]
        if not found:
            raise NotPossible(self.name, f"{callback!r} is not subscribed here")
        for receiver in found:
            receiver.close()

    def consumer(
        self,
        *,
        name: str | None = None,
        start: Point = None,
        until: Point = None,
        **options: Unpack[Options],
    ) -> Consumer[T]:
        """Something to ask for events: `for` or `async for`, `pull`, `read` or `deliveries`.

        Args:
            name: in statistics and errors. On a persistent channel it makes the consumer durable: it is
                exclusive, and the next one of that name goes on where this one was.
            start: "earliest", "now" or "latest", an offset, or a datetime; without it, with all that the
                channel's durability keeps.
            until: where to end: "now", an offset or a datetime; without it, never.
            **options: as in `subscribe`.
        """
        check_options("consumer", options, "name", "start", "until")
        selection = self._placed(self.select(**options), start, until)
        cursor: Cursor | None = None
        if name is None or self._journal is None or selection.group is not None:
            full_name = self._unique(name or "consumer")
        else:
            full_name = self._unique(name, insist=True)
            try:
                selection, cursor = self._journal.resume(selection, name)
            except BaseException:
                self._names.discard(name)
                raise
        consumer: Consumer[T] = Consumer(self, full_name, selection, ends=until is not None, cursor=cursor)
        self._join(consumer, start)
        return consumer

    def wait_matched(self, consumers: int = 1, timeout: float | None = None) -> bool:
        """Wait until so many receivers are there, in linked stations too; False when the time ran out."""
        with self._lock:
            return self._members_changed.wait_for(lambda: self._consumer_count() >= consumers, timeout)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until every callback has been given all that waits for it; False when the time ran out.

        Consumers that are asked, not called, are not waited for.
        """
        deadline = None if timeout is None else self.ports.clock.monotonic_ns() + round(timeout * 1e9)
        with self._lock:
            receivers = list(self._receivers.values())
        for receiver in receivers:
            if isinstance(receiver, QueuedReceiver) and not isinstance(receiver, Consumer):
                left = None if deadline is None else seconds_until(self.ports.clock, deadline)
                if not receiver.lane.wait_empty(left):
                    return False
        return True

    def stats(self) -> ChannelStats:
        """One instant of this channel, in balance."""
        with self._still():
            self._fold()
            counts = {name: receiver.counts() for name, receiver in self._receivers.items()}
            departed = sum((r.counts() for r in self._leaving), self._departed)
            matched = self._left_matched + sum(s.matched for s in self._suppliers)
            if self._journal is not None:
                found = sum(c.from_history for c in counts.values()) + departed.from_history
                matched = self._journal.feed.matched + found
            return ChannelStats(
                self.name,
                self._left_pushed + sum(s.pushed for s in self._suppliers),
                matched,
                len(self._suppliers),
                counts,
                departed,
            )

    def close(self, timeout: float = 5.0) -> dict[str, int]:
        """Take no more events, deliver what waits for up to `timeout` seconds, then close the receivers.

        Returns:
            How many events each receiver had not been given in time; empty when all were delivered.
        """
        with self._still():
            if self._closed:
                return {}
            self._closed = True
            for supplier in self._suppliers:
                supplier.use(closed_routes(self.name))
            receivers = list(self._receivers.values())
        if self._journal is not None:
            self._journal.store.finish()  # what is in line is synced and fed first
        deadline = self.ports.clock.monotonic_ns() + round(timeout * 1e9)
        left: dict[str, int] = {}
        for receiver in receivers:
            if isinstance(receiver, QueuedReceiver) and not isinstance(receiver, Consumer):
                receiver.lane.wait_empty(seconds_until(self.ports.clock, deadline))
            pending = receiver.counts().pending
            if pending and not isinstance(receiver, Consumer):
                left[receiver.name] = pending
            receiver.close()
        if self._journal is not None:
            self._journal.store.close()
        if left:
            log.warning("channel %s closed with events undelivered: %s", self.name, left)
        return left

    # For suppliers and receivers

    def select(self, **options: Unpack[Options]) -> Selection:
        """Check what a receiver asks for; see `heliograph.channel.selection.select`."""
        return select(self.name, self._types, self.qos, **options)

    def new_lane(
        self, name: str, selection: Selection, on_ready: Callable[[Lane], None], kind: type[Lane] = Lane
    ) -> Lane:
        policy: Any = selection.overflow or self.qos.overflow_policy
        if self._journal is not None:
            return self._journal.lane(name, selection, on_ready)
        if policy == "coalesce":
            kind = CoalescingLane
        return kind(
            name,
            clock=self.ports.clock,
            tasks=self.ports.tasks,
            limit=selection.queue or self.qos.queue,
            policy=policy,
            priority=selection.priority,
            on_ready=on_ready,
        )

    def drop_receiver(self, receiver: Receiver, reason: str = "closed") -> None:
        """Close a receiver. A push that waits for it holds no lock, and lets go."""
        with self._still():
            if self._receivers.pop(receiver.name, None) is None:
                return
            self._fold()
            if receiver.group is not None and isinstance(receiver, QueuedReceiver):
                group = self._groups[receiver.group]
                group.leave(receiver.lane)
                if not len(group):
                    del self._groups[receiver.group]
            receiver.shut(reason)
            self._names.discard(receiver.name)
            self._leaving.append(receiver)
            is_local = self._gateways.pop(receiver.name, None) is None
            if isinstance(receiver, QueuedReceiver) and receiver.lane in self._crowd:
                self._crowd.remove(receiver.lane)
            else:
                self._rebuild()
            self._members_changed.notify_all()
        if is_local:
            self._services.changed(self)

    def drop_supplier(self, supplier: Supplier[T]) -> None:
        with self._still():
            if supplier not in self._suppliers:
                return
            supplier.use(closed_routes(f"supplier {supplier.name}"))
            self._left_pushed += supplier.pushed
            self._left_matched += supplier.matched
            self._suppliers.remove(supplier)
            self._history.supplier_left(supplier.name)

    def count_inline(self) -> None:
        """Bring the counts of inline callbacks up to date."""
        with self._still():
            self._fold_inline()

    def report(self, receiver: str, header: Header, error: BaseException) -> None:
        """A callback raised."""
        self._services.on_error(receiver, header, error)

    def forked(self) -> None:
        """In the child of a fork: no lock can be trusted, so only plain stores are made."""
        for supplier in self._suppliers:
            supplier.use(forked_routes(f"channel {self.name}"))

    def events_from_columns(self, columns: Any) -> list[Event]:
        """Events from a mapping of columns, or from an Arrow batch or table."""
        if len(self._types) != 1:
            raise NotPossible(self.name, "carries several types: push events, not columns")
        from heliograph.channel.batches import events_from_columns  # noqa: PLC0415 - few push columns

        return events_from_columns(self._types[0], columns)

    def add_types(self, types: tuple[type[T], ...]) -> None:
        """Carry further event types. Receivers that named no types get them where their condition fits."""
        with self._still():
            new = tuple(cls for cls in types if cls not in self._types)
            check_names(self.name, (*self._types, *new))
            for receiver in self._receivers.values():
                wants = receiver.selection
                if wants.all_types:
                    with suppress(ExpressionError):  # its condition is about fields that these types lack
                        wants.conditions.update(conditions_for(new, wants.tree, wants.sources))
                    if isinstance(receiver, QueuedReceiver) and receiver.lane in self._crowd:
                        self._crowd.remove(receiver.lane)
                        self._add_to_crowd(receiver)
            self._types += new
            self._rebuild()
        if new:
            self._services.changed(self)

    # For links

    @property
    def store(self) -> Store | None:
        """What keeps its history, on a journalled channel."""
        return None if self._journal is None else self._journal.store

    def read_again(self) -> None:
        """Live events may have been missed: receivers read on from the last that came."""
        assert self._journal is not None
        with self._still():
            position = self._journal.feed.next_offset
            lanes = [r.lane for r in self._receivers.values() if isinstance(r, QueuedReceiver)]
        for lane in lanes:
            if isinstance(lane, JournalLane):
                lane.fall_behind(position)

    def intake(self, name: str) -> Intake[T] | FeedIntake:
        """A way in for events that were pushed elsewhere: they go to this station's receivers only."""
        if self._journal is not None:
            return FeedIntake(self._journal.feed, self._journal.store.partition)
        with self._lock:
            intake: Intake[T] = Intake(self, name, 1)
            self._check_open()
            self._suppliers.append(intake)
        with self._still():
            self._rebuild()
        return intake

    def join_gateway(self, gateway: QueuedReceiver) -> None:
        """Add a receiver that stands for those of another station."""
        self._gateways[gateway.name] = gateway
        self._join(gateway, "now")

    def change_gateway(self, gateway: QueuedReceiver, conditions: Mapping[type[Event], Any]) -> None:
        """From one event on, what the other station's receivers want is this."""
        with self._still():
            # One by one: a lane that is behind looks at them while it reads.
            gateway.selection.conditions.update(conditions)
            for cls in gateway.selection.conditions.keys() - conditions.keys():
                del gateway.selection.conditions[cls]
            self._rebuild()

    def local_receivers(self) -> tuple[Receiver, ...]:
        """All but the gateways."""
        with self._lock:
            return tuple(r for name, r in self._receivers.items() if name not in self._gateways)

    def set_remote_consumers(self, station: str, consumers: int) -> None:
        """How many receivers a linked station has of this channel, for `wait_matched`."""
        with self._lock:
            self._remote_consumers[station] = consumers
            self._members_changed.notify_all()

    # Inside

    def _decorator(self, **options: Any) -> Callable[[Callback], Callback]:
        def decorate(callback: Callback) -> Callback:
            self.subscribe(callback, **options)
            return callback

        return decorate

    def _join(self, receiver: Receiver, start: Point) -> None:
        keeps = self._history.keeps and start in (None, "earliest")
        with self._still():
            self._check_open()
            self._receivers[receiver.name] = receiver
            if receiver.group is not None:
                assert isinstance(receiver, QueuedReceiver)
                self._groups.setdefault(receiver.group, Group(receiver.group)).join(receiver.lane)
            if keeps and isinstance(receiver, QueuedReceiver) and self._is_first_of_its_group(receiver):
                self._left_matched += self._history.replay(receiver.lane, receiver.selection.conditions)
            if not self._is_for_the_crowd(receiver) or self._add_to_crowd(receiver):
                self._rebuild()
            self._members_changed.notify_all()
        if receiver.name not in self._gateways:
            self._services.changed(self)
        # Last, so that other stations know what is wanted before anything is read from them.
        if isinstance(receiver, QueuedReceiver) and isinstance(receiver.lane, JournalLane):
            receiver.lane.start()

    def _is_first_of_its_group(self, receiver: Receiver) -> bool:
        """What was kept goes to one member of a group: the first."""
        return receiver.group is None or len(self._groups[receiver.group]) == 1

    def _is_for_the_crowd(self, receiver: Receiver) -> bool:
        return (
            len(self._receivers) > MERGED
            and isinstance(receiver, QueuedReceiver)
            and receiver.group is None
            and receiver.name not in self._gateways
            and Crowd.takes(receiver.selection.conditions)
        )

    def _add_to_crowd(self, receiver: Receiver) -> bool:
        assert isinstance(receiver, QueuedReceiver)
        return self._crowd.add(receiver.lane, receiver.selection.conditions)

    def _placed(self, selection: Selection, start: Point, until: Point) -> Selection:
        """Where in the history a receiver begins and ends."""
        if self._journal is not None:
            return self._journal.place(selection, start, until)
        if start not in (None, "now", "latest", "earliest") or until not in (None, "now", "latest"):
            raise NotPossible(
                self.name,
                f"start={start!r}, until={until!r}: only a persistent channel knows more than "
                "start='earliest' or 'now' and until='now'",
            )
        return selection

    def _loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return self._services.loop()

    def _unique(self, name: str, *, insist: bool = False) -> str:
        """A name that no other receiver has; with `insist`, that name or none."""
        with self._lock:
            unique = name
            if insist and name in self._names:
                raise NotPossible(self.name, f"the durable consumer {name!r} is open already; close it first")
            while unique in self._names:
                unique = f"{name}-{next(self._numbers)}"
            self._names.add(unique)
        return unique

    def _consumer_count(self) -> int:
        return len(self._receivers) - len(self._gateways) + sum(self._remote_consumers.values())

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"channel {self.name}")

    @contextmanager
    def _still(self) -> Iterator[None]:
        """Hold the channel and all its suppliers: no push is half done."""
        with ExitStack() as stack:
            stack.enter_context(self._lock)
            for supplier in self._suppliers:
                stack.enter_context(supplier.lock)
            if self._journal is not None:
                stack.enter_context(self._journal.feed.lock)
            yield

    def _fold(self) -> None:
        """Bring the counts of inline callbacks and of members that have left up to date. While still."""
        self._fold_inline()
        for receiver in list(self._leaving):
            counts = receiver.counts()
            if not counts.pending:
                self._departed += counts
                self._leaving.remove(receiver)

    def _fold_inline(self) -> None:
        """Each result adds to `matched` and to subscriptions alike; one may have left while it was called."""
        results = Counter([self.inline_log.popleft() for _ in range(len(self.inline_log))])
        for (targets, called, raised), times in results.items():
            self._left_matched += called.bit_count() * times
            for i, subscription in enumerate(targets.subscriptions):
                if called >> i & 1:
                    failed = bool(raised >> i & 1)
                    known = self._receivers.get(subscription.name) is subscription
                    if known or subscription in self._leaving:
                        subscription.add(times, failed=failed)
                    else:
                        self._departed += LaneCounts(failed=times) if failed else LaneCounts(delivered=times)

    def _rebuild(self) -> None:
        """Make the routes for the receivers of this moment and give them to all suppliers. While still."""
        targets: list[Target] = []
        seen_groups: set[str] = set()
        for receiver in self._receivers.values():
            if receiver.name in self._gateways:
                continue
            if isinstance(receiver, InlineSubscription):
                targets.append(Target(receiver.selection.conditions, inline=receiver))
            elif receiver.group is None:
                assert isinstance(receiver, QueuedReceiver)
                if receiver.lane not in self._crowd:
                    targets.append(Target(receiver.selection.conditions, lane=receiver.lane))
            elif receiver.group not in seen_groups:
                seen_groups.add(receiver.group)
                targets.append(Target(receiver.selection.conditions, group=self._groups[receiver.group]))
        gateways = [Target(g.selection.conditions, lane=g.lane) for g in self._gateways.values()]
        keep = self._history.keep if self._history.keeps else None
        self._routes = self._build([*targets, *gateways], keep)
        if self._journal is not None:
            self._journal.feed.use(self._routes)
        if self._closed:
            return
        arriving: Mapping[type, Route] = {}
        if not all(supplier.forwards for supplier in self._suppliers):
            arriving = self._build(targets, None)
        for supplier in self._suppliers:
            supplier.use(self._routes if supplier.forwards else arriving)

    def _build(self, targets: Sequence[Target], keep: Callable[[Item], None] | None) -> Mapping[type, Route]:
        return {
            cls: build_route(self.name, cls, self.qos, targets, keep=keep, crowd=self._crowd.matcher_of(cls))
            for cls in self._types
        }
