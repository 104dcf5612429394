"""What a supplier needs of the channel and the station that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from heliograph.channel.receive.host import PartHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from weakref import WeakSet

    from heliograph.channel.dispatch.station_pools import Pools
    from heliograph.channel.publish.delayed import Delayed, LaterStore
    from heliograph.channel.publish.entry import Source
    from heliograph.channel.publish.supplier import Supplier
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.model.event import Event
    from heliograph.runtime.ports import Lock, Ports
    from heliograph.runtime.timers import Timers


OF_SUPPLIER: Final = "supplier filter"
"""The point of a supplier's own filter."""
OF_SUPPLIER_ADMIN: Final = "supplier admin filter"
"""The point of the filter that many suppliers share."""


class LetsThrough(Protocol):
    """Whatever stands at a point: a filter, or an object of the user's own that a configuration names."""

    def lets_through(self, event: Any) -> bool: ...


class LocalReceivers(Protocol):
    """Tells the receivers of this station from the gateways to others."""

    def local_receivers(self) -> Iterable[Receiver]: ...


class SupplierHost(PartHost, Protocol):
    """The channel of a supplier, or of another source of events."""

    @property
    def type_names(self) -> tuple[str, ...]: ...
    @property
    def entry(self) -> Lock:
        """Held while events enter queues."""
        ...

    @property
    def next_station_seq(self) -> Callable[[], int]: ...
    @property
    def delayed(self) -> Delayed: ...
    @property
    def timed(self) -> WeakSet[EventQueue]:
        """What timers put into, on its way to receivers."""
        ...

    @property
    def suspended(self) -> Callable[[], Exception] | None:
        """Makes the error that every push raises; None when pushes are taken in."""
        ...

    @property
    def neighbours(self) -> LocalReceivers: ...
    @property
    def supplier(self) -> Callable[..., Supplier[Any]]: ...
    @property
    def add_supplier(self) -> Callable[[Source], object]: ...

    def drop_supplier(self, supplier: Source) -> None: ...


class DelayServices(Protocol):
    """What the delayed events of a station share."""

    @property
    def ports(self) -> Ports: ...
    @property
    def pools(self) -> Pools: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def new_supplier_name(self) -> Callable[[], str]: ...
    @property
    def open_later(self) -> Callable[[str, tuple[type[Event], ...], bool], LaterStore | None] | None: ...
