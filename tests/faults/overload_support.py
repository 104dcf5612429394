"""What supplier and consumer of the overload test agree on."""

from __future__ import annotations

import heliograph as hg

DOMAIN = "overload"
QUEUE = 100


class Load(hg.Event, name="overload.load", key="sensor"):
    """One of ever so many."""

    number: int
    sensor: int
    is_last: bool = False
    body: bytes = bytes(200)


def qos_of(policy: str) -> hg.QoS:
    """A short queue with this policy; `journal` on a channel that is kept."""
    if policy == "journal":
        return hg.QoS(durability="persistent", ack="memory", queue=QUEUE)
    return hg.QoS(queue=QUEUE, queue_bytes=1 << 20, overflow=policy, max_blocking=60.0)  # type: ignore[arg-type]  # its name
