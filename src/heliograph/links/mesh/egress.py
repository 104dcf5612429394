"""Egress to peers: a carrier for each channel that a peer is interested in.

A carrier is there exactly while the other station wants something of a channel that this station may send:
events that were pushed here, or that are kept here. What another station keeps is sent by that one.

A band worker asks the station that supervises it for what others push, and those for nothing, so that what
it is handed is kept until it is settled (`heliograph.links.mesh.worker_redelivery`). It does so on channels
that both have alike when it first wants something of them, and that keep no history: what is kept is asked
for where it is kept. That stays so while both have it open: between two ways events would come twice, or not
at all.

The lock orders changes of gateways; it comes before the locks of channels.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from heliograph.channel.publish.worker_acks import WorkerAcks
from heliograph.channel.routing.conditions import AnyCondition
from heliograph.errors import Closed, ForkedStation, NotMatched
from heliograph.links.broadcast.carrier_choice import why_by_link
from heliograph.links.interest.advertisement import describe, nothing_of
from heliograph.links.interest.filter_wire import condition_for
from heliograph.links.interest.matching import not_coming, unmet, unreadable
from heliograph.links.mesh.carriers import LinkCarrier, RingCarrier, StreamCarrier, WorkerCarrier
from heliograph.links.mesh.ingress import Ingress
from heliograph.links.mesh.worker_redelivery import AckSender
from heliograph.links.session import messages as m
from heliograph.links.session.confirmation import PEER_LOST, Confirmations
from heliograph.model.event import info_of
from heliograph.qos.matching import smallest_change

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.links.broadcast.reader_admission import BroadcastNegotiation
    from heliograph.links.mesh.carriers import Carrier
    from heliograph.links.mesh.peer import Peer
    from heliograph.links.mesh.worker_redelivery import WorkerRedelivery
    from heliograph.links.session.confirmation import Owed
    from heliograph.links.streams.publisher import StreamPublisher
    from heliograph.model.event import Event, EventId
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)


class Egress:
    """See the module."""

    def __init__(
        self,
        channel: Callable[[str], Channel[Any] | None],
        said: Callable[[str], m.ChannelState | None],
        tasks: Tasks,
        peer_of: Callable[[int], Peer | None],
    ) -> None:
        self.retell: Callable[[Channel[Any]], object]
        """Tells others of a channel again; set by the mesh, as `airing`."""
        self.airing: BroadcastNegotiation
        """Decides which peers read the ring; set by the mesh, before there is any other station."""
        self.streams: StreamPublisher | None = None
        """Sends streams to other hosts; set by the mesh, likewise, where there is a network."""
        self._channel = channel
        self._said = said
        """What others have been told of a channel."""
        self._tasks = tasks
        self._peer_of = peer_of
        self.lock = tasks.lock("gateways")
        self._supervised: dict[int, WorkerRedelivery] = {}
        self.supervisor = 0
        """The station that is told of what is settled here; 0: none."""
        self.is_relayed = False
        """Whether that one hands on to this one what others push."""
        self._ways: WeakKeyDictionary[Channel[Any], bool] = WeakKeyDictionary()
        """On which channels it does, of those of which this station has wanted something."""
        self._is_ending = False
        self.reopened: dict[str, QoS] = {}
        """Channels that are opened anew as they are kept when a keeper comes, and how they are until then."""
        self.tell_supervisor: Callable[[str, EventId, bool], object] = lambda _, __, ___: None
        """Tells it that an event that came again is begun or settled, though this process die right then."""
        self._settling = WorkerAcks(tasks)

    def supervise(self, process: int, handed: WorkerRedelivery | None) -> None:
        """Keep what is handed to the station of a process until it is settled there; None: no longer."""
        with self.lock:
            if handed is None:
                self._supervised.pop(process, None)
            else:
                self._supervised[process] = handed

    def greet(self, peer: Peer, session: int, before: Confirmations | None = None) -> None:
        """A session with a station begins; the last one may have been that of a link that was given up."""
        peer.reports.begin(session, before)
        peer.worker = peer.worker or self._supervised.get(peer.link.process.pid)
        peer.begin()

    def for_peer(self, peer: Peer, channel: Channel[Any], state: m.ChannelState) -> m.ChannelState:
        """What to tell one station of a channel. Under the lock of the mesh."""
        if peer.worker is not None or not peer.link.peer.derives:
            state = describe(channel, apart_from=peer.worker, is_derived_here=not peer.link.peer.derives)
        if not self._comes_by_supervisor(channel, is_wanted=bool(state.wants)):
            return state
        if peer.link.station == self.supervisor:
            return msgspec.structs.replace(state, relayed=True)
        return msgspec.structs.replace(state, consumers=0, wants=(), groups=())

    def _comes_by_supervisor(self, channel: Channel[Any], *, is_wanted: bool) -> bool:
        """Whether what others push comes by way of the station that supervises this one."""
        if not self.is_relayed:
            return False
        way = self._ways.get(channel)
        if way is None:
            peer = self._peer_of(self.supervisor)
            known = None if peer is None else peer.advertised.channels.get(channel.name)
            way = known is not None and _alike(channel, known)
            if is_wanted:
                self._ways[channel] = way
        return way

    def channel_told(self, peer: Peer, state: m.ChannelState) -> None:
        """Another station has said how it has a channel, and what it wants of it."""
        peer.advertised.channels[state.name] = state
        self.fit(peer, state.name)
        is_kept = state.relayed or state.acks or state.durability != "volatile"
        if peer.worker is not None and state.wants and not is_kept and state.name not in peer.told.direct:
            peer.told.direct.add(state.name)
            log.warning(
                "band worker %s gets what other stations push into %s directly from them, and what it has "
                "not handled when its process dies is lost: open the channel in this station, with the same "
                "classes and reliability, before the worker is started",
                peer.worker.worker,
                state.name,
            )

    def channel_gone(self, peer: Peer, name: str) -> None:
        """Another station has closed a channel."""
        peer.advertised.channels.pop(name, None)
        self.fit(peer, name)
        channel = self._channel(name)
        if channel is not None and peer.link.station == self.supervisor and self._ways.get(channel):
            self._ways[channel] = False
            self.retell(channel)

    @property
    def is_ending(self) -> bool:
        """Whether others are told of no change any more; see `end`."""
        return self._is_ending

    def end(self) -> None:
        """This worker's process ends by itself, in order, and another one takes its place.

        What that one is to get must wait for it: nobody is told that receivers leave, and what they have not
        had is not settled.
        """
        self._is_ending = self._settling.is_ending = True

    def settling(self, qos: QoS) -> WorkerAcks | None:
        """Finds out what is settled of a new channel of this station, if anybody wants to know."""
        if not self.supervisor or qos.journalled or qos.ack_level == "delivered":
            return None
        return self._settling

    def confirmed(self, peer: Peer, message: m.Taken) -> None:
        """A station has said what it has taken in of this one's events."""
        before = peer.reports.confirm(message)
        if before is not None:
            self.report_lost(before, peer.link.text)

    def report_lost(self, owed: Owed, peer: str) -> None:
        """Tell `on_error` once, for each channel, what was lost with a session."""
        if owed.is_reported or owed.reason != PEER_LOST:
            return
        owed.is_reported = True
        for channel, events in owed.lost().items():
            channel.report_lost(peer, events)

    def acked(self, peer: Peer, message: m.Acked) -> None:
        carrier = peer.carriers.get(message.channel)
        if carrier is not None:
            carrier.acked(message.events)
        if peer.worker is not None:
            peer.worker.acked(message.channel, message.events)

    def refused(self, peer: Peer, channel: Channel[Any], events: Collection[EventId]) -> None:
        """A station has sent what does not fit this one's class: nobody here will have it, nor elsewhere."""
        told = self._told_by(peer, channel) if events else None
        if told is not None:
            for event in events:
                told.settled(channel.name, event, False)

    def fit(self, peer: Peer, name: str) -> None:
        """Make the gateway of a channel to a station be what the station wants of it now."""
        with self.lock:
            if peer.rings.is_expelled:
                return
            channel = self._channel(name)
            carrier = peer.carriers.get(name)
            if channel is None or peer.link.closed:
                self._let_go(peer, name)
                return
            if carrier is not None and carrier.gateway.channel is not channel:
                self._let_go(peer, name)
                carrier = None
            state = peer.advertised.channels.get(name)
            apart = [] if state is None else self._not_coming(peer, channel, state)
            conditions = {} if state is None else self._conditions(peer, channel, state, apart)
            if state is not None and self._is_passing(channel, state):
                apart.clear()
            if conditions and carrier is None and not self._is_settled(peer, channel):
                return  # all channels are looked at when it has answered
            before = _relayed_by(carrier)
            # Who keeps nothing sends nothing: what it pushes reaches them by way of the keeper.
            is_reached = bool(conditions) or not _sends(channel)
            consumers, groups = (state.consumers, state.groups) if state and is_reached else (0, ())
            # Before their carrier goes: `wait_matched` counts nobody to whom nothing is sent any more.
            channel.neighbours.lower_consumers(peer.link.name, consumers, groups)
            try:
                self._change(peer, channel, carrier, conditions, state)
            except (Closed, ForkedStation):
                self._let_go(peer, name)
            is_told = _relayed_by(peer.carriers.get(name)) == before
            channel.neighbours.set_consumers(peer.link.name, consumers, groups)
            channel.neighbours.set_unmatched(peer.link.name, apart)
            news = [one for one in apart if str(one) not in peer.told.apart]
            peer.told.apart.update(map(str, news))
        if not is_told:
            self.retell(channel)
        for one in news:
            channel.report_conflict(one)

    def drop(self, peer: Peer, *, is_gone: bool = False, reason: str = PEER_LOST) -> None:
        """The other station is gone and all that it had sent is taken in, or it has forgotten this one."""
        self.leave(peer, reason)
        with self.lock:
            arrivals = peer.ingress.end()
        if peer.settled is not None and is_gone:  # what is settled of the session before is told in this one
            peer.settled.close()
        for arrived in arrivals:
            arrived.close(is_last=is_gone)
        peer.ingress.leaving = [arrived for arrived in arrivals if arrived.aside]

    def cut(self, peer: Peer) -> None:
        """The next session with the other station begins: nothing of this one is handed on from now on."""
        with self.lock:
            arrivals = [*peer.ingress.end(), *peer.ingress.leaving]
            peer.ingress.leaving = ()
        for arrived in arrivals:
            arrived.close(is_last=False)

    def leave(self, peer: Peer, reason: str = PEER_LOST) -> None:
        """Nothing is sent to the other station any more, and nobody counts on it.

        What waits for it and what it has not confirmed is dropped under the reason.
        """
        with self.lock:
            carriers, peer.carriers = peer.carriers, {}
            names, peer.advertised.channels = set(peer.advertised.channels), {}
            # Before the lock is let go: the next gateway to this station has the same name.
            for carrier in carriers.values():
                carrier.leave(reason)
        peer.reports.owed.give_up(reason)
        if self.streams is not None:
            self.streams.forget(peer)
        for name in names:
            channel = self._channel(name)
            if channel is not None:
                channel.neighbours.set_consumers(peer.link.name, 0)
                channel.neighbours.set_unmatched(peer.link.name, ())

    def wanted(self, station: int, name: str) -> Mapping[type[Event], Any] | None:
        """What a station has said that its consumers want of a channel of this one."""
        carrier = self._carrier(station, name)
        return None if carrier is None else dict(carrier.conditions)

    def is_carried(self, station: int, name: str) -> bool:
        """Whether a station gets what comes from now on of what it wants of a channel.

        False while it has not answered by which way; what comes till then is not sent to it.
        """
        peer, channel = self._peer_of(station), self._channel(name)
        if peer is None or channel is None:
            return True
        carrier = peer.carriers.get(name)
        if carrier is not None and carrier.gateway.channel is channel:
            return True
        self.fit(peer, name)  # whoever has told others of the channel may not have come to it
        with self.lock:
            state = peer.advertised.channels.get(name)
            if state is None or name in peer.carriers or peer.link.closed or peer.rings.is_expelled:
                return True
            return not self._conditions(peer, channel, state, self._not_coming(peer, channel, state))

    def to_come(self, station: int, name: str) -> Collection[EventId]:
        """What was pushed here and waits for a worker to be ready."""
        carrier = self._carrier(station, name)
        return () if carrier is None else carrier.to_come

    def _carrier(self, station: int, name: str) -> Carrier | None:
        peer = self._peer_of(station)
        return None if peer is None else peer.carriers.get(name)

    def pause(self, peer: Peer, name: str, *, paused: bool) -> None:
        """Stop sending a channel's events to a station, or go on."""
        carrier = peer.carriers.get(name)
        if carrier is not None:
            carrier.pause(paused=paused)

    def arrivals(self, peer: Peer, name: str) -> Ingress | None:
        """The way in for a channel's events; None when it is not open here. For the link's reader."""
        return self._arrivals(peer, name, peer.ingress.by_link)

    def arrivals_by_ring(self, peer: Peer, name: str) -> Ingress | None:
        """The same for what comes by broadcast. For the task that reads it."""
        return self._arrivals(peer, name, peer.ingress.by_ring)

    def arrivals_by_stream(self, peer: Peer, name: str) -> Ingress | None:
        """The same for what comes by stream. For the task that reads streams."""
        return self._arrivals(peer, name, peer.ingress.by_stream)

    def _arrivals(self, peer: Peer, name: str, known: dict[str, Ingress]) -> Ingress | None:
        arrivals = known.get(name)
        channel = self._channel(name)
        if channel is None or (arrivals is not None and arrivals.channel is channel):
            return arrivals
        link = peer.link
        try:
            arrivals = Ingress(
                channel,
                link.name,
                self._tasks,
                lambda channel_name, paused: link.post(m.Flow(channel_name, paused)),
                lambda event: link.post(m.Acked(name, (event,))),
                on_left_out=lambda events: peer.losses.left_out.update({name: events}),
                supervisor=self._told_by(peer, channel),
                behind=peer.worker,
                is_derived_here=not link.peer.derives,
            )
        except (Closed, ForkedStation):
            return None
        known[name] = arrivals
        peer.reports.taken.add_way(name, arrivals)
        return arrivals

    def _let_go(self, peer: Peer, name: str) -> None:
        """The channel is not open any more, or is another one; its gateway closes with it."""
        carrier = peer.carriers.pop(name, None)
        if carrier is not None:
            carrier.forget()

    def _told_by(self, peer: Peer, channel: Channel[Any]) -> AckSender | None:
        """The acknowledgement sender towards the supervising station; None for any other peer."""
        if channel.settling is None or peer.link.station != self.supervisor:
            return None
        if peer.settled is None:
            peer.settled = AckSender(self._tasks, peer.link.post, self.tell_supervisor)
        return peer.settled

    def _is_settled(self, peer: Peer, channel: Channel[Any]) -> bool:
        """Whether it is known how a channel's events reach a station."""
        handed = self._supervised.get(peer.link.process.pid)
        return (handed is not None and handed.keeps(channel)) or self.airing.is_settled(peer, channel)

    def _change(
        self,
        peer: Peer,
        channel: Channel[Any],
        carrier: Carrier | None,
        conditions: dict[type[Event], Any],
        state: m.ChannelState | None,
    ) -> None:
        is_wanted = bool(conditions) and state is not None
        if carrier is not None and (is_wanted or carrier.outlives):
            carrier.change(conditions, state or nothing_of(channel))
        elif state is not None and is_wanted:
            peer.carriers[channel.name] = self._new_carrier(peer, channel, conditions, state)
        else:
            self._let_go(peer, channel.name)
            if carrier is not None:
                carrier.close()

    def _new_carrier(
        self, peer: Peer, channel: Channel[Any], conditions: dict[type[Event], Any], state: m.ChannelState
    ) -> Carrier:
        handed = self._supervised.get(peer.link.process.pid)
        if handed is not None and handed.keeps(channel):
            return WorkerCarrier(handed, peer, channel, conditions, state)
        if self.airing.takes(peer, channel):
            return RingCarrier(self.airing, peer, channel, conditions)
        if self.streams is not None and peer.link.peer.streams and not why_by_link(channel):
            return StreamCarrier(self.streams, peer, channel, conditions, state)
        return LinkCarrier(peer, channel, conditions)

    def _is_passing(self, channel: Channel[Any], state: m.ChannelState) -> bool:
        """Whether one of two stations is about to open a channel anew, as the other one keeps it."""
        till_then = self.reopened.get(channel.name)
        return till_then is not None and till_then in (channel.qos, state.qos)

    def _not_coming(self, peer: Peer, channel: Channel[Any], state: m.ChannelState) -> list[NotMatched]:
        own = self._said(channel.name)
        if own is None:
            return []  # looked at when it is told
        formats = {fmt.id: fmt for fmt in (info_of(cls).format for cls in channel.types)}
        return not_coming(peer.link.text, state, own, formats.get, peer.advertised.format_of)

    def _conditions(
        self, peer: Peer, channel: Channel[Any], state: m.ChannelState, apart: list[NotMatched]
    ) -> dict[type[Event], Any]:
        """What to send to a station, per event type; what it wants and cannot get is added to `apart`."""
        if not _sends(channel):
            return {}
        reason = unmet(channel.qos, state, acks=channel.monitor is not None) if state.wants else ""
        if state.wants and channel.admission is not None and state.keeper is None:
            reason = "it is for members only, who consume by member.consumer() or member.subscribe()"
        if reason:
            change = smallest_change(channel.qos, state.qos)
            apart.append(NotMatched(channel.name, peer.link.text, True, "", reason, change))
            return {}
        found: dict[type[Event], Any] = {}
        for cls in channel.types:
            fmt = info_of(cls).format
            wants = [want for want in state.wants if want.type == fmt.name]
            # Of a history each event goes out in the version in which it was pushed, which may be another.
            is_live = wants and channel.store is None
            reason = unreadable(fmt, wants[0], peer.advertised.format_of) if is_live else ""
            if reason:  # whoever wants events of a type there has one class for it, or takes all versions
                apart.append(NotMatched(channel.name, peer.link.text, True, fmt.name, reason))
                continue
            alternatives = [
                condition_for(want, cls, peer.advertised.format_of, peer.link.name) for want in wants
            ]
            if alternatives:
                found[cls] = alternatives[0] if len(alternatives) == 1 else AnyCondition(tuple(alternatives))
        return found


def _relayed_by(carrier: Carrier | None) -> m.ChannelState | None:
    return None if carrier is None else carrier.relayed


def _sends(channel: Channel[Any]) -> bool:
    """Whether others get a channel's events from this station: of a history, its keeper sends them."""
    return channel.store is None or channel.store.kept_here


def _alike(channel: Channel[Any], there: m.ChannelState) -> bool:
    """Whether a channel can be had by way of a station that has it like that."""
    formats = {info_of(cls).format.id for cls in channel.types}
    return (
        channel.settling is not None
        and not there.acks
        and channel.qos.durability == there.durability == "volatile"
        and channel.qos.reliability == there.reliability
        and formats <= set(there.formats)
    )
