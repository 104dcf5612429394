"""`channel.reconfigure(...)`: another dispatch order or other threads while events flow.

    tracks.reconfigure(dispatch="aged", threads=hg.Threads("pool", workers=4))

1. The new quality of service is made and checked, for the channel and for each receiver, and the pools of
   workers that it needs are opened. What cannot be is refused here: nothing has been changed.
2. All suppliers are held still: no push is half done.
3. What waits in each queue leaves the old lines and enters the new ones, in order, and each subscription is
   given to its new workers. A batch that a worker has in hand is delivered by it to its end; nobody else
   takes from that queue meanwhile.
4. The suppliers go on: what they push enters the new lines, behind what waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from heliograph.channel.receive.subscription import QueuedReceiver, Subscription
from heliograph.channel.selection import check_order
from heliograph.errors import NotPossible
from heliograph.qos.policies import QoS
from heliograph.runtime.option_names import insist_on_known

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel
    from heliograph.channel.dispatch.station_pools import Pool
    from heliograph.channel.receive.queue_factory import QueueFactory
    from heliograph.channel.registry import Registry
    from heliograph.qos.dispatch_order import Order, OrderName
    from heliograph.qos.threads import Threads


class Arrangement(TypedDict, total=False):
    """What can change while events flow, as in `QoS`."""

    dispatch: OrderName | Order
    latency: float | None
    threads: Threads


def reconfigure(
    channel: Channel[Any], members: Registry[Any], queues: QueueFactory, wanted: Arrangement
) -> None:
    """See the module."""
    insist_on_known("reconfigure", wanted, tuple(Arrangement.__annotations__))
    qos = _changed(channel, wanted)
    channel.pools.check(qos.dispatch, qos.threads)
    with members.still():
        members.check_open()
        receivers = [
            receiver
            for receiver in members.receivers.values()
            if isinstance(receiver, QueuedReceiver) and receiver.name not in members.gateways
        ]
        for receiver in receivers:
            asked = receiver.selection
            check_order(
                receiver.name, qos, asked.dispatch, sub_priority=asked.sub_priority, latency=asked.latency
            )
        called = [receiver for receiver in receivers if isinstance(receiver, Subscription)]
        pools = [_pool(channel, qos, receiver) for receiver in called]
        channel.qos = qos
        queues.use(qos, receivers)
        for receiver, pool in zip(called, pools, strict=True):
            receiver.use(pool)


def _changed(channel: Channel[Any], wanted: Arrangement) -> QoS:
    before = channel.qos
    said: dict[str, Any] = dict(wanted)
    if not said or said.keys() - Arrangement.__annotations__:
        raise NotPossible(channel.name, "reconfigure() changes dispatch=, latency= or threads=; name one")
    if "dispatch" in said:
        said.setdefault("latency", None)
    fields = {field: getattr(before, field) for field in before.__struct_fields__}
    qos = QoS(**{**fields, **said})
    if (qos.threads.kind == "inline") != (before.threads.kind == "inline"):
        raise NotPossible(channel.name, "who is called inside push is decided when it subscribes: inline=")
    return qos


def _pool(channel: Channel[Any], qos: QoS, receiver: QueuedReceiver) -> Pool:
    asked = receiver.selection.dispatch
    return channel.pools.of(qos.dispatch if asked is None else asked, qos.threads)
