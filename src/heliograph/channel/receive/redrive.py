"""Re-drive: dead letters go back into the channels that they came from.

    station.channel("tracks.dead", Track).redrive()

A letter is acknowledged when its event is in its channel again. The event is pushed under an id made of the
letter's, so that one whose acknowledgement was cut off by a crash is not pushed twice, as long as ids of
pushes are remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import NotPossible
from heliograph.model.event import OWN_HEADERS

if TYPE_CHECKING:
    from heliograph.channel.receive.delivery import Delivery
    from heliograph.channel.receive.host import DeadLetterChannel, ReceiverServices

REDRIVER: Final = "helio.redrive"
"""The durable consumer of a dead-letter channel that re-drives."""
PREFIX: Final = "dead."


def redrive(
    channel: DeadLetterChannel,
    services: ReceiverServices,
    *,
    where: str | None,
    most: int | None,
    timeout: float,
) -> dict[str, int]:
    """See `Channel.redrive`."""
    if channel.store is None:
        raise NotPossible(channel.name, "keeps nothing to re-drive: dead letters of persistent channels do")
    pushed: dict[str, int] = {}
    with channel.consumer(name=REDRIVER, start="earliest", ack="manual") as consumer:
        wanted = None if where is None else channel.select(where=where).conditions
        for delivery in consumer.deliveries(timeout=timeout):
            condition = None if wanted is None else wanted.get(type(delivery.event))
            if wanted is None or (condition is not None and condition.holds(delivery.event, delivery.header)):
                target = _send(channel, services, delivery)
                pushed[target] = pushed.get(target, 0) + 1
            delivery.ack()
            if most is not None and sum(pushed.values()) >= most:
                break
    return pushed


def _send(channel: DeadLetterChannel, services: ReceiverServices, delivery: Delivery[Any]) -> str:
    header = delivery.header
    headers = header.headers or {}
    name = headers.get(f"{PREFIX}channel")
    if name is None:
        raise NotPossible(
            channel.name, f"event {header.id} is no dead letter: it has no header '{PREFIX}channel'"
        )
    target = services.open_channel(name, channel.types, channel.qos)
    times = int(headers.get(f"{PREFIX}redriven", "0")) + 1
    kept = {
        key: value for key, value in headers.items() if not key.startswith(PREFIX) and key not in OWN_HEADERS
    }
    target.push(
        delivery.event,
        id=f"redrive:{header.id}",
        priority=header.priority,
        source_ts=header.source_ts,
        correlation_id=header.correlation_id,
        headers={**kept, "redriven": str(times)},
    )
    return name
