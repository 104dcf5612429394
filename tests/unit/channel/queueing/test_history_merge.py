"""Lanes of those who join late: when they hold, and when they are at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.channel.queueing.history_merge import LateLane
from heliograph.model.event import Header
from heliograph.runtime.ports import SystemClock, ThreadTasks

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import Lane


class Track(hg.Event):
    id: int


def late_lane(rung: list[Lane]) -> LateLane:
    return LateLane(
        "late",
        clock=SystemClock(),
        tasks=ThreadTasks(),
        limit=10,
        policy="block",
        priority=None,
        ranking=None,
        on_ready=rung.append,
    )


def test_a_lane_has_ended_when_all_stations_that_were_asked_have_answered() -> None:
    rung: list[Lane] = []
    lane = late_lane(rung)
    kept = (Track(7), Header("air", "Track", "radar", 1, 1, 0, hg.format_of(Track).id), 0)
    assert lane.hold(1)
    assert lane.hold(2)
    lane.release([kept], {})
    assert (lane.ended, lane.take(), rung) == (False, [], [])
    lane.release([], {})
    assert (lane.ended, rung, lane.take(), lane.ended) == (False, [lane], [kept], True)


def test_who_waits_for_the_end_of_a_lane_hears_of_it_though_nothing_was_kept() -> None:
    rung: list[Lane] = []
    lane = late_lane(rung)
    assert lane.hold(1)
    lane.release([], {})
    assert (rung, lane.take(), lane.ended) == ([lane], [], True)
