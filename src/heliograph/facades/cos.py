"""The vocabulary of the CORBA Event Service (OMG formal/04-10-02), as a thin face of a channel.

    events = cos.EventChannel(station, "alarms")              # carries any data; or over a typed channel
    proxy = events.for_consumers().obtain_push_supplier()
    proxy.connect_push_consumer(my_consumer)                  # has push(data) and disconnect_push_consumer()

    entry = events.for_suppliers().obtain_push_consumer()
    entry.connect_push_supplier(None)                         # a supplier need not be known
    entry.push({"level": 3})

Four proxies join the push and pull models freely. What the standard says of the edges holds exactly:

    second connect                  AlreadyConnected; with `reconnect=True`, which TAO offers as well, the new
                                    peer takes the place of the one before, which is not told
    nil consumer to push to, or
    nil supplier to pull from       BadParam; the other two peers may be nil
    push or pull when not connected Disconnected
    disconnect                      calls the peer's own disconnect operation once, if the peer is known
    second disconnect, and anything
    after destroy                   ObjectNotExist
    a consumer that raises
    Disconnected out of push        is disconnected, and not called for it

All else (dispatching, queues, isolation of consumers, links, history) is the channel's.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from heliograph.channel.channel import Channel
from heliograph.errors import (
    AlreadyConnected,
    BadParam,
    Closed,
    Disconnected,
    HeliographError,
    NoThreadLeft,
    ObjectNotExist,
)
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.publish.supplier import Supplier
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.station import Station

log = logging.getLogger(__name__)


class AnyEvent(Event, name="cos.any"):
    """What a channel carries that was opened without types of its own."""

    data: Any


class PushConsumer(Protocol):
    """A peer that is pushed to."""

    def push(self, data: Any) -> None: ...
    def disconnect_push_consumer(self) -> None: ...


class PushSupplier(Protocol):
    """A peer that pushes."""

    def disconnect_push_supplier(self) -> None: ...


class PullSupplier(Protocol):
    """A peer that is pulled from. `pull` waits; `try_pull` says whether there was anything."""

    def pull(self) -> Any: ...
    def try_pull(self) -> tuple[Any, bool]: ...
    def disconnect_pull_supplier(self) -> None: ...


class PullConsumer(Protocol):
    """A peer that pulls."""

    def disconnect_pull_consumer(self) -> None: ...


class EventChannel:
    """See the module.

    Args:
        station: where the channel of that name is opened; or a channel.
        name: of the channel.
        reconnect: whether a proxy that is connected may be connected again.

    Attributes:
        channel: what it is a face of; `destroy` closes it.
    """

    def __init__(
        self, station: Station | Channel[Any], name: str | None = None, *, reconnect: bool = False
    ) -> None:
        self.reconnect = reconnect
        if isinstance(station, Channel):
            self.channel: Channel[Any] = station
            self._typed = True
        elif name is None:
            raise BadParam("EventChannel", "takes a channel, or a station and a name")
        else:
            self.channel = station.channel(name, AnyEvent)
            self._typed = False
        self._lock = self.channel.ports.tasks.lock(f"proxies of {self.channel.name}")
        self._proxies: set[_Proxy] = set()
        self._destroyed = False

    def for_consumers(self) -> ConsumerAdmin:
        self.check()
        return ConsumerAdmin(self)

    def for_suppliers(self) -> SupplierAdmin:
        self.check()
        return SupplierAdmin(self)

    def destroy(self) -> None:
        """Disconnect every peer and close the channel."""
        with self._lock:
            self.check()
            self._destroyed = True
            proxies = list(self._proxies)
        for proxy in proxies:
            proxy.end()
        self.channel.close()

    # For the admins and proxies

    def check(self) -> None:
        if self._destroyed:
            raise ObjectNotExist(self.channel.name)

    def admit(self, proxy: _Proxy) -> None:
        with self._lock:
            self.check()
            self._proxies.add(proxy)

    def forget(self, proxy: _Proxy) -> None:
        with self._lock:
            self._proxies.discard(proxy)

    def wrap(self, data: Any) -> Any:
        return data if self._typed else AnyEvent(data)

    def unwrap(self, event: Any) -> Any:
        return event if self._typed else event.data


class ConsumerAdmin:
    """Where consumers get their proxies."""

    def __init__(self, channel: EventChannel) -> None:
        self._channel = channel

    def obtain_push_supplier(self) -> ProxyPushSupplier:
        return ProxyPushSupplier(self._channel)

    def obtain_pull_supplier(self) -> ProxyPullSupplier:
        return ProxyPullSupplier(self._channel)


class SupplierAdmin:
    """Where suppliers get their proxies."""

    def __init__(self, channel: EventChannel) -> None:
        self._channel = channel

    def obtain_push_consumer(self) -> ProxyPushConsumer:
        return ProxyPushConsumer(self._channel)

    def obtain_pull_consumer(self) -> ProxyPullConsumer:
        return ProxyPullConsumer(self._channel)


FRESH: Final = "not connected yet"
CONNECTED: Final = "connected"
GONE: Final = "disconnected"


class _Proxy:
    """What the four have in common: connected once at most, disconnected once at most."""

    _peer_operation: str

    def __init__(self, channel: EventChannel) -> None:
        self._events = channel
        self._state = FRESH
        self._peer: Any = None
        self._lock = channel.channel.ports.tasks.lock("proxy")
        channel.admit(self)

    def _connect(self, peer: Any) -> None:
        with self._lock:
            if self._state is GONE:
                raise ObjectNotExist(type(self).__name__)
            if self._state is CONNECTED and not self._events.reconnect:
                raise AlreadyConnected(type(self).__name__)
            if self._state is FRESH:
                self._open()
            self._peer = peer
            self._state = CONNECTED

    def _disconnect(self) -> None:
        if not self.end():
            raise ObjectNotExist(type(self).__name__)

    def end(self, *, tell: bool = True) -> bool:
        """Release everything and tell the peer; False when that has been done already."""
        with self._lock:
            if self._state is GONE:
                return False
            self._state, peer, self._peer = GONE, self._peer, None
        self._close()
        self._events.forget(self)
        if peer is not None and tell:
            _told(getattr(peer, self._peer_operation))
        return True

    def _check_connected(self) -> None:
        self._events.check()
        if self._state is not CONNECTED:
            raise Disconnected(type(self).__name__)

    def _open(self) -> None:
        """Take what the connection needs. Under the lock."""

    def _close(self) -> None:
        """Give it back."""


def _told(disconnect: Callable[[], object]) -> None:
    try:
        disconnect()
    except HeliographError:
        pass  # it had gone by itself
    except Exception:  # it is on its way out: nobody else shall suffer
        log.exception("%r raised while it was disconnected", disconnect)


class ProxyPushConsumer(_Proxy):
    """The way in for a supplier that pushes."""

    _peer_operation = "disconnect_push_supplier"
    _supplier: Supplier[Any] | None = None

    def connect_push_supplier(self, push_supplier: PushSupplier | None) -> None:
        self._connect(push_supplier)

    def push(self, data: Any) -> None:
        self._check_connected()
        supplier = self._supplier
        if supplier is None:
            raise Disconnected(type(self).__name__)
        try:
            supplier.push(self._events.wrap(data))
        except Closed:
            raise Disconnected(type(self).__name__) from None

    def disconnect_push_consumer(self) -> None:
        self._disconnect()

    def _open(self) -> None:
        self._supplier = self._events.channel.supplier()

    def _close(self) -> None:
        supplier, self._supplier = self._supplier, None
        if supplier is not None:
            supplier.close()


class ProxyPushSupplier(_Proxy):
    """The way out for a consumer that is pushed to."""

    _peer_operation = "disconnect_push_consumer"
    _subscription: Receiver | None = None

    def connect_push_consumer(self, push_consumer: PushConsumer) -> None:
        if push_consumer is None:
            raise BadParam("connect_push_consumer", "takes a consumer: events have to go somewhere")
        self._connect(push_consumer)

    def disconnect_push_supplier(self) -> None:
        self._disconnect()

    def _deliver(self, event: Event) -> None:
        with self._lock:
            peer = self._peer
        if peer is None:
            return
        try:
            peer.push(self._events.unwrap(event))
        except Disconnected:
            self.end(tell=False)

    def _open(self) -> None:
        deliver = partial(self._deliver)
        # Not name=, which is durable on a persistent channel: a proxy is as old as its connection.
        deliver.__name__ = "push consumer"  # type: ignore[attr-defined]  # a partial has attributes of its own
        self._subscription = self._events.channel.subscribe(deliver)

    def _close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()


class ProxyPullSupplier(_Proxy):
    """The way out for a consumer that pulls."""

    _peer_operation = "disconnect_pull_consumer"
    _consumer: Consumer[Any] | None = None

    def connect_pull_consumer(self, pull_consumer: PullConsumer | None) -> None:
        self._connect(pull_consumer)

    def pull(self) -> Any:
        """The next event; waits for one."""
        data, there = self._pulled(None)
        if not there:
            raise Disconnected(type(self).__name__)
        return data

    def try_pull(self) -> tuple[Any, bool]:
        """The next event and True, or None and False when there is none."""
        return self._pulled(0)

    def disconnect_pull_supplier(self) -> None:
        self._disconnect()

    def _pulled(self, timeout: float | None) -> tuple[Any, bool]:
        self._check_connected()
        consumer = self._consumer
        if consumer is None:
            raise Disconnected(type(self).__name__)
        event = consumer.pull(timeout)
        return (None, False) if event is None else (self._events.unwrap(event), True)

    def _open(self) -> None:
        self._consumer = self._events.channel.consumer(name="pull consumer")

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


class ProxyPullConsumer(_Proxy):
    """The way in for a supplier that is pulled from, in a task of its own."""

    _peer_operation = "disconnect_pull_supplier"
    _supplier: Supplier[Any] | None = None

    def connect_pull_supplier(self, pull_supplier: PullSupplier) -> None:
        if pull_supplier is None:
            raise BadParam("connect_pull_supplier", "takes a supplier: events have to come from somewhere")
        self._connect(pull_supplier)
        tasks = self._events.channel.ports.tasks
        try:
            tasks.spawn(f"pull into {self._events.channel.name}", partial(self._run, pull_supplier))
        except NoThreadLeft:
            self.end(tell=False)
            raise

    def disconnect_pull_consumer(self) -> None:
        self._disconnect()

    def _run(self, peer: PullSupplier) -> None:
        """Pull and push until one side has had enough, or another peer has taken this one's place."""
        while (supplier := self._pulls_from(peer)) is not None:
            try:
                supplier.push(self._events.wrap(peer.pull()))
            except (Disconnected, Closed):
                if self._pulls_from(peer) is not None:
                    self.end(tell=False)
            except Exception:  # the supplier's own code
                log.exception("%r raised out of pull and is disconnected", peer)
                if self._pulls_from(peer) is not None:
                    self.end()

    def _pulls_from(self, peer: PullSupplier) -> Supplier[Any] | None:
        with self._lock:
            return self._supplier if self._peer is peer else None

    def _open(self) -> None:
        self._supplier = self._events.channel.supplier()

    def _close(self) -> None:
        if self._supplier is not None:
            self._supplier.close()
