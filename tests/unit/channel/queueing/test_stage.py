"""A queue made of parts: a policy is a stage, and stages and storages go with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.queueing.coalesce import LatestByKey, key_of
from heliograph.channel.queueing.history_merge import LateJoin
from heliograph.channel.queueing.queue import FIFO, EventQueue, Item
from heliograph.channel.queueing.stage import Stage
from heliograph.channel.queueing.time_based_filter import Separation
from heliograph.model.event import Header
from heliograph.runtime.ports import ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Hashable

    from heliograph.channel.queueing.storage import Storage
    from heliograph.testing import Rig


class Reading(hg.Event, key="sensor"):
    sensor: int
    value: int


class Strongest(Stage):
    """Of each key only what comes from its strongest supplier so far passes, as with exclusive ownership."""

    def __init__(self, strengths: dict[str, int]) -> None:
        super().__init__()
        self._strengths = strengths
        self._owners: dict[Hashable, int] = {}

    def admit(self, item: Item, *, beyond: bool) -> bool:
        key, strength = key_of(item), self._strengths[item[1].supplier]
        if strength < self._owners.get(key, 0):
            self.queue.drop_each((item,), "not the owner")
            return False
        self._owners[key] = strength
        return self.pass_on(item, beyond=beyond)


def item(sensor: int, value: int, supplier: str = "a") -> Item:
    return Reading(sensor, value), Header("c", "Reading", supplier, 1, value, 0, b"", 3, (sensor,)), 0


def queue_of(helio: Rig, *stages: Stage, storage: Storage = FIFO, **own: Any) -> EventQueue:
    options: dict[str, Any] = {"limit": 4, "policy": "block", **own}
    return EventQueue(
        "test",
        clock=helio.clock,
        tasks=ThreadTasks(),
        storage=storage,
        stages=stages,
        on_ready=lambda _: None,
        **options,
    )


def values(queue: EventQueue) -> list[int]:
    items = queue.take()
    queue.done = len(items)
    queue.settle()
    return [event.value for event, _, _ in items if isinstance(event, Reading)]


def put_in_each_way(queue: EventQueue, *items: Item) -> None:
    first, second, *more = items
    queue.put(first)
    queue.put_small(second)
    queue.put_many(more)


def test_a_stage_sees_what_is_put_in_any_way_and_what_it_drops_is_counted(helio: Rig) -> None:
    queue = queue_of(helio, Strongest({"a": 1, "b": 2}))
    put_in_each_way(queue, item(1, 1), item(1, 2, "b"), item(1, 3), item(2, 4))
    assert values(queue) == [1, 2, 4]
    assert queue.counts().dropped == {"not the owner": 1}
    queue.put_extra(item(1, 5))
    assert (values(queue), queue.counts().pending) == ([], 0)


def test_stages_are_passed_in_their_order_into_any_storage(helio: Rig) -> None:
    stages = Strongest({"a": 1, "b": 2}), Separation(1.0, helio.station.timers, helio.clock)
    queue = queue_of(helio, *stages, storage=LatestByKey(), policy="coalesce")
    put_in_each_way(queue, item(1, 1, "b"), item(1, 2), item(1, 3, "b"), item(2, 4))
    assert [values(queue), values(queue), values(queue)] == [[1], [4], []]
    assert queue.counts().pending == 1, "the later one of the first key is held back"
    helio.clock.advance(1.0)
    assert values(queue) == [3]
    counts = queue.counts()
    assert (counts.delivered, counts.dropped) == (3, {"not the owner": 1})


@pytest.mark.parametrize("storage", [FIFO, LatestByKey()])
def test_a_queue_with_a_late_join_goes_the_short_way_until_history_has_come(
    helio: Rig, storage: Storage
) -> None:
    late = LateJoin()
    queue = queue_of(helio, storage=storage, late=late)
    queue.put(item(1, 1))
    assert late.idle
    assert late.hold(7)
    assert values(queue) == []
    late.release([item(2, 1)], {("a", 1): 1})
    put_in_each_way(queue, item(3, 1), item(4, 2), item(5, 3))
    assert values(queue) == [1, 2, 3]
    assert queue.counts().dropped == {"kept": 2}
