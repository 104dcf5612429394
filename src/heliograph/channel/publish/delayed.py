"""Delayed delivery: `push(event, deliver_at=...)` and `deliver_after=...`, across restarts where kept.

Such an event waits outside of queues and history, with a timer of the station. When that rings a worker hands
it on at the event's priority, as if it were pushed then: to whoever wants it by then, with the whole of its
lifespan left, and in the history behind what came meanwhile.

    Delayed             waits in memory, and is given up when the channel closes
    DurableDelayed      waits in a journal beside the history as well, and is delivered after a restart
    DelayedElsewhere    waits in the station that keeps the channel's history

A durable one is handed on in two steps: (1) it is appended to the history under the id of its push, unless it
is there already; (2) what waited is forgotten. Whoever is stopped in between does both again, and nothing
comes twice.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.history.store import Tombstone
from heliograph.channel.publish.entry import Entry, Source
from heliograph.channel.queueing.queue import EventQueue
from heliograph.codec import decoder, encoder
from heliograph.errors import Closed, HeliographError, IncompatibleFormats, NotPossible, QueueFull
from heliograph.model.compatibility import defaults_of, why_apart
from heliograph.model.event import PUSH_ID, Event, Header, info_of
from heliograph.model.formats import Format
from heliograph.runtime.timers import MAX_TIMERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.history.store import HistoryStore, KeepingStore, Level, StoreReceipt
    from heliograph.channel.publish.host import DelayServices, SupplierHost
    from heliograph.channel.queueing.queue import Item
    from heliograph.errors import HistoryDamaged
    from heliograph.runtime.timers import Timer

log = logging.getLogger(__name__)

ATTEMPT: Final = 0.5
"""Seconds that a worker waits for room in a full queue before it looks whether the channel is still open."""
CANCELLED: Final = 65_536
"""Ids of cancelled pushes that are remembered: as many as those of kept ones."""
TRY_AGAIN: Final = 1.0
"""Seconds until what could not be appended to the history is tried again."""


class Later(NamedTuple):
    """When a durable event is to be delivered, and for whom."""

    push_id: str
    due_ns: int
    """Since 1970."""
    holder: int
    """The epoch of its supplier's lease when it was pushed."""
    wait_ns: int


class LaterStore(Protocol):
    """Where durable events wait; each row is a `DelayedRow`."""

    def append_once(
        self,
        batch: OutgoingBatch,
        push_id: str,
        level: Level,
        timeout: float | None = None,
        check: Callable[[], object] | None = None,
    ) -> StoreReceipt:
        """`check` raises what bars the push, once it is its turn."""
        ...

    def forget(self, gone: Tombstone, level: Level) -> StoreReceipt: ...

    def standing(self, on_gap: Callable[[HistoryDamaged], object]) -> Iterable[Item]:
        """What is there and has not been forgotten; `on_gap` is told what cannot be read."""
        ...

    def close(self) -> None: ...


class RemoteDelays(Protocol):
    """A store whose rows are in another station."""

    def append_later(self, item: Item, later: Later, level: Level) -> StoreReceipt: ...

    def cancel_later(self, push_id: str) -> bool: ...


class DelayedRow(Event, name="helio.waiting", key="push_id"):
    """A row of what waits. What the event's header says stands in the header of the row."""

    push_id: str
    due_ns: int
    type: str
    format: bytes
    """The description of its format: its class may be another one when it is read."""
    body: bytes


class _Due(Source):
    """The way in of events whose time has come, whoever pushed them: they were counted then."""

    names_itself = False

    def __init__(self, channel: SupplierHost, name: str) -> None:
        self.on_taken: Callable[[], object] = lambda: None
        """Called when it enters the queues, in the same instant for whoever looks at the ledger."""
        super().__init__(name, 1, Entry(channel, name, lambda *_: self.on_taken()))

    def deliver(self, event: Event, header: Header) -> None:
        """QueueFull when a receiver that must not lose it has no room for a while."""
        self.entry.push(event, lambda _: header, lambda _: header, ATTEMPT)


class _Entry:
    """One event that waits."""

    __slots__ = ("event", "header", "is_cancelled", "kept", "next_sequence", "push_id")

    def __init__(self, event: Event, header: Header, push_id: str = "") -> None:
        self.event = event
        self.header = header
        self.push_id = push_id
        self.is_cancelled = False
        self.next_sequence: Callable[[], int] | None = None
        self.kept: Callable[[], object] | None = None
        """Of a durable one: waits until it is in the journal; raises when it is not."""


class Delayed:
    """What waits on one channel; see the module."""

    def __init__(self, channel: SupplierHost, services: DelayServices) -> None:
        self._channel = channel
        self._services = services
        self._clock = services.ports.clock
        self._lock = services.ports.tasks.lock(f"delayed events of {channel.name}")
        self._timers: dict[_Entry, Timer] = {}
        self.accepted = 0
        """Events that were put off since the channel was opened."""
        self._waiting: dict[object, _Entry] = {}
        """What no receiver was given yet: by itself, or by the id of a durable push."""
        self._closed = False
        self._rounds = 0
        self._due: _Due | None = None
        self.queue = EventQueue(
            f"delayed events of {channel.name}",
            clock=self._clock,
            tasks=services.ports.tasks,
            limit=MAX_TIMERS,
            policy="drop_newest",
            on_ready=partial(services.pools.run_timed, self),
        )
        channel.timed.add(self.queue)

    @property
    def waiting(self) -> int:
        """How many wait. While the channel is still, exactly those that no receiver was given."""
        return len(self._waiting)

    @property
    def still_to_come(self) -> int:
        """How many wait or are just being handed on; 0 only when all are in the queues, or the history."""
        return self.waiting or int(not self.queue.wait_empty(0.0))

    def put(self, item: Item, due: int, next_sequence: Callable[[], int]) -> None:
        """Have an event delivered at an instant of the monotonic clock.

        Raises TooManyTimers when the station has no room for one more.
        """
        with self._lock:
            if self._due is None:
                self._due = _Due(self._channel, self._services.new_supplier_name())
                self._channel.add_supplier(self._due)
        entry = _Entry(item[0], item[1])
        entry.next_sequence = next_sequence
        self._waiting[entry] = entry
        try:
            self._wait(due, entry)
        except HeliographError:
            del self._waiting[entry]
            raise
        with self._lock:
            self.accepted += 1

    def keep(self, item: Item, later: Later, level: Level, timeout: float | None) -> StoreReceipt:  # noqa: ARG002 - for those that can
        """Keep an event until its time, where there is a history."""
        raise NotPossible(
            self._channel.name, "deliver_at= across restarts: it keeps no history to wait beside"
        )

    def cancel(self, header: Header | None, push_id: str | None) -> bool:  # noqa: ARG002 - without a history there is no id to find it by
        """Have an event never be delivered; False when it has been, is just being, or never waited here."""
        if header is None:
            raise NotPossible(
                self._channel.name,
                "cancel(id): without a journal there are no ids; cancel(receipt) with that of push_nowait",
            )
        with self._lock:
            entry = next((one for one in self._timers if one.header is header), None)
            timer = None if entry is None else self._timers.pop(entry)
        if entry is None or timer is None:
            return False  # its timer has rung: it is on its way
        timer.cancel()
        self._waiting.pop(entry, None)
        return True

    def restore(self) -> None:
        """Go on with what waits since an earlier life, if anything does."""

    def meet_types(self) -> None:
        """The channel carries further types."""

    def suspension_changed(self) -> None:
        """The channel was suspended, or goes on; only those with a history can be."""

    def close(self, timeout: float) -> int:
        """Deliver what is due, and give up the rest; how many that were."""
        with self._lock:
            self._closed = True
            timers, self._timers = list(self._timers.values()), {}
        for timer in timers:
            timer.cancel()
        self.queue.wait_empty(timeout)
        self.queue.close()
        return self.waiting

    # For the workers

    def run_batch(self) -> bool:
        items = self.queue.take()
        if items:
            self._hand_on(items)
            self.queue.done += len(items)
            self.queue.settle()
        return bool(items)

    @property
    def progress(self) -> int:
        return self._rounds

    def suspended(self, seconds: float) -> None:
        """No supplier waits for it."""

    def stuck(self, seconds: float) -> None:
        log.error("%s: nothing could be handed on for %.1f s", self.queue.name, seconds)

    # Inside

    def _wait(self, due: int, entry: _Entry, *, owed: bool = False) -> None:
        """See to it that it is handed on; `owed`: it was accepted before, so no limit refuses it now."""
        with self._lock:
            if self._closed:
                raise Closed(f"channel {self._channel.name}")
            if due > self._clock.monotonic_ns():
                timers = self._services.timers
                self._timers[entry] = timers.at(due, partial(self._ring, entry), owed=owed)
                return
        self._ready(entry)

    def _ring(self, entry: _Entry) -> None:
        with self._lock:
            cancelled = self._timers.pop(entry, None) is None
        if not cancelled:
            self._ready(entry)

    def _ready(self, entry: _Entry) -> None:
        self.queue.put((entry, entry.header, 0))  # type: ignore[arg-type]  # no event yet

    def _hand_on(self, items: list[Any]) -> None:
        assert self._due is not None
        for entry, header, _ in items:
            whole = self._now_pushed(header, sequence=entry.next_sequence())
            self._due.on_taken = partial(self._waiting.pop, entry, None)
            # However long a queue stays full, as long as the channel is open.
            while not self._handed_on_one(self._due, entry.event, whole):
                self._rounds += 1

    def _handed_on_one(self, due: _Due, event: Event, header: Header) -> bool:
        try:
            due.deliver(event, header)
        except QueueFull:
            return self._closed
        except Closed:
            return True
        return True

    def _now_pushed(self, header: Header, **more: Any) -> Header:
        """It is taken in now, whenever it was pushed."""
        return msgspec.structs.replace(header, station_seq=self._channel.next_station_seq(), **more)


class DurableDelayed(Delayed):
    """See the module."""

    def __init__(self, channel: SupplierHost, services: DelayServices, store: KeepingStore) -> None:
        super().__init__(channel, services)
        self._store = store
        self._later: LaterStore | None = None
        self._keeping = services.ports.tasks.lock(f"journal of delayed events of {channel.name}")
        self._unread: list[tuple[DelayedRow, Header]] = []
        """Of types that the channel does not carry, yet."""
        self._held: list[_Entry] = []
        """Due while the channel is suspended: handed on when it goes on."""
        self._cancelled: dict[str, None] = {}
        """Ids of the last pushes that were cancelled in this life: repeated, they do not come either."""

    def restore(self) -> None:
        self._later = self._open(create=False)
        if self._later is not None:
            standing = self._later.standing(self._damaged)
            rows = [(row, header) for row, header, _ in standing if isinstance(row, DelayedRow)]
            self._unread = sorted(rows, key=lambda pair: pair[0].due_ns)
            self.meet_types()

    def _damaged(self, gap: HistoryDamaged) -> None:
        """The others go on, and `helio journal repair` says what is lost."""
        self._channel.report(self.queue.name, None, gap)

    def meet_types(self) -> None:
        """What waited for them can be read."""
        if not self._unread:
            return
        classes = {info_of(cls).name: cls for cls in self._channel.types}
        unread, self._unread = self._unread, []
        for row, header in unread:
            cls = classes.get(row.type)
            if cls is None or not self._restored(row, header, cls):
                self._unread.append((row, header))

    def _restored(self, row: DelayedRow, header: Header, cls: type[Event]) -> bool:
        """Have one row wait again, as it was pushed; False when it cannot be read: it stays where it is."""
        from heliograph.codec.dynamic.classes import is_made, version_class  # noqa: PLC0415 - rarely does anything wait so long

        try:
            fmt = Format.from_description(row.format)
            own = info_of(cls).format
            if not is_made(cls) and (apart := why_apart(fmt, own, defaults_of(cls))):
                raise IncompatibleFormats(fmt.name, own.name, apart)  # noqa: TRY301 - as when it is pushed
            event = decoder(fmt, version_class(fmt, cls))(row.body)
        except Exception as error:  # noqa: BLE001 - whatever is in that row, the others go on
            self._channel.report(self.queue.name, header, error)
            return False
        entry = _Entry(event, _as_pushed(header, event, self._channel.name), row.push_id)
        self._waiting[row.push_id] = entry
        wait_ns = max(0, row.due_ns - self._clock.time_ns())
        with suppress(Closed):  # the next life goes on with it
            self._wait(self._clock.monotonic_ns() + wait_ns, entry, owed=True)
        return True

    def keep(self, item: Item, later: Later, level: Level, timeout: float | None) -> StoreReceipt:
        """Keep an event until its time; the receipt is that of the journal in which it waits."""
        event, header, _ = item
        check = partial(self._store.check_holder, header.supplier, later.holder)
        check()
        info = info_of(type(event))
        body = encoder(type(event)).encode(event)
        waiting = DelayedRow(later.push_id, later.due_ns, info.name, info.format.description, body)
        whole = msgspec.structs.replace(header, format_id=info_of(DelayedRow).format.id)
        row = OutgoingBatch.of([(waiting, whole, 0)])
        with self._keeping:
            if self._closed:
                raise Closed(f"channel {self._channel.name}")
            if self._later is None:
                self._later = self._open(create=True)
            assert self._later is not None
            if later.push_id in self._waiting or later.push_id in self._cancelled:
                return self._later.append_once(row, later.push_id, level, timeout, check)
            entry = _Entry(event, header, later.push_id)
            entry.kept = _refused
            # The timer comes first: there may be no room for it.
            self._wait(self._clock.monotonic_ns() + later.wait_ns, entry)
            try:
                receipt = self._later.append_once(row, later.push_id, level, timeout, check)
            except BaseException:
                self._cancel(entry)
                raise
            entry.kept = receipt.result
            self._waiting[later.push_id] = entry
            self.accepted += 1
        return receipt

    def cancel(self, header: Header | None, push_id: str | None) -> bool:
        """As above; kept when this returns True. When it raises it did not happen, and the event comes."""
        if push_id is None:
            push_id = _push_id(header)
        # What hands it on takes the same lock to decide: one of the two comes first.
        with self._keeping:
            entry = self._waiting.get(push_id)
            if entry is None or self._later is None:
                return False
            self._later.forget(self._tombstone(entry), "synced").result()
            entry.is_cancelled = True
            del self._waiting[push_id]
            self._cancelled[push_id] = None
            if len(self._cancelled) > CANCELLED:
                del self._cancelled[next(iter(self._cancelled))]
        self._cancel(entry)
        return True

    def close(self, timeout: float) -> int:
        """What waits stays in its journal: nothing is given up."""
        super().close(timeout)
        with self._keeping:  # a push that came before may just open it
            if self._later is not None:
                self._later.close()
        return 0

    def _cancel(self, entry: _Entry) -> None:
        with self._lock:
            timer = self._timers.pop(entry, None)
        if timer is not None:
            timer.cancel()

    def _open(self, *, create: bool) -> LaterStore | None:
        assert self._services.open_later is not None, "who keeps the history keeps this too"
        return self._services.open_later(self._channel.name, (DelayedRow,), create)

    def _hand_on(self, items: list[Any]) -> None:
        self._rounds += 1
        appended = []
        for entry, header, _ in items:
            with self._keeping:  # its push may not have come back yet
                kept = entry.kept
            if kept is not None and not _succeeded(kept):
                self._waits_no_more(entry)
                continue  # its push has raised: nobody is to get it
            try:
                receipt = self._append(entry, header)  # (1)
            except HeliographError as error:
                self._try_again(entry, error)
            else:
                if receipt is not None:
                    appended.append((entry, receipt))
        for entry, receipt in appended:
            try:
                receipt.result()
            except HeliographError as error:
                self._try_again(entry, error)
            else:
                self._forget(entry)  # (2)

    def _append(self, entry: _Entry, header: Header) -> StoreReceipt | None:
        """Put it in line for the history; None when it was cancelled, or waits for a suspended channel."""
        with self._keeping:
            if entry.is_cancelled:
                return None
            if self._channel.suspended is not None:
                self._held.append(entry)
                return None
            if self._waiting.get(entry.push_id) is entry:
                del self._waiting[entry.push_id]
            whole = self._now_pushed(header)
            deadline = 0 if whole.lifetime_ns is None else self._clock.monotonic_ns() + whole.lifetime_ns
            return self._store.append_due((entry.event, whole, deadline), entry.push_id)

    def suspension_changed(self) -> None:
        """When this returns, nothing is on its way into the history that a suspension has come before."""
        with self._keeping:
            if self._channel.suspended is not None:
                return
            held, self._held = self._held, []
        for entry in held:
            self._ready(entry)

    def _waits_no_more(self, entry: _Entry) -> None:
        with self._keeping:  # another may wait under the id of one that was refused
            if self._waiting.get(entry.push_id) is entry:
                del self._waiting[entry.push_id]

    def _try_again(self, entry: _Entry, error: HeliographError) -> None:
        """It stays in the journal in which it waits, whatever happens."""
        with self._keeping:
            self._waiting[entry.push_id] = entry
        log.warning("%s: %s is not in the history yet: %s", self.queue.name, entry.header.id, error)
        with suppress(HeliographError):  # closed: the next life goes on with it
            self._wait(self._clock.monotonic_ns() + round(TRY_AGAIN * 1e9), entry, owed=True)

    def _forget(self, entry: _Entry) -> None:
        assert self._later is not None
        try:
            self._later.forget(self._tombstone(entry), "journal")
        except HeliographError as error:
            # The next life finds it in the history.
            log.warning("%s: that %s was delivered is not noted: %s", self.queue.name, entry.header.id, error)

    def _tombstone(self, entry: _Entry) -> Tombstone:
        """Says that it waits no more."""
        header = entry.header
        return Tombstone(
            DelayedRow,
            (entry.push_id,),
            header.supplier,
            header.epoch,
            header.sequence,
            self._clock.time_ns(),
            header.station_seq,
        )


class DelayedElsewhere(Delayed):
    """See the module."""

    def __init__(self, channel: SupplierHost, services: DelayServices, store: RemoteDelays) -> None:
        super().__init__(channel, services)
        self._store = store

    def keep(self, item: Item, later: Later, level: Level, timeout: float | None) -> StoreReceipt:  # noqa: ARG002 - who keeps it has been waited for
        return self._store.append_later(item, later, level)

    def cancel(self, header: Header | None, push_id: str | None) -> bool:
        return self._store.cancel_later(_push_id(header) if push_id is None else push_id)


def delayed_for(channel: SupplierHost, services: DelayServices, store: HistoryStore | None) -> Delayed:
    """What a channel with this store, or with none, has."""
    if store is None:
        return Delayed(channel, services)
    keeping: Any = store
    return (DurableDelayed if store.kept_here else DelayedElsewhere)(channel, services, keeping)


def _push_id(header: Header | None) -> str:
    """Under which a durable event waits; of a push that was not put off there is none."""
    said = None if header is None else header.headers
    return "" if said is None else said.get(PUSH_ID, "")


def _refused() -> object:
    """The journal did not take it."""
    raise Closed("what did not wait")


def _succeeded(kept: Callable[[], object]) -> bool:
    try:
        kept()
    except HeliographError:
        return False
    return True


def _as_pushed(header: Header, event: Event, channel: str) -> Header:
    """The header of an event, from that of the row in which it waited."""
    info = info_of(type(event))
    return msgspec.structs.replace(
        header,
        channel=channel,
        type=info.name,
        format_id=info.format.id,
        key=tuple(getattr(event, name) for name in info.key),
        append_ts=None,
        partition=None,
        offset=None,
    )
