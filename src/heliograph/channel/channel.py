"""The channel: a named, typed stream inside one process.

It opens and closes suppliers and receivers; `heliograph.channel.registry` keeps them in step. A receiver that
joins sees everything from one instant on, and snapshots of the ledger are taken while no push is half done.

Lock order: the channel's own lock, the lock of those who push, then queues. User code runs
under none of them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, TypeVar, Unpack, overload
from weakref import WeakSet

from heliograph.channel.ack_protocol import Acking, split
from heliograph.channel.admin import FilteredConsumers, FilteredSuppliers, guard, points_of
from heliograph.channel.filtered_channel import FilteredChannel
from heliograph.channel.forwarder import Forwarder
from heliograph.channel.history.memory import meets
from heliograph.channel.history.partitions import Journalled
from heliograph.channel.history.positions import check_without_history
from heliograph.channel.inline_counters import Accounts
from heliograph.channel.ledger import ChannelStats
from heliograph.channel.link_port import LinkPort
from heliograph.channel.observer import joined
from heliograph.channel.parameters import ChannelParameters
from heliograph.channel.publish.acks import AckTrace
from heliograph.channel.publish.delayed import delayed_for
from heliograph.channel.publish.supplier import Receipt, Supplier
from heliograph.channel.queueing.queue import EventQueue
from heliograph.channel.receive.consumer import Consumer, GroupReceiver
from heliograph.channel.receive.consumer_factory import ConsumerFactory, ConsumerRequest
from heliograph.channel.receive.dead_letters import give_up, open_dead_letter_channel
from heliograph.channel.receive.queue_factory import QueueFactory
from heliograph.channel.receive.subscription import QueuedReceiver, Receiver
from heliograph.channel.receive.subscription_factory import DECORATES, SubscriptionFactory, decorator
from heliograph.channel.reconfigure import Arrangement, reconfigure
from heliograph.channel.registry import Registry, not_allowed
from heliograph.channel.request_reply import ANSWER_TIMEOUT, Requests
from heliograph.channel.resync.offer import StateOffer
from heliograph.channel.resync.subscription import STATE_TIMEOUT, fetch_state, open_healing, resync_options
from heliograph.channel.selection import (
    ReceiverOptions,
    Selection,
    Wanted,
    behind,
    check_filters,
    check_keyed,
    check_name,
    check_options,
    select,
)
from heliograph.errors import Closed, ForkedStation, NotPossible, PeerLost, Suspended
from heliograph.model.event import Event, EventId, Header, info_of
from heliograph.runtime.error_reporting import run_all
from heliograph.runtime.option_names import insist_on_known, names_options
from heliograph.runtime.ports import seconds_until
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.admin import Published
    from heliograph.channel.context import ChannelContext
    from heliograph.channel.derived_channel import DerivedChannel, Derives
    from heliograph.channel.explain import EventExplanation, GeneratedCode, Why
    from heliograph.channel.history.instances import InstanceLimits, InstanceStore
    from heliograph.channel.history.operations import Operations
    from heliograph.channel.history.store import HistoryPartition, HistoryStore, SupplierLease
    from heliograph.channel.members_only import Admission
    from heliograph.channel.observer import Observer
    from heliograph.channel.publish.acks import AckMonitor
    from heliograph.channel.publish.entry import Source
    from heliograph.channel.publish.options import Said, WaitingSaid
    from heliograph.channel.publish.paced import PacedSupplier
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.receive.cache_feed import CacheFeed
    from heliograph.channel.registry import Access
    from heliograph.channel.replay import Replayed
    from heliograph.channel.resync.offer import StateSource
    from heliograph.channel.resync.subscription import Resync
    from heliograph.channel.selection import Point
    from heliograph.errors import NotMatched
    from heliograph.filters.build import Built
    from heliograph.filters.params import Params
    from heliograph.history_table import HistoryTable
    from heliograph.model.formats import Format
    from heliograph.qos.policies import QoS

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)
D = TypeVar("D", bound=Event)
Callback = TypeVar("Callback", bound="Callable[..., object]")

CONFIRM_LIMIT: Final = 0.5
"""Seconds for which a channel that closes waits to hear what other stations have taken in."""


class ConsumerOptions(ReceiverOptions, Acking, total=False):
    """What a consumer may ask for."""


class Channel(Generic[T]):
    """Opened with `station.channel(name, *event_types)`."""

    discovered = False
    """Whether it is open only because other stations have it and a pattern of names fits it."""
    holds_dead_letters = False
    """Whether events that could not be delivered in another channel go into it."""
    derives: Derives | None = None
    """What it is derived from and how, if it is a derived channel; see `heliograph.derived`."""

    def __init__(
        self,
        name: str,
        types: tuple[type[T], ...],
        qos: QoS,
        services: ChannelContext,
        access: Access = "both",
    ) -> None:
        self._filters = services.filters(name)
        check_keyed(name, types, qos)
        check_filters(types, self._filters)
        self.name = name
        self.qos = qos
        self.access = access
        self.ports = services.ports
        self.pools, self.timers = services.pools, services.timers
        if qos.threads.kind != "inline" and services.pools.dispatching:
            services.pools.check(qos.dispatch, qos.threads)  # refused here, before anything is opened
        self.next_station_seq = services.next_station_seq
        self._recording = services.observe(name, qos)
        self.monitor: AckMonitor | None = None
        """Watches deliveries where `push` waits for them: `array()` and `stats()`."""
        if qos.ack_level == "delivered":
            self.monitor = services.open_monitor(name, qos, self._send_again, self._give_up)
        self.settling = services.settling(qos)
        self.observer: Observer | None = joined(self._recording, self.monitor, self.settling)
        self._services = services
        self._accounts = Accounts()
        self._members: Registry[T] = Registry(name, types, qos, services.ports, self._accounts)
        self._opening = services.ports.tasks.lock(f"suppliers of {name}")
        self.entry, self.suspended_by = self._members.entry, self._members.suspended_by
        self.add_supplier = self._members.add_supplier
        self._journal: Journalled | None = None
        if qos.journalled:
            self._journal = Journalled(name, qos, services, lambda: self._members.types)
            self._members.feed = self._journal.feed
            if self.monitor is not None:
                self._journal.feed.passing = self.monitor.passing
        self.timed: WeakSet[EventQueue] = WeakSet()  # what timers put into, on its way to receivers
        self.delayed = delayed_for(self, services, self.store)
        self._queues = QueueFactory(qos, services.ports, services.timers, self._journal)
        self.neighbours: LinkPort[T] = LinkPort(self, self._members, self._journal, services.forget_dead)
        self.asking: ConsumerFactory[T] = ConsumerFactory(self, self._members, self._journal, services)
        self._calling: SubscriptionFactory[T] = SubscriptionFactory(
            self, self._members, self.asking, services
        )
        self._requests: Requests[T] | None = None
        self._parameters: ChannelParameters | None = None
        self.offered_state: StateOffer | None = None
        """What it offers to receivers that heal by state."""
        self._members.rebuild()
        self._own = self.supplier()
        # The supplier's own methods take the place of those below: one call less for every push.
        self.push = self._own.push  # type: ignore[method-assign]  # the same signature
        self.push_many = self._own.push_many  # type: ignore[method-assign]  # likewise
        self.push_nowait = self._own.push_nowait  # type: ignore[method-assign]  # likewise
        self.apush = self._own.apush  # type: ignore[method-assign]  # likewise
        if access == "consume":
            with self._members.still():
                self._members.refuse(not_allowed(name, access))
        self._go_on()

    def _go_on(self) -> None:
        """With what an earlier life has left: whether it was suspended, and what waits to be delivered."""
        try:
            owner = None if self._journal is None else self._services.suspended(self.name)
            if owner is not None:
                self._members.suspend(lambda: partial(Suspended, self.name, owner))
            self.delayed.restore()
        except BaseException:
            self.close(0.0)  # else nobody could open it again
            raise

    # The face

    def __repr__(self) -> str:
        closed = ", closed" if self._members.closed else ""
        return f"<Channel {self.name!r} of {', '.join(self.type_names)}{closed}>"

    def _repr_html_(self) -> str:
        from heliograph.runtime.notebook import html_table  # noqa: PLC0415 - for notebooks

        rows = [
            (info_of(cls).name, field.name, field.type)
            for cls in self.types
            for field in info_of(cls).format.fields
        ]
        return html_table(repr(self)[1:-1], ("event type", "field", "type"), rows)

    @property
    def types(self) -> tuple[type[T], ...]:
        return self._members.types

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(info_of(cls).name for cls in self._members.types)

    def push(self, event: T, **said: Unpack[WaitingSaid]) -> bool:
        """Hand an event to every consumer that wants it; True when the channel's ack level is met.

        Args:
            event: of one of the channel's types.
            **said: see `heliograph.channel.publish.options.stamp`; on a persistent channel also `timeout`.

        Raises QueueFull when a reliable consumer has no room for `max_blocking` seconds: nobody got it then.
        """
        return self._own.push(event, **said)

    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any) -> bool:
        """Push events in order: events, a mapping of columns, or an Arrow batch or table.

        All are checked before the first is pushed. On a persistent channel it takes a `timeout`, as `push`.
        """
        return self._own.push_many(events)

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """As `push`, without waiting: for a place in a queue, or for the disk. The receipt tells."""
        return self._own.push_nowait(event, **said)

    async def apush(self, event: T, **said: Unpack[WaitingSaid]) -> bool:
        """As `push`, for asyncio."""
        return await self._own.apush(event, **said)

    @overload
    def explain(self, event: T, *, code: Literal[False] = ...) -> EventExplanation: ...
    @overload
    def explain(self, event: T | None = ..., *, code: Literal[True]) -> GeneratedCode: ...
    @names_options
    def explain(self, event: T | None = None, *, code: bool = False) -> EventExplanation | GeneratedCode:
        """Which receivers would get an event, and where it would stop; see `heliograph.channel.explain`.

        Args:
            event: is not pushed.
            code: the functions that were generated for it, or for all event types of the channel, instead:
                push, routes, filters, codecs, under their names in tracebacks.
        """
        return self._own.explain(event, code=True) if code else self._own.explain(event)  # type: ignore[arg-type] # None is refused

    @names_options
    def why(self, event: Any, receiver: str) -> Why:
        """Why a receiver got an event or did not; see `heliograph.monitoring.why`.

        Args:
            event: its offset, "partition:offset", its id, its header, or an event that was never pushed.
            receiver: its name, of any station of the domain.
        """
        assert self._services.why is not None, "a station answers"
        return self._services.why(self, event, receiver)

    @names_options
    def forget(self, *key: Any, type: type[T] | None = None, timeout: float | None = None) -> bool:  # noqa: A002 - a type is what it names
        """Say of a key that it is gone; True when the channel's ack level is met.

        The events of that key leave the history when it is next compacted, and what remembers that after
        `QoS.tombstones` seconds. Receivers get nothing of it; in Spark it is a row of kind 1.

        Args:
            *key: the values of the key, in the order of the class's `key`.
            type: of which of the channel's event types; needed when there are several.
            timeout: seconds to wait for the disk.
        """
        if self.qos.compaction != "key":
            raise NotPossible(self.name, "only what is compacted can forget: hg.QoS(compaction='key')")
        return self._own.forget(type, key, timeout)

    @names_options
    def replay(
        self,
        to: Channel[Any],
        *,
        speed: float | None = 1.0,
        by: Literal["append", "source"] = "append",
        name: str | None = None,
        start: Point = "earliest",
        until: Point = "now",
        where: str | None = None,
        params: Any = None,
        progress: Callable[[Replayed], object] | None = None,
    ) -> Replayed:
        """Push events of this channel's history into another channel, at the pace at which they came.

        Args:
            to: a channel of this station with the same event types.
            speed: 2.0 is twice as fast as it was; None: as fast as possible.
            by: the times that set the pace: when events were appended, or their source times.
            name: go on where a replay of this name ended, and push no event twice, also after a kill.
            start: as in `consumer`.
            until: as in `consumer`.
            where: only events for which this is true.
            params: values for `:name` and `%0` in it.
            progress: called with what was done so far, after each event.
        """
        from heliograph.channel.replay import Replay  # noqa: PLC0415 - few programs replay

        selection = {"start": start, "until": until, "where": where, "params": params}
        replay = Replay(self, to, speed=speed, by=by, name=name, progress=progress)
        return replay.run(**{key: value for key, value in selection.items() if value is not None})

    @names_options
    def ask(self, event: T, timeout: float = ANSWER_TIMEOUT) -> Any:
        """Ask one answerer of the channel, here or in a linked station, and return its answer.

        Args:
            event: the question, of one of the channel's types. It is no event of the stream: nobody else sees
                it, and it is not kept.
            timeout: seconds to wait.

        Raises NoAnswerer, AnswererBusy, AnswerTimeout, AnswererLost when the station that was asked has died,
        and AnswerFailed when the function that answers raised.
        """
        return self.requests.ask(event, timeout)

    async def aask(self, event: T, timeout: float = ANSWER_TIMEOUT) -> Any:  # noqa: ASYNC109 - as `ask`
        """As `ask`, for asyncio."""
        return await self.requests.ask_async(event, timeout)

    @names_options
    def answer(self, function: Callback, *, name: str | None = None) -> Callback:
        """Have a function answer questions of this channel, of all stations; also as a decorator.

        Args:
            function: takes (question) or (question, header) and returns the answer, an event of one of the
                channel's types, or None; may be `async def`. It answers one question at a time.
            name: in errors; else the function's own.
        """
        self.requests.answer(function, name)
        return function

    def unanswer(self, function: Callable[..., object]) -> None:
        """Have a function answer nothing more."""
        found = [one for one in self.requests.answerers if one.function == function]
        if not found:
            raise NotPossible(self.name, f"{function!r} answers nothing here")
        for answerer in found:
            self.requests.remove(answerer)

    @property
    def requests(self) -> Requests[T]:
        """What it asks and answers; see `heliograph.channel.request_reply`."""
        if self._requests is None:
            made = Requests(self, self._services)
            with self._opening:
                if self._requests is None:
                    self._requests = made
        return self._requests

    @property
    def parameters(self) -> ChannelParameters:
        """Values that receivers set and sources read; see `heliograph.channel.parameters`."""
        if self._parameters is None:
            made = ChannelParameters(self, self._services)
            with self._opening:
                if self._parameters is None:
                    self._parameters = made
        return self._parameters

    @property
    def declared_parameters(self) -> int:
        """How many parameters this station declares of it."""
        return 0 if self._parameters is None else len(self._parameters)

    @property
    def answerers(self) -> int:
        """How many functions of this station answer questions of it."""
        return 0 if self._requests is None else len(self._requests.answerers)

    def state(self, source: StateSource) -> StateOffer:
        """Offer the current state of this station's suppliers to receivers that heal by state.

        Args:
            source: a function that returns the events which make up the state, one for each key; change your
                state first and push then. Or "latest": the last event of each key that was pushed here.

        Returns:
            The offer; `close()` withdraws it.
        """
        if self.access == "consume":
            raise not_allowed(self.name, self.access)
        if self.offered_state is not None:
            raise NotPossible(self.name, "offers a state already; close() what state() returned first")
        offer = StateOffer(self, source, self._services.new_supplier_name(), self._withdraw_state)
        self.offered_state = offer
        self._services.changed(self)
        return offer

    def _withdraw_state(self) -> None:
        self.offered_state = None
        if not self.closed:
            self._services.changed(self)

    @names_options
    def fetch_state(self, timeout: float = STATE_TIMEOUT, *, where: str | None = None) -> list[T]:
        """The state that all suppliers offer, once, through a filter; NoState when none does."""
        check_timeout(self.name, timeout, ends=True)
        wanted = self.select(where=where).conditions
        if self.access == "supply":
            raise not_allowed(self.name, self.access)
        if self.admission is not None:
            self.admission.check_group(None)
        found = fetch_state(self, self._services, timeout)
        return [item[0] for item in found if meets(wanted, item)]  # type: ignore[misc]  # of its types

    def pushed_by_suppliers(self) -> dict[tuple[str, int], int]:
        """The sequence number of the last event of each supplier of this station, by its name and epoch."""
        with self._members.lock:
            return {
                (s.name, s.epoch): s.last_pushed for s in self._members.suppliers if isinstance(s, Supplier)
            }

    def put_rows(self, receiver: QueuedReceiver, items: Sequence[Item]) -> None:
        """Have rows of a snapshot wait for a receiver, whatever else waits there."""
        with self._members.still():
            if self._members.receivers.get(receiver.name) is not receiver:
                return
            for item in items:
                receiver.queue.put_extra(item)
                if self._journal is None:
                    self._accounts.matched += 1
                else:
                    self._journal.feed.count_again()

    def keep_instances(self, limits: InstanceLimits) -> InstanceStore | None:
        """Keep samples and the state of each instance in memory, for a face of this channel; None: it keeps
        nothing in memory. See `heliograph.channel.history.instances`."""
        history = self._members.history
        return history.keep_instances(limits) if history.keeps else None

    @property
    def keeps_history(self) -> bool:
        """Whether it keeps events in memory for late joiners."""
        return self._members.history.keeps

    def partitions(self) -> Sequence[HistoryPartition]:
        """The partitions of its history that are within reach."""
        return () if self._journal is None else self._journal.hosts()

    def cancel(self, what: Receipt | EventId | str) -> bool:
        """Have an event never be delivered that was pushed with `deliver_at=` or `deliver_after=`.

        Args:
            what: the receipt of its `push_nowait`, or on a persistent channel its id: what `id=` said,
                or `receipt.header.id`.

        Returns:
            True when nobody will get it, not after a restart either. False when it is too late: it has been
            delivered, or is just being; or when nothing waits under that id.
        """
        if isinstance(what, Receipt):
            return self.delayed.cancel(what.header, None)
        if not isinstance(what, str | EventId):
            raise NotPossible(self.name, f"cancel({what!r:.60}): a receipt, or the id of a push")
        return self.delayed.cancel(None, str(what))

    def supplier(self, name: str | None = None, **published: Unpack[Published]) -> Supplier[T]:
        """A source of its own, with its own order. Without a name it gets one that is unique for ever.

        What it publishes may be said: `types`, and a filter, `where` and `params`, for what it lets through.

        On a persistent channel a name is leased: `last_sequence` is that of its last durable event, whoever
        pushed it; its sequence goes on from there, and pushes of an earlier holder raise SupplierFenced.
        """
        check_name(self.name, "name", name)
        if name is not None and self.admission is not None:
            self.admission.check_supplier(name)  # before it is leased
        points = points_of(self, published, self._filters.suppliers)
        full_name = name or self._services.new_supplier_name()
        with self._opening:
            self._check_supplier(full_name)
            supplier = self._new_supplier(full_name, named=name is not None)
            self.add_supplier(supplier)
        return guard(supplier, points) if points else supplier

    @names_options
    def forwarder(self, name: str) -> Forwarder[T]:
        """What takes events in that were pushed in another domain, as they were pushed there.

        Gateways use it; see `hg.Gateway`.

        Args:
            name: of the gateway, in errors and statistics.
        """
        check_name(self.name, "name", name)
        return Forwarder(self, name, self.store, self.neighbours.first_arrivals, self.add_supplier)

    @property
    def operations(self) -> Operations:
        """What operators do to its history; see `heliograph.channel.history.operations`."""
        from heliograph.channel.history.operations import Operations  # noqa: PLC0415 - for operators

        return Operations(self, self._services)

    @names_options
    def redrive(
        self, *, where: str | None = None, most: int | None = None, timeout: float = 1.0
    ) -> dict[str, int]:
        """Push the dead letters in this channel into the channels that they came from; how many, by channel.

        Args:
            where: only events for which this is true; the others are acknowledged here and stay dead.
            most: so many at most.
            timeout: seconds to wait for another letter.
        """
        from heliograph.channel.receive.redrive import redrive  # noqa: PLC0415 - for operators

        check_timeout(self.name, timeout, ends=True)
        if most is not None and (type(most) is not int or most < 1):
            raise NotPossible(self.name, f"most={most!r:.60}: a number of events, from 1 on")
        return redrive(self, self._services, where=where, most=most, timeout=timeout)

    @names_options
    def paced(self, rate: float, *, burst: int = 1, name: str | None = None) -> PacedSupplier[T]:
        """A supplier whose pushes wait so that there are at most so many a second.

        Args:
            rate: events a second.
            burst: events that may be pushed at once after a time without any.
            name: as in `supplier`.
        """
        from heliograph.channel.publish.paced import PacedSupplier  # noqa: PLC0415 - few suppliers are paced

        return PacedSupplier(self, rate, burst, name)

    def for_suppliers(self, **published: Unpack[Published]) -> FilteredSuppliers[T]:
        """An admin whose suppliers share a filter; see `heliograph.channel.admin`."""
        return FilteredSuppliers(self, published)

    def for_consumers(self, **wanted: Unpack[Wanted]) -> FilteredConsumers[T]:
        """An admin whose receivers share a filter; see `heliograph.channel.admin`."""
        insist_on_known("for_consumers", wanted, tuple(Wanted.__annotations__))
        return FilteredConsumers(self, wanted)

    def _check_supplier(self, name: str) -> None:
        with self._members.lock:
            self._members.check_open()
            if any(other.name == name for other in self._members.suppliers):
                raise NotPossible(self.name, f"there is a supplier {name!r} already; close it first")

    def _new_supplier(self, full_name: str, *, named: bool) -> Supplier[T]:
        lease: SupplierLease | None = None
        # A name may come back, an id may not: the epoch tells its lives apart.
        epoch = self.ports.clock.time_ns() // 1000 if named else 1
        if named and self._journal is not None:
            lease = self._journal.supplier(full_name)
            epoch = lease.epoch
        return Supplier(self, full_name, epoch, store=self.store, lease=lease, watching=self.monitor)

    @overload
    def subscribe(
        self,
        callback: Callback,
        *,
        inline: bool | None = ...,
        views: bool = ...,
        name: str | None = ...,
        start: Point = ...,
        resync: Resync | Literal["state", "history", "cheaper"] | None = ...,
        **options: Unpack[ConsumerOptions],
    ) -> Receiver: ...
    @overload
    def subscribe(
        self,
        *,
        inline: bool | None = ...,
        views: bool = ...,
        name: str | None = ...,
        start: Point = ...,
        resync: Resync | Literal["state", "history", "cheaper"] | None = ...,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[Callback], Callback]: ...
    def subscribe(
        self,
        callback: Any = DECORATES,
        *others: Any,
        inline: bool | None = None,
        views: bool = False,
        name: str | None = None,
        start: Point = None,
        resync: Resync | Literal["state", "history", "cheaper"] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Any:
        """Have a function called with each event that matches; also as a decorator.

        Args:
            callback: takes (event) or (event, header); may be `async def`.
            inline: call it in the pushing thread: fastest, not isolated; None: as the channel has it.
            views: arrays may be views of memory that is another's once the callback has returned.
            name: in statistics and errors; else the function's own. On a persistent channel it makes the
                subscription durable, as it does a consumer: it goes on where it was, and an event is
                acknowledged when the function returns. When it raises it comes again.
            start: as in `consumer`.
            resync: how it heals when it has missed events: "state", by what suppliers offer with `state`;
                "history", by what is kept; "cheaper", by whichever has fewer rows; or `hg.Resync(...)`.
            **options: `where` and `params`, `types`, `sources`, `priority`, `dispatch`, `sub_priority`,
                `latency`, `group`, `queue`, `overflow`, `separation`: see
                `heliograph.channel.selection.select`; in a group that acknowledges also `lease`,
                `max_in_flight`, `max_deliveries`, `dead_letter` and `order`, as in `consumer`.
        """
        if others:
            raise TypeError(
                f"{self.name}: subscribe() takes a function and options by name; a filter goes into "
                f"where=: subscribe(function, where={others[0]!r:.60})"
            )
        check_options(
            "subscribe", options, "inline", "views", "name", "start", "resync", *Acking.__annotations__
        )
        check_name(self.name, "name", name)
        if callback is DECORATES:
            more = {} if resync is None else {"resync": resync}
            return decorator(
                self.subscribe, inline=inline, views=views, name=name, start=start, **more, **options
            )
        if not callable(callback):
            raise TypeError(f"{callback!r} cannot be called; a filter goes into where=")
        if (heals := resync_options(self.name, resync)) is not None:
            asked = {"inline": inline, "views": views, "name": name, "start": start, **options}
            return open_healing(self, self._services, heals, callback, asked)
        selected, acking = split(options)
        selection = self._placed(self.select(**selected), start, None)
        return self._calling.open(
            callback, selection, acking, inline=inline, views=views, name=name, start=start
        )

    @names_options
    def where(
        self,
        where: Any = None,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        types: Iterable[type[T]] | None = None,
        sources: Iterable[str] | None = None,
    ) -> FilteredChannel:
        """The events that a filter lets through, as a part of a pattern such as `hg.all_of(...)`."""
        options: ReceiverOptions = {"where": where, "params": params, "types": types, "sources": sources}
        self.select(**options)
        return FilteredChannel(self, options)

    @overload
    def derive(
        self,
        select: str,
        where: Any = ...,
        params: Params | None = ...,
        *,
        into: type[D],
        type: type[T] | None = ...,
        sources: Iterable[str] | None = ...,
    ) -> DerivedChannel[D]: ...
    @overload
    def derive(
        self,
        select: str,
        where: Any = ...,
        params: Params | None = ...,
        *,
        into: None = ...,
        type: type[T] | None = ...,
        sources: Iterable[str] | None = ...,
    ) -> DerivedChannel[Any]: ...
    @names_options
    def derive(
        self,
        select: str,
        where: Any = None,
        params: Params | None = None,
        *,
        into: type[Any] | None = None,
        type: type[T] | None = None,  # noqa: A002 - a type is what it names
        sources: Iterable[str] | None = None,
    ) -> DerivedChannel[Any]:
        """The channel of what a filter and a projection make of this one's events, where those are pushed.

        Args:
            select: the columns, such as "id, speed * 1.852 AS kmh".
            where: a filter over the original events, as in `subscribe`.
            params: values for `:name` and `%0` in both.
            into: an event class of yours whose fields fit the columns; else one is made.
            type: of which of the channel's event types; needed when there are several.
            sources: only events of these suppliers.

        All who ask for the same share one derived channel: in this process the very object, in a domain one
        stream.
        """
        if self._services.derive is None:
            raise NotPossible(self.name, "derive(): only the channels of a station can be derived")
        options = {"into": into, "type": type, "sources": sources}
        found: DerivedChannel[Any] = self._services.derive(self, select, where, params, **options)
        return found

    def as_stream(self) -> FilteredChannel:
        """All events, as a part of a pattern."""
        return FilteredChannel(self, {})

    def unsubscribe(self, callback: Callable[..., object]) -> None:
        """Close every subscription of that function on this channel."""
        self._calling.unsubscribe(callback)

    def consumer(
        self,
        *,
        name: str | None = None,
        start: Point = None,
        until: Point = None,
        gap: Literal["notice", "error"] = "notice",
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[T]:
        """Something to ask for events: `for` or `async for`, `pull`, `read` or `deliveries`.

        Args:
            name: in statistics and errors. On a persistent channel it makes the consumer durable: it is
                exclusive, and the next one of that name goes on where this one was.
            start: "earliest", "now" or "latest", an offset, or a datetime; without it, with all that the
                channel's durability keeps. Where several stations keep the channel, {partition: offset}.
            until: where to end: "now", an offset or a datetime; without it, never.
            gap: what happens where retention was faster or the history is damaged. "notice": the station's
                `on_error` is told and it goes on behind; "error": HistoryGone or HistoryDamaged is raised
                there, once, and the next call goes on. Both carry `ranges`, and `gaps` has them all.
            **options: as in `subscribe`, and about acknowledging: `ack`, `lease`, `max_in_flight`,
                `max_deliveries`, `dead_letter`, `order`; see `heliograph.channel.ack_protocol.agree`.
        """
        check_options("consumer", options, "name", "start", "until", "gap", *Acking.__annotations__)
        check_name(self.name, "name", name)
        if gap not in ("notice", "error"):
            raise NotPossible(self.name, f"gap={gap!r}: allowed are 'notice' and 'error'")
        selected, acking = split(options)
        selection = self._placed(self.select(**selected), start, until)
        how = ConsumerRequest(name, start, ends=until is not None, raises_gaps=gap == "error")
        return self.asking.open(how, selection, acking)

    def feed_cache(
        self,
        offer: Callable[[T, Header], bool],
        *,
        name: str | None = None,
        start: Point = None,
        **options: Unpack[ReceiverOptions],
    ) -> CacheFeed:
        """Have events offered to a cache, for a face of this channel; see `channel.receive.cache_feed`.

        Args:
            offer: called with each event and its header, under locks of the channel; False: it waits until
                `CacheFeed.resume`.
            name: in statistics and errors.
            start: as in `consumer`.
            **options: as in `subscribe`.
        """
        from heliograph.channel.receive.cache_feed import CacheFeed  # noqa: PLC0415 - few channels have a face

        check_options("feed_cache", options, "name", "start")
        selection = self._placed(self.select(**options), start, None)
        feed = CacheFeed(self, self._members.claim_name(name or "cache"), selection, offer)
        self.join(feed, start)
        return feed

    def table(
        self,
        where: str | Built | None = None,
        params: Params | None = None,
        start: Any = None,
        until: Any = None,
        columns: Sequence[str] | None = None,
        *,
        select: str | None = None,
    ) -> HistoryTable:
        """What is durable of its history now, for Arrow, pandas, Polars and DuckDB; options as `hg.history`.

        NotPossible where the history is not in this station's folder.
        """
        from heliograph.history_table import history  # noqa: PLC0415 - Arrow loads with the first table

        folder = getattr(self.ports.disk, "folder", None)
        if self.store is None or not self.store.kept_here or folder is None:
            keeps = "it keeps no history" if self.store is None else "another station keeps its history"
            raise NotPossible(self.name, f"table() reads this station's folder, and {keeps}")
        options = {"params": params, "start": start, "until": until, "columns": columns, "select": select}
        return history(folder, self.name, where=where, **options)

    def reconfigure(self, **wanted: Unpack[Arrangement]) -> None:
        """Change `dispatch`, `latency` and `threads`, as in `QoS`, while events flow; leave out what stays.

        Nothing is lost or repeated, and suppliers keep their order. What cannot be is refused whole.
        """
        reconfigure(self, self._members, self._queues, wanted)

    def suspend(self, reason: Callable[[], Callable[[], Exception] | None], source: str = "") -> None:
        """Take nothing in while there is a reason, whether it is pushed here or elsewhere, or falls due.

        Args:
            reason: asked for while the channel is held still; makes the error that pushes raise, or is None.
            source: "" for this station's manager, else the partition whose keeper says so.
        """
        self._members.suspend(reason, source)
        self.delayed.suspension_changed()
        if not source:
            self._services.changed(self)  # linked stations refuse what is pushed there

    @property
    def admission(self) -> Admission | None:
        """Who may push and consume, where that is for members only."""
        return self._members.admission

    def admit(self, admission: Callable[[], Admission | None], source: str = "") -> None:
        """Let only these push and consume from now on, or everybody.

        Args:
            admission: asked for while the channel is held still.
            source: as in `suspend`.
        """
        if self._members.admit(admission, source):
            if not source:
                self._services.changed(self)  # linked stations refuse at their own doors
            self._report_unadmitted()

    def _report_unadmitted(self) -> None:
        """Tell of receivers that were there before it was known that they may not: they get nothing more."""
        admission = self.admission
        if admission is None:
            return
        own = {f"group {group}" for group in admission.groups}
        for receiver in self.neighbours.local_receivers():
            if receiver.name not in own:
                reason = NotPossible(
                    self.name, f"{receiver.name!r} gets nothing more: it is for members only"
                )
                self._services.on_error(receiver.name, None, reason)

    def managers_supplier(self, name: str) -> Supplier[T]:
        """A supplier for the manager of the channel, which has looked at who may push itself."""
        with self._opening:
            supplier = self._new_supplier(name, named=False)
            supplier.is_managers = True
            self.add_supplier(supplier)
        return supplier

    @property
    def suspended(self) -> Callable[[], Exception] | None:
        """Makes the error that every push raises; None when pushes are taken in."""
        return self._members.suspended

    def trace_acks(self) -> AckTrace:
        """Record what the monitor of this channel does, step by step, until the trace is closed.

        For `QoS(ack="delivered")`; NotPossible where pushes wait for no receiver. A new trace ends the last.
        """
        if self.monitor is None:
            raise NotPossible(
                self.name, "pushes wait for no receiver here: open it with QoS(ack='delivered')"
            )
        return AckTrace(self.monitor)

    @names_options
    def wait_matched(self, consumers: int = 1, timeout: float | None = None) -> bool:
        """Wait until so many receivers are there, in linked stations too; False when the time ran out."""
        return self.neighbours.wait_matched(consumers, timeout)

    @names_options
    def settle(self, timeout: float | None = None) -> bool:
        """Wait until every callback has been given all that waits for it; False when the time ran out.

        Consumers that are asked are not waited for, nor groups that acknowledge: those may be elsewhere.
        Durable functions are.
        """
        check_timeout(self.name, timeout)
        deadline = None if timeout is None else self.ports.clock.monotonic_ns() + round(timeout * 1e9)
        if not all(queue.wait_empty(timeout) for queue in tuple(self.timed)):
            return False
        with self._members.lock:
            receivers = list(self._members.receivers.values())
        for receiver in receivers:
            if isinstance(receiver, QueuedReceiver) and not isinstance(receiver, Consumer | GroupReceiver):
                left = None if deadline is None else seconds_until(self.ports.clock, deadline)
                if not receiver.queue.wait_empty(left):
                    return False
        return self._calling.settle(None if deadline is None else seconds_until(self.ports.clock, deadline))

    def raised(self) -> dict[str, int]:
        """How often each function that acknowledges has raised: no loss, what it raised for comes again."""
        return self._calling.raised()

    def stats(self) -> ChannelStats:
        """One instant of this channel, in balance."""
        accounts, suppliers = self._accounts, self._members.suppliers
        with self._members.still():
            accounts.fold(self._members.receivers)
            counts = {name: receiver.counts() for name, receiver in self._members.receivers.items()}
            departed = accounts.departed
            matched = accounts.matched + sum(s.matched for s in suppliers)
            if self._journal is not None:
                found = sum(c.from_history for c in counts.values()) + departed.from_history
                matched = self._journal.feed.matched + found
            pushed = accounts.pushed + sum(s.pushed for s in suppliers) + self.delayed.accepted
            delayed, n = self.delayed.waiting, len(suppliers)
            apart = self._members.groups_apart(self.neighbours.groups())
            unmatched = {
                station: tuple(map(str, reasons)) for station, reasons in self._members.unmatched.items()
            }
            history = self._members.history
            return ChannelStats(
                self.name,
                pushed,
                matched,
                n,
                counts,
                departed,
                delayed,
                apart,
                unmatched,
                *history.counts(),
            )

    def close(self, timeout: float = 5.0) -> dict[str, int]:
        """Take no more events, deliver what waits for up to `timeout` seconds, then close the receivers.

        Returns:
            How many events each receiver had not dealt with in time; empty when all were delivered. Of a
            durable function, whom they are kept for, with those in its history that it has not looked at.
        """
        check_timeout(self.name, timeout, ends=True)
        deadline = self.ports.clock.monotonic_ns() + round(timeout * 1e9)
        given_up = 0 if self._members.closed else self.delayed.close(timeout)
        with self._members.still():
            if self._members.closed:
                return {}
            self._members.closed = True
            for supplier in self._members.suppliers:
                supplier.retire(partial(Closed, self.name))
            receivers = list(self._members.receivers.values())
            suppliers = tuple(self._members.suppliers)
        if self._requests is not None:
            self._requests.close()
        if self._parameters is not None:
            self._parameters.close()
        for supplier in suppliers:
            supplier.cancel_periodic()
        if self._journal is not None:
            self._journal.store.finish()  # what is in line is synced and fed first
        left: dict[str, int] = {"delayed": given_up} if given_up else {}
        left |= self._calling.close(seconds_until(self.ports.clock, deadline))
        self.asking.close()
        ends: list[Callable[[], object]] = []
        for receiver in receivers:
            if isinstance(receiver, QueuedReceiver) and not isinstance(receiver, Consumer | GroupReceiver):
                receiver.queue.finish()
                receiver.queue.wait_empty(seconds_until(self.ports.clock, deadline))
                receiver.wait_confirmed(min(CONFIRM_LIMIT, seconds_until(self.ports.clock, deadline)))
            # What another station has in hand is not left here, though it has not said yet that it took it.
            pending = receiver.queue.counts().pending if isinstance(receiver, QueuedReceiver) else 0
            if pending and not isinstance(receiver, Consumer | GroupReceiver):
                left[receiver.name] = pending
            ends.append(receiver.close)
        # Whatever fails, such as a cursor whose keeper is away, it is closed and can be opened again.
        run_all(
            [
                *ends,
                lambda: None if self.monitor is None else self.monitor.close(),
                lambda: None if self._journal is None else self._journal.close(),
                lambda: self._services.closed(self),
            ]
        )
        if left:
            log.warning("channel %s closed with events undelivered: %s", self.name, left)
        return left

    @property
    def closed(self) -> bool:
        """Whether it takes no more events: it was closed, or is being closed."""
        return self._members.closed

    # For suppliers and receivers

    def next_header(self, event: T) -> Header:
        """The header that a push of it would make now."""
        return self._own.next_header(event)

    def select(self, **options: Unpack[ReceiverOptions]) -> Selection:
        """Check what a receiver asks for; see `heliograph.channel.selection.select`."""
        if self.access == "supply":
            raise not_allowed(self.name, self.access)
        if not self._services.filtering and options.get("where") is not None:
            raise NotPossible(self.name, "where=: this station's configuration has no filtering")
        if options.get("priority") is None:
            options["priority"] = self._services.priority
        return self.selected(**options)

    def selected(self, **options: Unpack[ReceiverOptions]) -> Selection:
        """As `select`, for what the station itself does with its events."""
        # First on its own, so that a mistake in it is shown in its own text.
        selection = select(self.name, self._members.types, self.qos, **options)
        if self._filters.consumers is None:
            return selection
        return select(self.name, self.types, self.qos, **behind(self._filters.consumers, options))

    def receivers(self) -> tuple[Receiver, ...]:
        """All that receive, and the gateways to other stations."""
        with self._members.lock:
            return tuple(self._members.receivers.values())

    def new_queue(
        self,
        name: str,
        selection: Selection,
        on_ready: Callable[[EventQueue], None],
        kind: type[EventQueue] = EventQueue,
    ) -> EventQueue:
        late = self._members.history.keeps and self._services.fetch_kept is not None
        return self._queues.new(name, selection, on_ready, kind, late=late)

    def drop_receiver(self, receiver: Receiver, reason: str = "closed") -> None:
        """Close a receiver. A push that waits for it holds no lock, and lets go."""
        is_local = receiver.name not in self._members.gateways
        with self._members.still():
            if not self.drop_while_still(receiver, reason):
                return
        if self.monitor is not None:
            self.monitor.left(receiver.name)
        if is_local:
            self._services.changed(self)

    def drop_while_still(self, receiver: Receiver, reason: str) -> bool:
        """The same where no push is half done; False when it is closed already."""
        if self._members.receivers.get(receiver.name) is not receiver:
            return False
        del self._members.receivers[receiver.name]
        self._accounts.fold(self._members.receivers)
        self._accounts.leave(receiver)
        self._members.leave(receiver, reason)
        if self._recording is not None:
            self._recording.left(receiver.name, receiver.counts)
        return True

    def change_receivers(self, wanted: Mapping[Receiver, Selection]) -> list[Receiver]:
        """From one push on, what they want is this; those of them that are open. See `Receiver.change`."""
        with self._members.still():
            present = [one for one in wanted if self._members.receivers.get(one.name) is one]
            self._members.change({receiver: wanted[receiver] for receiver in present})
        self._services.changed(self)
        return present

    def drop_supplier(self, supplier: Source) -> None:
        with self._members.still():
            if supplier not in self._members.suppliers:
                return
            supplier.retire(partial(Closed, f"supplier {supplier.name}"))
            self._accounts.pushed += supplier.pushed
            self._accounts.matched += supplier.matched
            self._members.suppliers.remove(supplier)
            self._members.history.supplier_left(supplier.name)
            for gateway in self._members.gateways.values():
                gateway.queue.supplier_left(supplier.name, supplier.epoch)

    def count_matched(self, events: int) -> None:
        """Events that matched a receiver without a push here. While still."""
        self._accounts.matched += events

    def report(self, receiver: str, header: Header | None, error: BaseException) -> None:
        """A callback raised."""
        self._services.on_error(receiver, header, error)

    def report_lost(self, station: str, events: int) -> None:
        """Another station was given up before it had confirmed so many events of this channel."""
        # In a task of its own: `on_error` may hang, and whoever finds a station lost has others to look at.
        self.ports.tasks.spawn_soon(
            f"reports {self.name}",
            partial(self.report, f"link to {station}", None, PeerLost(self.name, station, events)),
        )

    def report_conflict(self, error: NotPossible | NotMatched) -> None:
        """Another station has this channel in a way that does not go together with this one's."""
        self._services.on_error(f"channel {self.name}", None, error)

    def forked(self) -> None:
        """In the child of a fork: no lock can be trusted, so only plain stores are made."""
        for supplier in self._members.suppliers:
            supplier.retire(partial(ForkedStation, f"channel {self.name}"))

    if not TYPE_CHECKING:  # type checkers refuse both themselves

        def __enter__(self) -> Never:
            raise self._not_taken("with channel.consumer() as consumer:")

        def __exit__(self, *_: object) -> None: ...

        def __iter__(self) -> Never:
            raise self._not_taken("for event in channel.consumer():")

    def _not_taken(self, instead: str) -> TypeError:
        return TypeError(f"channel {self.name}: a consumer takes events from it: {instead}")

    def __reduce__(self) -> Never:
        raise NotPossible(
            "pickle",
            f"a channel belongs to the station of this process; open a station in the other one, "
            f"hg.Station(domain=...), and station.channel({self.name!r}, ...) there",
        )

    def add_types(self, types: tuple[type[T], ...]) -> None:
        """Carry further event types. Receivers that named no types get them where their condition fits."""
        check_keyed(self.name, types, self.qos)
        with self._members.still():
            changed = self._members.add_types(types)
        if changed:
            self.delayed.meet_types()
            self._services.changed(self)

    def meet_version(self, fmt: Format) -> None:
        """Carry a version of an event type as it was pushed, where no program here has the class."""
        own = [cls for cls in self.types if info_of(cls).name == fmt.name]
        if not own or any(info_of(cls).format.id == fmt.id for cls in own):
            return
        from heliograph.codec.dynamic.classes import is_made, version_class  # noqa: PLC0415 - most have the class

        if is_made(own[0]):
            self.add_types((version_class(fmt, own[0]),))  # type: ignore[arg-type]  # a class of this name

    @property
    def store(self) -> HistoryStore | None:
        """What keeps its history, on a journalled channel."""
        return None if self._journal is None else self._journal.store

    def join(self, receiver: Receiver, start: Point) -> None:
        """Take a receiver in, from one instant on."""
        keeps = self._members.history.keeps and start in (None, "earliest")
        with self._members.still():
            replayed = self._members.join(receiver, from_history=keeps)
            self._accounts.matched += replayed
            if isinstance(receiver, QueuedReceiver):
                receiver.queue.joined()
        if receiver.name not in self._members.gateways:
            self._services.changed(self)
        if keeps and isinstance(receiver, QueuedReceiver) and self._members.gets_history(receiver):
            self._fetch_kept(receiver.queue)
        # Last, so that other stations know what is wanted before anything is read from them.
        if isinstance(receiver, QueuedReceiver):
            receiver.queue.start()

    # For the monitor

    def _send_again(self, item: Item, receivers: tuple[str, ...]) -> None:
        """Put an event into the queues of these receivers once more, whatever else waits there."""
        with self._members.still():
            for name in receivers:
                receiver = self._members.receivers.get(name)
                if isinstance(receiver, QueuedReceiver):
                    receiver.queue.put_extra(item)
                    if self._journal is None:
                        self._accounts.matched += 1
                    else:
                        self._journal.feed.count_again()

    def _give_up(self, item: Item, attempts: int, lacking: tuple[str, ...]) -> None:
        grave = open_dead_letter_channel(self, self._services, self.qos.dead_letter)
        give_up(grave, self._services, ", ".join(lacking), item, attempts)

    # Inside

    def _fetch_kept(self, queue: EventQueue) -> None:
        """What other stations have kept in memory is for this queue too, if there are any."""
        if queue.late is not None and self._services.fetch_kept is not None:
            queue.late.wants_history = True
            self._services.fetch_kept(self, queue.late)

    def _placed(self, selection: Selection, start: Point, until: Point) -> Selection:
        """Where in the history a receiver begins and ends; NotPossible when it may not receive."""
        if self.admission is not None:
            self.admission.check_group(selection.group)
        if self._journal is not None:
            return self._journal.place(selection, start, until)
        check_without_history(self.name, start, until)
        if start == "earliest" and not self._members.history.keeps and not self.name.startswith(("$", "_")):
            log.warning(
                "channel %s keeps no events: start='earliest' begins with the next one; "
                "qos=hg.QoS(durability='persistent') keeps them",
                self.name,
            )
        return selection
