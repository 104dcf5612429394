"""Queues of those who join late: when they hold, and when they are at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.channel.queueing.history_merge import LateJoin
from heliograph.channel.queueing.queue import EventQueue
from heliograph.channel.queueing.time_based_filter import Separation
from heliograph.model.event import Header
from heliograph.runtime.ports import SystemClock, ThreadTasks

if TYPE_CHECKING:
    from heliograph.channel.queueing.stage import Stage
    from heliograph.testing import Rig


class Track(hg.Event):
    id: int


def late_join_queue(rung: list[EventQueue], *stages: Stage) -> tuple[EventQueue, LateJoin]:
    late = LateJoin()
    queue = EventQueue(
        "late",
        clock=SystemClock(),
        tasks=ThreadTasks(),
        limit=10,
        policy="block",
        priority=None,
        ranking=None,
        stages=stages,
        late=late,
        on_ready=rung.append,
    )
    return queue, late


def test_a_queue_has_ended_when_all_stations_that_were_asked_have_answered() -> None:
    rung: list[EventQueue] = []
    queue, late = late_join_queue(rung)
    kept = (Track(7), Header("air", "Track", "radar", 1, 1, 0, hg.format_of(Track).id), 0)
    assert late.hold(1)
    assert late.hold(2)
    late.release([kept], {})
    assert (queue.ended, queue.take(), rung) == (False, [], [])
    late.release([], {})
    assert (queue.ended, rung, queue.take(), queue.ended) == (False, [queue], [kept], True)


def test_who_waits_for_the_end_of_a_queue_hears_of_it_though_nothing_was_kept() -> None:
    rung: list[EventQueue] = []
    queue, late = late_join_queue(rung)
    assert late.hold(1)
    late.release([], {})
    assert (rung, queue.take(), queue.ended) == ([queue], [], True)


def test_what_came_live_while_history_was_fetched_is_not_held_back_by_a_separation(helio: Rig) -> None:
    rung: list[EventQueue] = []
    separation = Separation(1.0, helio.station.timers, helio.clock)
    queue, late = late_join_queue(rung, separation)
    live = (Track(7), Header("air", "Track", "radar", 1, 2, 0, hg.format_of(Track).id), 0)
    assert late.hold(1)
    queue.put(live)
    late.release([], {("radar", 1): 1})
    assert (queue.take(), queue.counts().pending) == ([live], 1)
