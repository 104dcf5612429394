"""What links may do to a channel: open gateways, push events of other stations, count remote receivers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from heliograph.channel.history.feed import ring_all
from heliograph.channel.publish.acks import passing_from_elsewhere
from heliograph.channel.publish.first_arrivals import FirstArrivals
from heliograph.channel.publish.remote_supplier import RemotePersistentSupplier, RemoteSupplier
from heliograph.channel.receive.subscription import QueuedReceiver
from heliograph.channel.routing.forwarding import ELSEWHERE, Origin
from heliograph.channel.selection import Selection
from heliograph.model.event import Event, EventId
from heliograph.runtime.ports import seconds_until
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from heliograph.channel.channel import Channel
    from heliograph.channel.history.feed import JournalQueue
    from heliograph.channel.history.partitions import Journalled
    from heliograph.channel.history.store import HistoryPartition, OnDurable
    from heliograph.channel.members_only import Admission
    from heliograph.channel.publish.worker_acks import Supervisor
    from heliograph.channel.queueing.history_merge import Floors, LateJoin
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.channel.registry import Registry
    from heliograph.channel.routing.forwarding import Relay
    from heliograph.errors import NotMatched, NotPossible
    from heliograph.model.event import Header

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)


class Reentrant(Protocol):
    """A queue into which events come back."""

    def put_back(self, choose: Callable[[set[EventId]], list[Item]]) -> int: ...


class LinkPort(Generic[T]):
    """Reached as `channel.neighbours`."""

    def __init__(
        self,
        channel: Channel[T],
        members: Registry[T],
        journal: Journalled | None,
        forget_dead: Callable[[frozenset[str]], frozenset[str]],
    ) -> None:
        self._channel = channel
        self._forget_dead = forget_dead
        self._members = members
        self._journal = journal
        self._on_consumers: Callable[[], object] = lambda: None
        self.first_arrivals = FirstArrivals(channel.ports, channel.name)
        """Which events of other domains were here before."""
        self._said_apart: set[str] = set()
        self._said_unreadable: set[bytes] = set()

    def intake(
        self,
        name: str,
        on_acked: Callable[[EventId], object] = lambda _: None,
        supervisor: Supervisor | None = None,
        origin: Origin = ELSEWHERE,
    ) -> RemoteSupplier | RemotePersistentSupplier:
        """A way in for events that were pushed elsewhere.

        Where receivers acknowledge, `on_acked` is told of each event that all of them have; a supervisor of
        each that they have come to an end with.
        """
        monitor = self._channel.monitor
        if self._journal is not None:
            return RemotePersistentSupplier(self._journal.feed, monitor, on_acked)
        entering = None if monitor is None else passing_from_elsewhere(monitor, on_acked)
        settling = None if supervisor is None else self._channel.settling
        if settling is not None and supervisor is not None:
            settling.supervisor = supervisor
        with self._members.lock:
            intake = RemoteSupplier(self._channel, name, entering, settling)
            intake.origin = origin
            self._members.check_open()
            self._members.suppliers.append(intake)
        with self._members.still():
            self._members.rebuild()
        return intake

    def inlet(self, name: str, origin: Origin) -> RemoteSupplier:
        """A way in for events that this station makes of those of another channel.

        Of what was pushed here, they go to all peers; of what came from elsewhere, to receivers here.
        """
        with self._members.lock:
            inlet = RemoteSupplier(self._channel, name)
            inlet.origin, inlet.names_itself = origin, False
            self._members.check_open()
            self._members.suppliers.append(inlet)
        with self._members.still():
            self._members.rebuild()
        return inlet

    def count_derived(self, derived: Channel[Any] | None, name: str) -> None:
        """Have the receivers of a derived channel count among those of this one; None: no more."""
        with self._members.lock:
            if derived is None:
                self._members.derived.pop(name, None)
            else:
                self._members.derived[name] = derived.neighbours.count_receivers
        if derived is not None:
            derived.neighbours.on_consumers(self.wake)

    def count_receivers(self) -> int:
        """Receivers here and in linked stations, as of about now: without the lock."""
        return self._members.consumers()

    def on_consumers(self, told: Callable[[], object]) -> None:
        """Have this called, without any lock of the channel, when other stations have other receivers."""
        self._on_consumers = told

    def wake(self) -> None:
        """Have those look again who wait for receivers: a derived channel has others by now."""
        with self._members.lock:
            self._members.changed.notify_all()

    def join_tap(self, tap: QueuedReceiver, is_asked: Callable[[], bool]) -> None:
        """Add a receiver that derives what stations bring that do not, while that is asked for here."""
        with self._members.lock:
            self._members.forwarding.tap(tap.name, is_asked)
        self.join_gateway(tap)

    def asked_taps(self) -> tuple[Receiver, ...]:
        """Those that derive for stations that do not, of what a program of this station has asked for."""
        with self._members.lock:
            names = self._members.forwarding.asked_taps()
            return tuple(gateway for name, gateway in self._members.gateways.items() if name in names)

    def tap(self, told: OnDurable) -> None:
        """Tell this what becomes durable of what this station keeps, after all receivers."""
        assert self._journal is not None
        with self._members.still():
            self._journal.feed.taps.append(told)

    def untap(self, told: OnDurable) -> None:
        """Tell it no more."""
        assert self._journal is not None
        with self._members.still():
            if told in self._journal.feed.taps:
                self._journal.feed.taps.remove(told)

    def join_gateway(self, gateway: QueuedReceiver) -> None:
        """Add a receiver that stands for those of another station."""
        self._members.gateways[gateway.name] = gateway
        self._channel.join(gateway, "now")

    def change_gateway(
        self,
        gateway: QueuedReceiver,
        conditions: Mapping[type[Event], Any],
        peek: Callable[[], list[Item]] = list,
    ) -> list[Item]:
        """From one event on, what the other station's receivers want is this; what `peek` sees before it."""
        with self._members.still():
            waiting = peek()
            self._members.change({gateway: Selection(dict(conditions))})
        return waiting

    def hand_over(
        self, change: Callable[[], QueuedReceiver | None], gateway: QueuedReceiver | None = None
    ) -> None:
        """Do this while no push is half done.

        From then on a further gateway gets events, if there is one, and the one that is returned gets none.
        """
        if gateway is not None:
            self._members.gateways[gateway.name] = gateway
        with self._members.still():
            if gateway is not None:
                self._members.join(gateway, from_history=False)
                gateway.queue.joined()
            left = change()
            if left is not None:
                self._channel.drop_while_still(left, "closed")
        if gateway is not None:
            gateway.queue.start()

    def relay(self, gateway: Relay, worker: object | None) -> None:
        """Have a gateway get what other stations push, too, but not what comes from that worker.

        Those must not send it there themselves. None: it gets that no longer.
        """
        with self._members.still():
            joined: object = self._members.gateways.get(gateway.name)
            if worker is None:
                self._members.forwarding.forget(gateway.name)
            elif joined is gateway:
                self._members.forwarding.relay(gateway, worker)
            self._members.rebuild()

    def relays(self, apart_from: object | None = None) -> tuple[Relay, ...]:
        """The gateways that get it, but for those of one worker."""
        with self._members.lock:
            return self._members.forwarding.relays(apart_from)

    def put_back(self, queue: Reentrant, choose: Callable[[set[EventId]], list[Item]]) -> int:
        """Have what is chosen wait again before all others of a queue, counted anew; how many those are."""
        with self._members.still():
            again = queue.put_back(choose)
            self._channel.count_matched(again)
        return again

    @property
    def own_admission(self) -> Admission | None:
        """Who may push and consume, as the manager of this station says."""
        return self._members.admission_by("")

    def local_receivers(self) -> tuple[Receiver, ...]:
        """All but the gateways."""
        with self._members.lock:
            return tuple(
                r for name, r in self._members.receivers.items() if name not in self._members.gateways
            )

    def suppliers(self) -> list[tuple[str, int, bool]]:
        """Of each supplier its name, how many events it has pushed, and whether those came over a link."""
        remote = (RemoteSupplier, RemotePersistentSupplier)
        with self._members.lock:
            return [(one.name, one.pushed, isinstance(one, remote)) for one in self._members.suppliers]

    def remote_consumers(self) -> int:
        """How many receivers linked stations have."""
        with self._members.lock:
            return sum(self._members.remote_consumers.values())

    def wait_matched(self, consumers: int, timeout: float | None) -> bool:
        """See `Channel.wait_matched`. Whoever has died is not counted, though its link may still stand."""
        check_timeout(self._channel.name, timeout)
        clock, members = self._channel.ports.clock, self._members
        deadline = None if timeout is None else clock.monotonic_ns() + round(timeout * 1e9)
        # Another thread may be about to let go of a dead station, so what that has is left out here as well.
        dead: set[str] = set()
        while True:
            left = None if deadline is None else seconds_until(clock, deadline)
            with members.lock:
                if not members.changed.wait_for(lambda: members.consumers(dead) >= consumers, left):
                    return False
                linked = frozenset(members.remote_consumers)
            dead.update(self._forget_dead(linked))
            with members.lock:
                if members.consumers(dead) >= consumers:
                    return True

    def set_consumers(self, station: str, consumers: int, groups: tuple[str, ...] = ()) -> None:
        """How many receivers a linked station has of this channel, and in which groups of its own."""
        with self._members.lock:
            self._members.remote_consumers[station] = consumers
            self._members.remote_groups[station] = groups
            self._members.changed.notify_all()
        self._on_consumers()
        for group in set(groups).intersection(self.groups()) - self._said_apart:
            self._said_apart.add(group)
            log.warning(
                "%s: group %r has members in station %s too. On a channel that is not persistent those of "
                "each station are a group by themselves, and each gets every event; for one group, open the "
                "channel with durability='persistent'",
                self._channel.name,
                group,
                station,
            )

    def lower_consumers(self, station: str, consumers: int, groups: tuple[str, ...] = ()) -> None:
        """As `set_consumers`, if that makes them fewer."""
        with self._members.lock:
            is_lower = consumers < self._members.remote_consumers.get(station, 0)
        if is_lower:
            self.set_consumers(station, consumers, groups)

    def set_unmatched(self, station: str, why: Sequence[NotMatched]) -> None:
        """What does not go to a linked station or come from it; empty when all does, or it has left."""
        with self._members.lock:
            if why:
                self._members.unmatched[station] = tuple(why)
            else:
                self._members.unmatched.pop(station, None)

    def unmatched(self, station: str) -> tuple[NotMatched, ...]:
        """What does not go to a linked station or come from it, and why."""
        with self._members.lock:
            return self._members.unmatched.get(station, ())

    def unreadable(self, format_id: bytes, header: Header | None, error: Exception) -> None:
        """An event of another station is none of this station's class: told once for each format."""
        with self._members.lock:
            is_new = format_id not in self._said_unreadable
            self._said_unreadable.add(format_id)
        if is_new:
            self._channel.report(f"channel {self._channel.name}", header, error)

    def groups(self) -> tuple[str, ...]:
        """Groups of this station that share their stream with no other."""
        if self._journal is not None:
            return ()
        return tuple(sorted(self._members.groups() | self._channel.asking.groups()))

    def kept(
        self, conditions: Mapping[type[Event], Any], to_come: Callable[[], Collection[EventId]] = tuple
    ) -> tuple[list[Item], dict[tuple[str, int], int]]:
        """What a late joiner elsewhere gets, and how far each supplier here is at that instant.

        What is still to come to it was pushed before, and is sent after: none of that is left out there.
        """
        with self._members.still():
            ahead = to_come()
            items = [item for item in self._members.history.matching(conditions) if item[1].id not in ahead]
            floors = {(s.name, s.epoch): s.pushed for s in self._members.suppliers if s.origin.is_here}
        for supplier, epoch, sequence in ahead:
            floors[supplier, epoch] = min(floors.get((supplier, epoch), sequence), sequence - 1)
        return items, floors

    def late_joiners(self) -> dict[LateJoin, Mapping[type[Event], Any]]:
        """The queues of this station that asked for what was kept, and what they want of it."""
        with self._members.lock:
            return {
                r.queue.late: r.selection.conditions
                for r in self._members.receivers.values()
                if isinstance(r, QueuedReceiver) and r.queue.late is not None and r.queue.late.wants_history
            }

    def release(self, late: LateJoin, kept: Sequence[Item], floors: Floors) -> None:
        """Give a queue what another station had kept for it."""
        with self._members.still():
            self._channel.count_matched(len(kept))
            late.release(kept, floors)

    def conflict(self, error: NotPossible) -> None:
        """Another station keeps this channel otherwise: whoever is responsible is told, and who pushes.

        What is pushed into a channel that keeps nothing would be missing in that history. Receivers stay:
        what others push and keep still comes.
        """
        self._channel.report_conflict(error)
        if self._journal is not None:
            return  # what is pushed here is kept here
        with self._members.still():
            self._members.refuse(error)

    def partitions_within_reach(self) -> set[str]:
        """Those whose keepers are there, this station's among them."""
        assert self._journal is not None
        return {partition.partition for partition in self._journal.hosts()}

    def extents(self) -> dict[str, tuple[int, int]]:
        """Of each partition within reach, the first offset that is kept and the one behind the last."""
        assert self._journal is not None
        return {one.partition: (one.earliest, one.watermark) for one in self._journal.hosts()}

    def partition_came(self, partition: HistoryPartition, watermark: int) -> None:
        """A station that keeps a part of the history is there, or there again: receivers read on in it."""
        assert self._journal is not None
        rings: list[JournalQueue] = []
        with self._members.still():
            if self._journal.feed.meet(partition, watermark, rings):
                self._members.rebuild()
        ring_all(rings)
