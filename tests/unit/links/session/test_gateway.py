"""What waits at a gateway is taken by priority, and what has expired keeps nothing else waiting."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.links.session.gateway import GatewayQueue
from heliograph.model.event import Header
from heliograph.runtime.ports import SystemClock, ThreadTasks

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import Item

LIMIT = 20.0


class Reading(hg.Event, name="reading"):
    value: int


def item(value: int, *, priority: int, expired: bool = False) -> Item:
    return Reading(value), Header("c", "reading", "s", 1, value, 0, b"", priority), int(expired)


def lane(*items: Item) -> GatewayQueue:
    """One whose link is never quiet, and which is full."""
    made = GatewayQueue(
        "test",
        clock=SystemClock(),
        tasks=ThreadTasks(),
        limit=len(items),
        policy="block",
        on_ready=lambda _: None,
    )
    made.expires = True
    made.send_now = lambda _: False
    for one in items:
        made.put(one)
    return made


def test_a_drain_gives_nothing_only_when_nothing_waits() -> None:
    queue = lane(item(1, priority=5, expired=True), item(2, priority=1), item(3, priority=1))
    priority, items = queue.drain(10)
    assert (priority, [event for event, _, _ in items]) == (1, [Reading(2), Reading(3)])
    assert (queue.counts().expired, queue.waiting) == (1, 0)


def test_room_that_expired_events_leave_is_told() -> None:
    queue = lane(item(1, priority=5, expired=True))
    found: list[bool] = []
    waits = threading.Thread(target=lambda: found.append(queue.wait_for_room(2 * LIMIT)))
    waits.start()
    while not queue._waiters:
        waits.join(0.001)
    assert queue.drain(10) == (0, [])
    waits.join(LIMIT)
    assert found == [True]
