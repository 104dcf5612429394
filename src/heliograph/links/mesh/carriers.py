"""Carriers: the ways by which the events of one channel go to one peer, through its link, by ring, by stream,
or to a worker.

A carrier is there while the peer wants something of the channel. All of them are used under the lock of the
gateways (`heliograph.links.mesh.egress`), and answer the same calls:

    change(conditions, state)   the peer wants this now
    forget()                    the channel is closed here or is another one; its gateway closes with it
    close()                     the peer wants nothing of the channel any more
    leave(reason)               the peer is gone, what waits for it is dropped under the reason
    pause(paused=...)           the peer cannot take more just now, or can again
    acked(events)               its receivers have acknowledged these
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from heliograph.channel.selection import Selection
from heliograph.links.session.gateway import PeerGateway
from heliograph.links.streams.layout import derivation_of
from heliograph.model.event import EventId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.links.broadcast.gateway import BroadcastGateway
    from heliograph.links.broadcast.reader_admission import BroadcastNegotiation
    from heliograph.links.mesh.peer import Peer
    from heliograph.links.mesh.worker_redelivery import RedeliveringGateway, WorkerRedelivery
    from heliograph.links.session import messages as m
    from heliograph.links.streams.gateway import StreamGateway
    from heliograph.links.streams.publisher import StreamPublisher
    from heliograph.model.event import Event


class Carrier(Protocol):
    """See the module."""

    @property
    def gateway(self) -> PeerGateway: ...

    @property
    def conditions(self) -> Mapping[type[Event], Any]:
        """What the peer wants of the channel."""
        ...

    @property
    def outlives(self) -> bool:
        """Whether it stays though nothing is wanted: a worker's next process has yet to say what it wants."""
        ...

    @property
    def to_come(self) -> Collection[EventId]:
        """What was pushed here and waits for the peer to be ready."""
        ...

    @property
    def relayed(self) -> m.ChannelState | None:
        """What a worker wants of other stations by way of this one."""
        ...

    def change(self, conditions: dict[type[Event], Any], state: m.ChannelState) -> None: ...

    def forget(self) -> None: ...

    def close(self) -> None: ...

    def leave(self, reason: str) -> None: ...

    def pause(self, *, paused: bool) -> None: ...

    def acked(self, events: Iterable[tuple[str, int, int]]) -> None: ...


class LinkCarrier:
    """Sends a channel's events in the frames of the link."""

    outlives = False
    to_come = ()
    relayed = None

    def __init__(self, peer: Peer, channel: Channel[Any], conditions: dict[type[Event], Any]) -> None:
        self._link = link = peer.link
        self.gateway = PeerGateway(channel, link.name, Selection(conditions), link, called=link.called)
        self.gateway.report_in(peer.reports.owed)
        channel.neighbours.join_gateway(self.gateway)

    @property
    def conditions(self) -> Mapping[type[Event], Any]:
        return self.gateway.selection.conditions

    def change(self, conditions: dict[type[Event], Any], _: m.ChannelState) -> None:
        self.gateway.channel.neighbours.change_gateway(self.gateway, conditions)

    def forget(self) -> None:
        pass

    def close(self) -> None:
        self.gateway.close()

    def leave(self, reason: str) -> None:
        self.gateway.drop(reason)

    def pause(self, *, paused: bool) -> None:
        self._link.pause(self.gateway, paused=paused)

    def acked(self, events: Iterable[tuple[str, int, int]]) -> None:
        monitor = self.gateway.channel.monitor
        if monitor is not None:
            for event in events:
                monitor.acked(EventId(*event), self.gateway.name)


class RingCarrier:
    """Has a peer read a channel's events in this station's ring, where they are written once for all."""

    outlives = False
    to_come = ()
    relayed = None

    def __init__(
        self,
        negotiation: BroadcastNegotiation,
        peer: Peer,
        channel: Channel[Any],
        conditions: dict[type[Event], Any],
    ) -> None:
        self._negotiation = negotiation
        self._peer = peer
        self.gateway: BroadcastGateway = negotiation.admit(peer, channel, conditions)

    @property
    def conditions(self) -> Mapping[type[Event], Any]:
        """What any reader of the ring wants."""
        return self.gateway.selection.conditions

    def change(self, conditions: dict[type[Event], Any], _: m.ChannelState) -> None:
        self._negotiation.change(self._peer, self.gateway, conditions)

    def forget(self) -> None:
        self._negotiation.leave(self._peer, self.gateway)

    def close(self) -> None:
        pass  # others may read on; `forget` was called first

    def leave(self, reason: str) -> None:
        self._negotiation.leave(self._peer, self.gateway, reason)

    def pause(self, *, paused: bool) -> None:
        self._negotiation.pause(self._peer, self.gateway, paused=paused)

    def acked(self, events: Iterable[tuple[str, int, int]]) -> None:
        pass  # channels whose receivers acknowledge are not broadcast


class StreamCarrier:
    """Has a peer of another host take a stream, which is put once for all who want the same."""

    outlives = False
    to_come = ()
    relayed = None

    def __init__(
        self,
        publisher: StreamPublisher,
        peer: Peer,
        channel: Channel[Any],
        conditions: dict[type[Event], Any],
        state: m.ChannelState,
    ) -> None:
        self._publisher = publisher
        self._peer = peer
        derivation = derivation_of(state.wants)
        self.gateway: StreamGateway = publisher.move(peer, None, channel, conditions, derivation)

    @property
    def conditions(self) -> Mapping[type[Event], Any]:
        return self.gateway.selection.conditions

    def change(self, conditions: dict[type[Event], Any], state: m.ChannelState) -> None:
        derivation = derivation_of(state.wants)
        channel = self.gateway.channel
        self.gateway = self._publisher.move(self._peer, self.gateway, channel, conditions, derivation)

    def forget(self) -> None:
        self._publisher.leave(self._peer, self.gateway)

    def close(self) -> None:
        pass  # others may take the stream; `forget` was called first

    def leave(self, reason: str) -> None:
        self._publisher.leave(self._peer, self.gateway, reason)

    def pause(self, *, paused: bool) -> None:
        self._publisher.pause(self._peer, self.gateway, paused=paused)

    def acked(self, events: Iterable[tuple[str, int, int]]) -> None:
        pass  # channels whose receivers acknowledge go by links


class WorkerCarrier:
    """Sends a channel's events to a worker, and again to its next process: see `worker_redelivery`."""

    def __init__(
        self,
        handed: WorkerRedelivery,
        peer: Peer,
        channel: Channel[Any],
        conditions: dict[type[Event], Any],
        state: m.ChannelState,
    ) -> None:
        self._handed = handed
        self._link = peer.link
        self.gateway: RedeliveringGateway = handed.join(
            channel, peer.link, conditions, state, peer.reports.owed
        )

    @property
    def conditions(self) -> Mapping[type[Event], Any]:
        return self.gateway.conditions

    @property
    def outlives(self) -> bool:
        return self.gateway.is_waited_for

    @property
    def to_come(self) -> Collection[EventId]:
        return self.gateway.to_come

    @property
    def relayed(self) -> m.ChannelState | None:
        return self.gateway.relayed

    def change(self, conditions: dict[type[Event], Any], state: m.ChannelState) -> None:
        self.gateway.want(conditions, state)

    def forget(self) -> None:
        if self.gateway.channel.closed:  # else the next process has it
            self._handed.channel_closed(self.gateway)

    def close(self) -> None:
        self._handed.leave(self.gateway)
        self.gateway.close()

    def leave(self, reason: str) -> None:  # noqa: ARG002 - nothing is dropped: the next process gets it
        if self.gateway.link is self._link:  # else the next process has it already
            self.gateway.paused = True  # what is pushed meanwhile waits for that

    def pause(self, *, paused: bool) -> None:
        self._link.pause(self.gateway, paused=paused)

    def acked(self, events: Iterable[tuple[str, int, int]]) -> None:
        for event in events:
            self.gateway.book.settle(EventId(*event))
