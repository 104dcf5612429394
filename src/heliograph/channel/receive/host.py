"""What a receiver needs of the channel and the station that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Unpack

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from heliograph.channel.ack_protocol import OpenCoordinator
    from heliograph.channel.dispatch.station_pools import Pools
    from heliograph.channel.history.memory import MemoryHistory
    from heliograph.channel.history.store import HistoryStore
    from heliograph.channel.observer import Observer
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.consumer_factory import ConsumerFactory
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.channel.selection import Point, Selection
    from heliograph.model.event import Event, Header
    from heliograph.qos.endpoint import ReceiverOptions
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Lock, Ports
    from heliograph.runtime.timers import Timers


class PartHost(Protocol):
    """The channel of any part: of a receiver or a supplier."""

    @property
    def name(self) -> str: ...
    @property
    def types(self) -> tuple[type[Event], ...]: ...
    @property
    def qos(self) -> QoS: ...
    @property
    def ports(self) -> Ports: ...
    @property
    def pools(self) -> Pools: ...
    @property
    def timers(self) -> Timers: ...

    def receivers(self) -> tuple[Receiver, ...]: ...

    def report(self, receiver: str, header: Header | None, error: BaseException) -> None:
        """A callback raised."""
        ...


class ReceiverHost(PartHost, Protocol):
    """The channel of a receiver."""

    @property
    def observer(self) -> Observer | None: ...
    @property
    def monitor(self) -> object | None: ...
    @property
    def store(self) -> HistoryStore | None: ...
    @property
    def asking(self) -> ConsumerFactory[Any]: ...

    def select(self, **options: Unpack[ReceiverOptions]) -> Selection:
        """Check what a receiver asks for."""
        ...

    def new_queue(
        self,
        name: str,
        selection: Selection,
        on_ready: Callable[[EventQueue], None],
        kind: type[EventQueue] = ...,
    ) -> EventQueue: ...

    def join(self, receiver: Receiver, start: Point) -> None:
        """Take a receiver in, from one instant on."""
        ...

    def change_receivers(self, wanted: Mapping[Receiver, Selection]) -> list[Receiver]:
        """From one push on, what they want is this; those of them that are open."""
        ...

    def drop_receiver(self, receiver: Receiver, reason: str = ...) -> None: ...


class ReceiverNames(Protocol):
    """The names and receivers that a channel knows (`heliograph.channel.registry`)."""

    @property
    def lock(self) -> Lock: ...
    @property
    def receivers(self) -> Mapping[str, Receiver]: ...
    @property
    def history(self) -> MemoryHistory: ...

    def claim_name(self, name: str, *, insist: bool = ...) -> str: ...
    def release_name(self, name: str) -> None: ...
    def has_group(self, name: str) -> bool: ...


class DeadLetterChannel(Protocol):
    """A channel for events that could not be delivered in another one."""

    holds_dead_letters: bool

    @property
    def name(self) -> str: ...
    @property
    def types(self) -> tuple[type[Event], ...]: ...
    @property
    def qos(self) -> QoS: ...
    @property
    def store(self) -> HistoryStore | None: ...
    @property
    def push(self) -> Callable[..., bool]: ...
    @property
    def consumer(self) -> Callable[..., Consumer[Any]]: ...

    def select(self, **options: Unpack[ReceiverOptions]) -> Selection: ...


class ReceiverServices(Protocol):
    """What the receivers of a station share."""

    @property
    def ports(self) -> Ports: ...
    @property
    def loop(self) -> Callable[[], asyncio.AbstractEventLoop]: ...
    @property
    def on_error(self) -> Callable[[str, Header | None, BaseException], None]: ...
    @property
    def open_desk(self) -> OpenCoordinator: ...
    @property
    def meet_stations(self) -> Callable[[], object]: ...
    @property
    def open_channel(self) -> Callable[[str, tuple[type[Event], ...], QoS], DeadLetterChannel]: ...
