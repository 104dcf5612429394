"""Chooses the queue of each receiver: its storage, its dispatch order, its overflow policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.channel.queueing.coalesce import LatestByKey
from heliograph.channel.queueing.history_merge import LateJoin
from heliograph.channel.queueing.queue import FIFO, EventQueue
from heliograph.channel.queueing.time_based_filter import Separation
from heliograph.qos.dispatch_order import Ranking, as_ns, order_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.history.partitions import Journalled
    from heliograph.channel.queueing.stage import Stage
    from heliograph.channel.receive.subscription import QueuedReceiver
    from heliograph.channel.selection import Selection
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Clock, Ports
    from heliograph.runtime.timers import Timers


class QueueFactory:
    """Makes the queues of one channel."""

    def __init__(self, qos: QoS, ports: Ports, timers: Timers, journal: Journalled | None) -> None:
        self._qos = qos
        self._ports = ports
        self._timers = timers
        self._journal = journal

    def new(
        self,
        name: str,
        selection: Selection,
        on_ready: Callable[[EventQueue], None],
        kind: type[EventQueue],
        *,
        late: bool,
    ) -> EventQueue:
        """A queue for a receiver, or of another kind for a gateway.

        Args:
            name: of the receiver.
            selection: what it asked for.
            on_ready: called when there is something to take.
            kind: `EventQueue`, or what a gateway needs.
            late: whether other stations may have kept events for it.
        """
        late = late and kind is EventQueue
        policy: Any = selection.overflow or self._qos.overflow_policy
        # A gateway goes by priority, whatever the receivers behind it go by.
        ranking = ranking_of(selection, self._qos, self._ports.clock) if kind is EventQueue else None
        if self._journal is not None:
            return self._journal.queue(name, selection, on_ready, ranking)
        coalesces = policy == "coalesce"
        stages: list[Stage] = []
        if selection.separation is not None:
            stages.append(Separation(selection.separation, self._timers, self._ports.clock))
        if stages or coalesces:
            kind = EventQueue  # a gateway that has nothing to keep goes by the queue of a receiver
        return kind(
            name,
            clock=self._ports.clock,
            tasks=self._ports.tasks,
            limit=selection.queue or self._qos.queue,
            byte_limit=selection.queue_bytes or self._qos.queue_bytes,
            types=selection.conditions,
            policy=policy,
            priority=selection.priority,
            ranking=ranking,
            storage=LatestByKey() if coalesces else FIFO,
            stages=stages,
            late=LateJoin() if late else None,
            on_ready=on_ready,
        )

    def use(self, qos: QoS, receivers: Iterable[QueuedReceiver]) -> None:
        """Have these receivers, and those to come, wait as another quality of service says. While still."""
        self._qos = qos
        for receiver in receivers:
            receiver.queue.use(ranking_of(receiver.selection, qos, self._ports.clock))


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
