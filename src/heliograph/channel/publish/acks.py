"""When a push is acknowledged: from memory, by the journal, on disk, or by every receiver; and its receipt.

At the ack level "delivered" an event is watched by a monitor (`heliograph.delivery` fulfils `AckMonitor`). A
ticket is opened for it before anybody can have it, the channel says to whom it passes it, each receiver's
watch says what became of it there, and in the end the ticket says whether everybody has acknowledged it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from heliograph.channel.receive.acking_subscription import durable_function_here
from heliograph.errors import DeliveryTimeout, NotPossible, WouldDeadlock
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from heliograph.channel.history.store import Level, StoreReceipt
    from heliograph.channel.observer import Watch
    from heliograph.channel.publish.entry import Entering
    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.publish.options import Stamp
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.model.event import EventId, Header
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Clock


class Ticket(Protocol):
    """What becomes of one event."""

    def wait(self, timeout: float | None = None) -> bool | None:
        """Whether everybody has acknowledged it; None when that is not known in time."""
        ...

    def forget(self) -> None:
        """Nobody gets the event after all."""
        ...

    def forget_unpassed(self) -> None:
        """The same, unless it has been passed on by now."""
        ...


class AckMonitor(Protocol):
    """The monitor of one channel, for all its suppliers."""

    trace: Callable[[str, EventId, str], object] | None
    """Told each of its steps: the step, the event, and the receiver where there is one."""

    def expect(self, event: EventId, on_all: Callable[[], object] | None = None) -> Ticket:
        """An event will be passed on; `on_all` is called when everybody has acknowledged it."""
        ...

    def passing(self, item: Item, receivers: Iterable[str]) -> None:
        """It is passed to these receivers now. Events that nobody expects are not watched."""
        ...

    def watch(self, receiver: str) -> Watch:
        """Told what became of events at a receiver."""
        ...

    def acked(self, event: EventId, receiver: str) -> None:
        """A receiver has acknowledged an event."""
        ...

    def left(self, receiver: str) -> None:
        """A receiver is not on the channel any more."""
        ...

    def array(self) -> Sequence[Any]:
        """The events that are under way; see `heliograph.delivery.ack_watch.EventRow`."""
        ...

    def close(self) -> None: ...


MAX_STEPS: Final = 10_000
"""Steps that a trace keeps, the latest."""


class AckStep(NamedTuple):
    """One step of the monitor of a channel."""

    step: str
    """notify, timer, pass, ack, ack upward, delete; resend, and give up or end in place of delete."""
    event: EventId
    receiver: str
    """Where there is one."""


class AckTrace:
    """What the monitor of a channel does, step by step, until closed; the latest `MAX_STEPS` are kept."""

    def __init__(self, watching: AckMonitor) -> None:
        self._watching = watching
        self._steps: deque[AckStep] = deque(maxlen=MAX_STEPS)
        self._add = lambda *step: self._steps.append(AckStep(*step))
        watching.trace = self._add

    def steps(self, event: EventId | None = None) -> list[AckStep]:
        """Those of one event, or of all."""
        return [step for step in tuple(self._steps) if event in (None, step.event)]

    def close(self) -> None:
        if self._watching.trace is self._add:
            self._watching.trace = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ack(NamedTuple):
    """When a push is acknowledged.

    Attributes:
        level: what is asked of the store, where there is one.
        waits_for_store: whether a push waits until the store says so.
        watching: the monitor that says when every receiver has acknowledged; None: they are not waited for.
    """

    level: Level
    waits_for_store: bool
    watching: AckMonitor | None

    def check(self, channel: SupplierHost) -> None:
        """WouldDeadlock when this thread is inside a callback of the channel that it would wait for."""
        if self.watching is None:
            return
        if (durable := durable_function_here(channel)) is not None:
            raise WouldDeadlock(durable)
        for receiver in channel.neighbours.local_receivers():
            queue: EventQueue | None = getattr(receiver, "queue", None)
            if queue is not None and channel.pools.runs_here(queue):
                raise WouldDeadlock(queue.name)

    def check_said(self, channel: str, said: Stamp) -> None:
        """NotPossible for what a push cannot say while receivers are waited for."""
        if self.watching is None:
            return
        if said.postponed:
            raise NotPossible(
                channel,
                "deliver_at= with ack='delivered': push would wait for acknowledgements until then and "
                "longer; postpone on a channel of another ack level",
            )
        if said.id is not None:
            raise NotPossible(channel, "id= with ack='delivered': a push is watched only once")


def ack_of(qos: QoS, watching: AckMonitor | None) -> Ack:
    """The ack level of a channel."""
    level: Level = "journal" if qos.ack_level == "journal" else "synced"
    return Ack(level, watching is not None or qos.ack_level in ("journal", "synced"), watching)


class Receipt:
    """The outcome of `push_nowait`.

    Args:
        header: gives the event's header to who looks.
        stored: what to wait for until the event is kept; None: nothing.
        ticket: what to wait for until receivers have acknowledged it; None: nothing.
        clock: for those that wait for both.
    """

    __slots__ = ("_clock", "_header", "_stored", "_ticket")

    def __init__(
        self,
        header: Callable[[], Header],
        stored: StoreReceipt | None = None,
        ticket: Ticket | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._header = header
        self._stored = stored
        self._ticket = ticket
        self._clock = clock

    @property
    def header(self) -> Header:
        return self._header()

    def result(self, timeout: float | None = None) -> bool:
        """True when the ack level is met; False when the monitor has given up on a receiver."""
        check_timeout("result", timeout)
        if self._stored is not None:
            if timeout is None or self._clock is None:
                self._stored.result(timeout)
            else:
                began = self._clock.monotonic_ns()
                self._stored.result(timeout)
                timeout = max(0.0, timeout - (self._clock.monotonic_ns() - began) / 1e9)
        return True if self._ticket is None else outcome(self._ticket, self._header, timeout)

    def when_kept(self, call: Callable[[BaseException | None], object]) -> None:
        """Call it once the event is kept, with what went wrong if it is not; it must not wait."""
        if self._stored is None:
            call(None)
        else:
            self._stored.add_done_callback(lambda receipt: call(receipt.error()))


def outcome(ticket: Ticket, header: Callable[[], Header], timeout: float | None) -> bool:
    """Whether all have acknowledged it; DeliveryTimeout when that is not known in time."""
    delivered = ticket.wait(timeout)
    if delivered is None:
        late = header()
        raise DeliveryTimeout(late.channel, str(late.id), timeout or 0.0)
    return delivered


def passing(watching: AckMonitor) -> Entering:
    """Tells a monitor which receivers' queues an event enters."""

    def entering(item: Item, queues: Sequence[EventQueue]) -> None:
        watching.passing(item, [queue.name for queue in queues])

    return entering


def passing_from_elsewhere(watching: AckMonitor, tell: Callable[[EventId], object]) -> Entering:
    """The same of events of another station, which is told when all receivers here have acknowledged one."""

    def entering(item: Item, queues: Sequence[EventQueue]) -> None:
        expect_for(watching, item, tell)
        watching.passing(item, [queue.name for queue in queues])

    return entering


def expect_for(watching: AckMonitor, item: Item, tell: Callable[[EventId], object]) -> Ticket:
    """Watch an event for the station where it was pushed."""
    event = item[1].id
    return watching.expect(event, lambda: tell(event))
