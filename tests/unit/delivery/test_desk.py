"""The desk by itself: a lane with events in it, and a cursor that does as a test says."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.channel.handing import Terms
from heliograph.channel.lane import Lane
from heliograph.delivery.desk import Desk
from heliograph.errors import QueryFailed
from heliograph.event import Header
from heliograph.ports import Ports, SystemClock, SystemRandom, ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.channel.handing import Seat

PORTS = Ports(SystemClock(), ThreadTasks(), SystemRandom(), None)


class Track(hg.Event, name="air.track"):
    id: int


class Memory:
    """A cursor that remembers, and refuses to while `away`."""

    def __init__(self, position: int | None = None, acks: Iterable[int] = (), reach: int = 0) -> None:
        self.position = position
        self.acks = frozenset(acks)
        self.reach = reach
        self.epoch = 1
        self.away = False

    def commit(self, position: int, acks: Iterable[int] = (), reach: int = 0) -> None:
        if self.away:
            raise QueryFailed("the keeper", "cannot be reached")
        self.position, self.acks, self.reach = position, frozenset(acks), reach

    def close(self) -> None: ...


def lane_of(count: int) -> Lane:
    lane = Lane(
        "lane",
        clock=PORTS.clock,
        tasks=PORTS.tasks,
        limit=1 << 30,
        policy="drop_newest",
        on_ready=lambda _: None,
    )
    for at in range(count):
        lane.put((Track(at), Header("c", "air.track", "s", 1, at + 1, 0, b"x" * 12, 3, (), 0, 0, "p", at), 0))
    return lane


def desk_of(count: int, terms: Terms, cursor: Memory | None = None) -> Desk:
    return Desk(PORTS, "desk", lane_of(count), terms, cursor=cursor, bury=lambda _item, _attempts: None)


def numbers(seat: Seat, most: int = 1 << 30) -> list[int]:
    """What a member is handed until there is nothing more for it, without settling any of it."""
    return [one.number for one in islice(iter(seat.take, None), most)]


def test_what_could_not_be_kept_is_handed_out_once_it_can_be() -> None:
    cursor = Memory()
    seat = desk_of(3, Terms(ack="manual", max_deliveries=2), cursor).sit("a", lambda: None)
    cursor.away = True
    for _ in range(5):
        with pytest.raises(QueryFailed):
            seat.take()
    assert cursor.reach == 0
    cursor.away = False
    first = seat.take()
    assert first is not None
    assert (first.number, first.attempt, first.header.redelivered) == (0, 1, False)
    assert cursor.reach == 3, "kept before the first of them is handed out"
    assert numbers(seat) == [1, 2]
