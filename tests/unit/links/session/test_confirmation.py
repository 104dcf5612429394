"""What a gateway handed over, what the other station says of it, and what the ledger makes of both."""

from __future__ import annotations

from typing import Any

from heliograph.channel.ledger import QueueCounts
from heliograph.links.session import messages as m
from heliograph.links.session.confirmation import (
    MAX_SESSIONS,
    PEER_LOST,
    Account,
    Confirmations,
    Owed,
    TakenIn,
)
from heliograph.runtime.ports import system_ports

TASKS = system_ports().tasks


class Gateway:
    """Has handed over so many events."""

    name = "link"
    sends_again = False

    def __init__(self, handed: int) -> None:
        self.channel: Any = "x"
        self.account = Account()
        self.sent = handed

    def handed(self) -> int:
        return self.sent

    def counts(self) -> QueueCounts:
        return self.account.applied_to(QueueCounts(delivered=self.sent))


class Way:
    """Has taken in so many events, and refused so many."""

    def __init__(self, received: int, refused: int = 0) -> None:
        self.received = received
        self.refused = refused


def test_what_is_not_confirmed_is_pending_and_when_the_peer_is_given_up_dropped() -> None:
    owed, gateway = Owed(TASKS), Gateway(10)
    owed.open("x", gateway)
    owed.report("x", 4, 1)
    assert gateway.counts() == QueueCounts(delivered=4, dropped={"refused": 1}, pending=5)
    owed.give_up(PEER_LOST)
    assert gateway.counts() == QueueCounts(delivered=4, dropped={"refused": 1, PEER_LOST: 5})
    assert list(owed.lost().values()) == [5]
    owed.report("x", 7, 1)
    assert gateway.counts() == QueueCounts(delivered=7, dropped={"refused": 1, PEER_LOST: 2})


def test_reports_are_sums_so_one_that_comes_twice_or_late_changes_nothing() -> None:
    owed, gateway = Owed(TASKS), Gateway(10)
    owed.open("x", gateway)
    for taken in (6, 6, 2):
        owed.report("x", taken, 0)
    owed.report("of no gateway", 3, 3)
    assert gateway.counts() == QueueCounts(delivered=6, pending=4)


def test_more_than_was_handed_over_is_never_delivered() -> None:
    owed, gateway = Owed(TASKS), Gateway(10)
    owed.open("x", gateway)
    owed.report("x", 1_000, 1_000)
    assert gateway.counts().total == 10


def test_of_a_channel_that_was_opened_again_the_first_events_are_confirmed_first() -> None:
    owed, first, second = Owed(TASKS), Gateway(10), Gateway(5)
    owed.open("x", first)
    owed.open("x", second)
    owed.report("x", 8, 0)
    assert (first.counts().pending, second.counts().pending) == (2, 5)
    owed.report("x", 12, 0)
    assert (first.counts().pending, second.counts().pending) == (0, 3)


def test_a_gateway_that_goes_on_in_the_next_session_keeps_what_it_counted() -> None:
    owed, gateway = Owed(TASKS), Gateway(10)
    owed.open("x", gateway)
    owed.report("x", 6, 1)
    owed.give_up(PEER_LOST)
    gateway.account = gateway.account.followed(gateway.sent)
    following = Owed(TASKS)
    following.open("x", gateway)
    gateway.sent = 15
    following.report("x", 2, 0)
    assert gateway.counts() == QueueCounts(delivered=8, dropped={"refused": 1, PEER_LOST: 3}, pending=3)


def test_a_report_names_what_is_new_and_the_last_one_all() -> None:
    taken, way = TakenIn(1), Way(3)
    taken.add_way("x", way)
    taken.refuse("y", 2)
    assert taken.news() == m.Taken(1, {"x": (3, 0), "y": (0, 2)})
    assert taken.news() is None
    way.received = 5
    assert taken.news() == m.Taken(1, {"x": (5, 0)})
    assert taken.last_report() == m.Taken(1, {"x": (5, 0), "y": (0, 2)})


def test_a_station_that_was_given_up_several_times_in_a_row_says_what_it_took_in_of_each_session() -> None:
    source, receiver = Confirmations(TASKS), Confirmations(TASKS)
    gateways = [Gateway(10) for _ in range(3)]
    for number, gateway in enumerate(gateways, 1):
        source.begin(number)
        receiver.begin(100 + number)
        receiver.taken.session = number
        source.owed.open("x", gateway)
        receiver.taken.add_way("x", Way(number))
        source.owed.give_up(PEER_LOST)
    source.begin(4)
    receiver.begin(104)
    for report in receiver.last_reports():
        assert source.confirm(report) is not None
    assert [gateway.counts().delivered for gateway in gateways] == [1, 2, 3]
    assert not any(gateway.account.is_final for gateway in gateways)


def test_what_is_heard_of_a_session_before_it_is_known_to_be_over_counts_then() -> None:
    last, current, gateway = Confirmations(TASKS), Confirmations(TASKS), Gateway(10)
    last.begin(1)
    last.owed.open("x", gateway)
    current.begin(3)
    assert current.confirm(m.Taken(1, {"x": (9, 0)})) is None
    current.follow(last)
    assert gateway.counts().delivered == 9


def test_only_so_many_sessions_that_are_over_are_waited_for() -> None:
    reports, gateway = Confirmations(TASKS), Gateway(10)
    reports.begin(1)
    reports.owed.open("x", gateway)
    for number in range(2, MAX_SESSIONS + 2):
        reports.begin(number)
    assert not gateway.account.is_final
    reports.begin(1_000)
    assert gateway.account.is_final
