"""The desk by itself: a queue with events in it, and a cursor that does as a test says."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import pytest

import heliograph as hg
from heliograph.channel.ack_protocol import AckOptions, Spot
from heliograph.channel.queueing.queue import BATCH, EventQueue
from heliograph.delivery.coordinator import Coordinator
from heliograph.delivery.in_flight_window import MAX_OUT
from heliograph.errors import CursorFenced, HeliographError, QueryFailed
from heliograph.model.event import Header
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom, ThreadTasks
from tests.e2e.link_support import wait_until
from tests.unit.journal.helpers import HandClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from heliograph.channel.ack_protocol import GroupMembership
    from heliograph.channel.queueing.queue import Item

PORTS = Ports(SystemClock(), ThreadTasks(), SystemRandom(), None)


class Track(hg.Event, name="air.track"):
    id: int


def number_of(desk: Coordinator, partition: str, offset: int) -> int:
    number = desk.number_of(Spot(partition, offset))
    assert number is not None
    return number


class Late:
    """What a keeper elsewhere was told, and may answer later."""

    failure: HeliographError | None = None
    is_kept = False

    def __init__(self) -> None:
        self._calls: list[Callable[[HeliographError | None], object]] = []

    def soon(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.is_kept

    def result(self) -> None:
        if not self.is_kept:
            raise self.failure or QueryFailed("the keeper", "does not answer")

    def then(self, call: Callable[[HeliographError | None], object]) -> None:
        self._calls.append(call)

    def end(self, failure: HeliographError | None = None) -> None:
        self.is_kept, self.failure = failure is None, failure
        for call in self._calls:
            call(failure)


class Elsewhere:
    """The cursors of two partitions: that of "p" is kept here, that of "q" by a keeper that is late."""

    def __init__(self) -> None:
        self.here = Memory()
        self.there = Memory()
        self.tellings: list[Late] = []
        self.closed = 0

    def of(self, partition: str) -> Any:
        return self.here if partition == "p" else self

    def names(self) -> tuple[str, ...]:
        return ("p", "q")

    def close(self) -> None:
        self.closed += 1

    def commit(self, position: int, *more: Any) -> Late:
        self.there.commit(position, *more)
        self.tellings.append(Late())
        return self.tellings[-1]

    def withdraw(self, position: int, acks: Iterable[int] = (), *more: Any) -> Late:
        self.there.acks = frozenset()
        return self.commit(position, acks, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.there, name)


class Memory:
    """The cursor of one partition that remembers, and refuses to while `away`."""

    def __init__(
        self,
        position: int | None = None,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> None:
        self.position = position
        self.acks = frozenset(acks)
        self.reach = reach
        self.attempts = dict(attempts or {})
        self.epoch = 1
        self.away = False

    def commit(
        self,
        position: int,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> None:
        if self.away:
            raise QueryFailed("the keeper", "cannot be reached")
        above = frozenset(number for number in self.acks.union(acks) if number >= position)
        self.position, self.acks, self.reach = position, above, reach
        self.attempts = dict(attempts or {})

    def withdraw(self, position: int, acks: Iterable[int] = (), *more: Any) -> None:
        self.acks = frozenset()
        self.commit(position, acks, *more)

    def of(self, partition: str) -> Memory:
        assert partition == "p"
        return self

    def names(self) -> tuple[str, ...]:
        return ("p",)

    def close(self) -> None: ...


def queue_of(count: int, key: tuple[str, ...] = ()) -> EventQueue:
    queue = EventQueue(
        "queue",
        clock=PORTS.clock,
        tasks=PORTS.tasks,
        limit=1 << 30,
        policy="drop_newest",
        on_ready=lambda _: None,
    )
    for at in range(count):
        header = Header("c", "air.track", "s", 1, at + 1, 0, b"x" * 12, 3, key, 0, 0, "p", at)
        queue.put((Track(at), header, 0))
    return queue


def two_partitions(each: int) -> EventQueue:
    """First what another station keeps."""
    queue = queue_of(0)
    for at in range(2 * each):
        partition = "q" if at < each else "p"
        header = Header("c", "air.track", "s", 1, at + 1, 0, b"x" * 12, 3, (), 0, 0, partition, at % each)
        queue.put((Track(at), header, 0))
    return queue


def buried(_item: Item, _attempts: int, _reason: str) -> None: ...


def desk_of(count: int, terms: AckOptions, cursor: Memory | None = None) -> Coordinator:
    return Coordinator(
        PORTS, "desk", queue_of(count), terms, cursors=cast("Any", cursor), add_dead_letter=buried
    )


def desk_elsewhere(each: int, terms: AckOptions, cursors: Elsewhere) -> Coordinator:
    return Coordinator(
        PORTS, "desk", two_partitions(each), terms, cursors=cast("Any", cursors), add_dead_letter=buried
    )


def numbers(seat: GroupMembership, most: int = 1 << 30) -> list[int]:
    """What a member is handed until there is nothing more for it, without settling any of it."""
    return [handed[0].number for handed in islice(iter(seat.take, []), most)]


def test_what_could_not_be_kept_is_handed_out_once_it_can_be() -> None:
    cursor = Memory()
    seat = desk_of(3, AckOptions(ack="manual", max_deliveries=2), cursor).sit("a", lambda: None)
    cursor.away = True
    for _ in range(5):
        with pytest.raises(QueryFailed):
            seat.take()
    assert cursor.reach == 0
    cursor.away = False
    (first,) = seat.take()
    assert (first.number, first.attempt, first.header.redelivered) == (0, 1, False)
    assert cursor.reach == 3, "kept before the first of them is handed out"
    assert numbers(seat) == [1, 2]


def ids(seat: GroupMembership) -> list[tuple[int, int]]:
    return [(one.event.id, one.attempt) for (one,) in iter(seat.take, [])]  # type: ignore[attr-defined]  # they are tracks


@pytest.mark.parametrize("terms", [AckOptions(ack="manual"), AckOptions(ack="before")])
def test_what_a_keeper_has_not_kept_yet_is_handed_out_later_and_the_rest_at_once(terms: AckOptions) -> None:
    cursors = Elsewhere()
    desk = desk_elsewhere(3, terms, cursors)
    seat = desk.sit("a", lambda: None)
    assert ids(seat) == [(3, 1), (4, 1), (5, 1)]
    assert ids(seat) == []
    got: list[tuple[int, int]] = []

    def keeper_answers() -> bool:
        for telling in [late for late in cursors.tellings if not late.is_kept]:
            telling.end()
        got.extend(ids(seat))
        return len(got) == 3

    assert wait_until(keeper_answers)
    assert got == [(0, 1), (1, 1), (2, 1)]
    if terms.ack == "before":
        assert len(cursors.tellings) >= 3, "each was settled there before it was handed out"
        assert cursors.there.position == 3


def test_a_desk_that_is_closed_says_what_a_keeper_has_not_kept() -> None:
    cursors = Elsewhere()
    desk = Coordinator(
        PORTS,
        "desk",
        two_partitions(1),
        AckOptions(ack="manual"),
        cursors=cast("Any", cursors),
        add_dead_letter=buried,
    )
    assert ids(desk.sit("a", lambda: None)) == [(1, 1)]
    with pytest.raises(QueryFailed):
        desk.close()
    assert cursors.closed == 1


def test_who_asks_is_told_that_another_has_the_name() -> None:
    cursors = Elsewhere()
    desk = Coordinator(
        PORTS,
        "desk",
        two_partitions(1),
        AckOptions(ack="manual"),
        cursors=cast("Any", cursors),
        add_dead_letter=buried,
    )
    seat = desk.sit("a", lambda: None)
    assert ids(seat) == [(1, 1)]
    cursors.tellings[-1].end(CursorFenced("desk", 1, 2))
    assert wait_until(lambda: desk.stats().ready)
    with pytest.raises(CursorFenced):
        seat.take()


def test_room_behind_a_slow_member_is_there_for_whoever_asks_and_all_are_rung() -> None:
    desk = desk_of(3 * MAX_OUT, AckOptions(ack="auto", lease=30.0))
    rung: list[str] = []
    slow, fast = desk.sit("slow", lambda: rung.append("slow")), desk.sit("fast", lambda: rung.append("fast"))
    (first,) = slow.take()
    while handed := fast.take():
        fast.settle(handed[0].number)
    rung.clear()
    slow.settle(first.number)
    assert "fast" in rung
    assert slow.take()
    assert fast.take()


def test_what_a_dead_event_held_back_is_announced() -> None:
    rung: list[str] = []
    clock = HandClock()
    terms = AckOptions(ack="manual", lease=1.0, max_deliveries=1, order="key")
    desk = Coordinator(
        replace(PORTS, clock=clock), "desk", queue_of(2, key=("north",)), terms, add_dead_letter=buried
    )
    one, two = desk.sit("one", lambda: rung.append("one")), desk.sit("two", lambda: rung.append("two"))
    assert [*numbers(one), *numbers(two)] == [0]
    clock.now += 2_000_000_000
    rung.clear()
    assert [*numbers(one), *numbers(two)] in ([], [1])
    assert set(rung) == {"one", "two"}


def test_dead_events_may_be_buried_by_several_who_ask_at_once() -> None:
    given_away: list[int] = []

    def add_dead_letter(item: Item, _attempts: int, _reason: str) -> None:
        given_away.append(item[1].offset or 0)
        other.take()

    desk = Coordinator(
        PORTS,
        "desk",
        queue_of(2),
        AckOptions(ack="manual", max_deliveries=1),
        add_dead_letter=add_dead_letter,
    )
    one, other = desk.sit("one", lambda: None), desk.sit("other", lambda: None)
    assert numbers(one) == [0, 1]
    one.leave()
    assert given_away == [0, 1]
    assert one.ended()


@pytest.mark.parametrize("acked", [MAX_OUT - 200, MAX_OUT - 1, MAX_OUT + 60])
def test_acknowledgements_of_an_earlier_life_count_in_the_window(acked: int) -> None:
    cursor = Memory(0, range(1, 1 + acked), reach=1 + acked)
    seat = desk_of(2 * MAX_OUT, AckOptions(ack="manual", max_in_flight=2 * MAX_OUT), cursor).sit(
        "a", lambda: None
    )
    handed = numbers(seat)
    assert handed[0] == 0
    for number in handed[1:]:
        seat.ack(number)
    assert numbers(seat) == []
    assert set(range(1, 1 + acked)) <= cursor.acks
    assert len(cursor.acks) <= MAX_OUT + BATCH
    seat.ack(0)
    assert len(numbers(seat)) > 1, "there is room again"


def test_only_what_was_handed_out_is_acknowledged_before() -> None:
    cursor = Memory()
    desk = desk_of(10, AckOptions(ack="before"), cursor)
    seat = desk.sit("a", lambda: None)
    assert numbers(seat, 2) == [0, 1]
    assert cursor.acks == {1}, "kept before it was handed out"
    cursor.away = True
    with pytest.raises(QueryFailed):
        seat.take()
    cursor.away = False
    assert numbers(seat, 1) == [2]
    desk.close()
    assert (cursor.position, cursor.acks) == (3, frozenset())


def test_a_member_that_left_while_it_was_about_to_ask_gets_nothing() -> None:
    desk = desk_of(3, AckOptions())
    leaving, other = desk.sit("a", lambda: None), desk.sit("b", lambda: None)
    leaving.leave()
    assert leaving.take() == []
    assert numbers(other) == [0, 1, 2]


def test_what_was_handed_out_in_an_earlier_life_can_be_acknowledged_before_it_comes_again() -> None:
    cursor = Memory(0, [], reach=3)
    desk = desk_of(5, AckOptions(ack="manual"), cursor)
    seat = desk.sit("a", lambda: None)
    assert seat.ack(number_of(desk, "p", 2))
    assert not seat.ack(2)
    assert not seat.ack(3), "nobody can have had it"
    assert cursor.acks == {2}
    assert numbers(seat) == [0, 1, 3, 4]


def test_what_nobody_has_seen_is_given_back_as_if_it_had_never_been_out() -> None:
    desk = desk_of(3, AckOptions(ack="manual", max_deliveries=1))
    seat, other = desk.sit("a", lambda: None), desk.sit("b", lambda: None)
    assert [one.number for one in seat.take(3)] == [0, 1, 2]
    seat.give_back([1, 2])
    seat.leave()
    assert [(one.number, one.attempt) for one in other.take(3)] == [(1, 1), (2, 1)]


def test_how_often_an_event_came_again_outlives_the_process_where_that_has_an_end() -> None:
    """Whoever is handed it dies: it comes again in the next life, and the life after that finds it dead."""
    cursor, given_away = Memory(0, [], reach=0), list[tuple[int, int]]()
    lives: list[list[int]] = []
    for _ in range(4):
        desk = Coordinator(
            PORTS,
            "desk",
            queue_of(2),
            AckOptions(ack="manual", max_deliveries=2),
            cursors=cast("Any", cursor),
            add_dead_letter=lambda item, attempts, _: given_away.append((item[1].offset or 0, attempts)),
        )
        seat = desk.sit("a", lambda: None)
        lives.append([one.attempt for one in seat.take()])
    # The first time is kept with the batch, for all of it together, and not counted one by one.
    assert lives == [[1], [1], [2], [1]]
    assert given_away == [(0, 2)]
    assert cursor.position == 1


def test_what_could_not_be_kept_is_not_counted() -> None:
    cursor = Memory(0, [], reach=3, attempts={0: 1})
    seat = desk_of(3, AckOptions(ack="manual", max_deliveries=5), cursor).sit("a", lambda: None)
    cursor.away = True
    for _ in range(5):
        with pytest.raises(QueryFailed):
            seat.take()
    cursor.away = False
    assert [one.attempt for one in seat.take()] == [2]
    assert cursor.attempts == {0: 2}
    seat.ack(0)
    assert cursor.attempts == {}


def test_an_acknowledgement_that_could_not_be_kept_did_not_happen() -> None:
    cursor = Memory()
    desk = desk_of(4, AckOptions(ack="manual"), cursor)
    seat = desk.sit("a", lambda: None)
    assert numbers(seat) == [0, 1, 2, 3]
    assert seat.ack(1)
    cursor.away = True
    for number in (0, 2):
        with pytest.raises(QueryFailed):
            seat.ack(number)
    cursor.away = False
    assert seat.ack(3)
    assert (cursor.position, sorted(cursor.acks)) == (0, [1, 3]), "nothing of it is kept with the next"
    again = [one for (one,) in iter(seat.take, [])]
    assert [(one.number, one.attempt, one.header.redelivered) for one in again] == [
        (0, 2, True),
        (2, 2, True),
    ]
    assert [seat.ack(one.number) for one in again] == [True, True]
    assert cursor.position == 4
    assert desk.stats().acked == 4


def test_what_could_not_be_acknowledged_can_be_once_more_without_taking_it_again() -> None:
    cursor = Memory()
    seat = desk_of(1, AckOptions(ack="manual"), cursor).sit("a", lambda: None)
    assert numbers(seat) == [0]
    cursor.away = True
    with pytest.raises(QueryFailed):
        seat.ack(0)
    cursor.away = False
    assert seat.ack(0)
    assert numbers(seat) == []
    assert cursor.position == 1


def test_by_key_nothing_overtakes_an_event_whose_acknowledgement_failed() -> None:
    cursor = Memory()
    queue = queue_of(3, key=("a",))
    desk = Coordinator(
        PORTS,
        "desk",
        queue,
        AckOptions(ack="manual", order="key"),
        cursors=cast("Any", cursor),
        add_dead_letter=buried,
    )
    seat = desk.sit("a", lambda: None)
    assert numbers(seat) == [0]
    cursor.away = True
    with pytest.raises(QueryFailed):
        seat.ack(0)
    cursor.away = False
    got = []
    for _ in range(3):
        (one,) = seat.take()
        got.append(one.number)
        seat.ack(one.number)
    assert got == [0, 1, 2]


def test_a_keeper_that_did_not_answer_in_time_is_told_that_the_event_comes_again() -> None:
    """Whether it had kept the acknowledgement or not: whoever acknowledged was told that it failed."""
    cursors = Elsewhere()
    desk = desk_elsewhere(3, AckOptions(ack="manual"), cursors)
    seat = desk.sit("a", lambda: None)
    ids(seat)

    got: list[tuple[int, int]] = []

    def keeper_answers() -> bool:
        for telling in [late for late in cursors.tellings if not late.is_kept]:
            telling.end()
        got.extend(ids(seat))
        return len(got) == 3

    assert wait_until(keeper_answers)
    second = number_of(desk, "q", 1)
    with pytest.raises(QueryFailed):
        seat.ack(second)
    assert cursors.there.acks == frozenset(), "taken back"
    cursors.tellings[-2].end()
    assert ids(seat) == [(1, 2)], "its late answer settles nothing"


def test_an_acknowledgement_that_was_kept_and_taken_back_is_read_again(tmp_path: Path) -> None:
    """A member elsewhere was told that it failed, and says so when the desk has settled it long since."""
    with hg.Station(tmp_path) as station:
        tracks = station.channel("c", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(n) for n in range(3)])
        with tracks.consumer(name="billing", ack="manual", start="earliest") as consumer:
            held = list(consumer.deliveries(0))
            assert all(delivery.ack() for delivery in held)
            assert consumer._seat is not None
            consumer._seat.withdraw(held[1]._handed.number)
            assert [(d.event.id, d.redelivered) for d in consumer.deliveries(0)] == [(1, True)]
            assert tracks.stats().balanced
        with tracks.consumer(name="billing", ack="manual") as consumer:
            assert [(d.event.id, d.ack()) for d in consumer.deliveries(0)] == [(1, True)]
        with tracks.consumer(name="billing", ack="manual") as consumer:
            assert list(consumer.deliveries(0)) == []
