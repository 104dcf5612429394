"""What a lane of a broadcast counts adds up, though pushing threads count without its lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.links.broadcast.queue import BroadcastQueue
from heliograph.model.event import Header
from heliograph.runtime.ports import SystemClock, ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.queueing.queue import Item


class Reading(hg.Event, name="air.reading"):
    value: int


class Slow(int):
    """A number to which nothing is added before something else has happened, once."""

    meanwhile: Callable[[], object] | None = None

    def __add__(self, more: int) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return int(self) + more


def lane(delivered: int = 0, direct: int = 0) -> BroadcastQueue:
    made = BroadcastQueue(
        "test", clock=SystemClock(), tasks=ThreadTasks(), limit=10, policy="block", on_ready=lambda _: None
    )

    def send_now(_: Item) -> bool:
        made.direct.done += 1
        return True

    made.send_now = send_now
    made._delivered = delivered
    made.direct.done = direct
    return made


def push(to: BroadcastQueue) -> None:
    to.put((Reading(1), Header("c", "air.reading", "s", 1, 1, 0, b"", 1), 0))


def test_what_a_station_did_not_get_is_counted_though_a_push_is_being_counted() -> None:
    direct = Slow(5)
    air = lane(direct=direct)
    direct.meanwhile = lambda: air.count_overtaken(2)
    push(air)
    assert (air.counts().delivered, air.counts().dropped) == (4, {"overtaken": 2})


def test_a_push_is_counted_though_a_task_finds_that_nothing_waits() -> None:
    delivered = Slow(5)
    air = lane(delivered)
    delivered.meanwhile = lambda: push(air)
    assert air.drain(10) == (0, [])
    if delivered.meanwhile is not None:
        push(air)  # nothing was counted for nothing, so there was no instant to come between
    assert air.counts().delivered == 6
