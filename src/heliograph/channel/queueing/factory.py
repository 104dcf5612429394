"""Chooses the queue of each receiver: its storage, its dispatch order, its overflow policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.channel.queueing.coalesce import CoalescingLane
from heliograph.channel.queueing.history_merge import LateCoalescingLane, LateLane
from heliograph.channel.queueing.queue import Lane
from heliograph.channel.queueing.time_based_filter import LateSeparatingLane, SeparatingLane
from heliograph.qos.dispatch_order import Ranking, as_ns, order_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.history.partitions import Journalled
    from heliograph.channel.receive.options import Selection
    from heliograph.channel.receive.subscription import QueuedReceiver
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Clock, Ports
    from heliograph.runtime.timers import Timers


class QueueFactory:
    """Makes the lanes of one channel."""

    def __init__(self, qos: QoS, ports: Ports, timers: Timers, journal: Journalled | None) -> None:
        self._qos = qos
        self._ports = ports
        self._timers = timers
        self._journal = journal

    def new(
        self,
        name: str,
        selection: Selection,
        on_ready: Callable[[Lane], None],
        kind: type[Lane],
        *,
        late: bool,
    ) -> Lane:
        """A lane for a receiver, or of another kind for a gateway.

        Args:
            name: of the receiver.
            selection: what it asked for.
            on_ready: called when there is something to take.
            kind: `Lane`, or what a gateway needs.
            late: whether other stations may have kept events for it.
        """
        policy: Any = selection.overflow or self._qos.overflow_policy
        # A gateway goes by priority, whatever the receivers behind it go by.
        ranking = ranking_of(selection, self._qos, self._ports.clock) if kind is Lane else None
        if self._journal is not None:
            return self._journal.lane(name, selection, on_ready, ranking)
        late = late and kind is Lane
        own: dict[str, Any] = {}
        if selection.separation is not None:
            kind = LateSeparatingLane if late else SeparatingLane
            own = {"separation": selection.separation, "timers": self._timers}
        elif policy == "coalesce":
            kind = LateCoalescingLane if late else CoalescingLane
        elif late:
            kind = LateLane
        return kind(
            name,
            clock=self._ports.clock,
            tasks=self._ports.tasks,
            limit=selection.queue or self._qos.queue,
            policy=policy,
            priority=selection.priority,
            ranking=ranking,
            on_ready=on_ready,
            **own,
        )

    def use(self, qos: QoS, receivers: Iterable[QueuedReceiver]) -> None:
        """Have these receivers, and those to come, wait as another quality of service says. While still."""
        self._qos = qos
        for receiver in receivers:
            receiver.lane.use(ranking_of(receiver.selection, qos, self._ports.clock))


def ranking_of(selection: Selection, qos: QoS, clock: Clock) -> Ranking | None:
    """How events wait for a receiver; None when it is by priority alone."""
    order = order_named(qos.dispatch if selection.dispatch is None else selection.dispatch)
    if order is None:
        return None
    return Ranking(
        order,
        clock.monotonic_ns,
        priority=selection.priority,
        sub_priority=selection.sub_priority,
        latency_ns=as_ns(selection.latency),
        default_latency_ns=as_ns(qos.latency),
    )
