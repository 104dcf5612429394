"""Dead letters: events that could not be delivered go into a channel of their own, or are reported.

grave = open_grave(channel, services, "tracks.dead")        None when no name is given
give_up(grave, services, "billing", item, attempts=5)       pushed there, or `GivenUp` to `on_error`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.errors import GivenUp
from heliograph.model.event import OWN_HEADERS
from heliograph.qos.policies import QoS

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.receive.host import DeadLetterChannel, ReceiverHost, ReceiverServices


def open_dead_letter_channel(
    channel: ReceiverHost, services: ReceiverServices, name: str | None
) -> DeadLetterChannel | None:
    """The channel for what could not be delivered in another one, persistent if that one is."""
    if name is None:
        return None
    qos = QoS(durability="persistent") if channel.store is not None else QoS()
    grave = services.open_channel(name, channel.types, qos)
    grave.holds_dead_letters = True
    return grave


def give_up(  # noqa: PLR0917 - what it is about comes first, for `partial`
    grave: DeadLetterChannel | None,
    services: ReceiverServices,
    receiver: str,
    item: Item,
    attempts: int,
    reason: str = "",
) -> None:
    """Nobody tries any more to deliver an event."""
    if grave is None:
        services.on_error(receiver, item[1], GivenUp(receiver, str(item[1].id), attempts))
    else:
        _bury(grave, receiver, item, attempts, reason)


def _bury(grave: DeadLetterChannel, consumer: str, item: Item, attempts: int, reason: str) -> None:
    """Push a dead event to the dead-letter channel, with where it comes from in its headers."""
    event, header, _ = item
    if type(event) not in grave.types:
        from heliograph.codec.dynamic.classes import in_class_of  # noqa: PLC0415 - most are of the keeper's own class

        event = in_class_of(event, grave.types)
    where = {
        "dead.channel": header.channel,
        "dead.consumer": consumer,
        "dead.id": str(header.id),
        "dead.attempts": str(attempts),
        **({"dead.reason": reason} if reason else {}),
    }
    grave.push(
        event,
        priority=header.priority,
        source_ts=header.source_ts,
        correlation_id=header.correlation_id,
        headers={**{n: v for n, v in (header.headers or {}).items() if n not in OWN_HEADERS}, **where},
    )
