"""A keeper that hangs (SIGSTOP, not dead) delays its own partition alone, and closing waits for it once."""

from __future__ import annotations

import signal
import threading
from itertools import islice
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import QueryFailed
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.faults.group_process import CHANNEL, DOMAIN, GROUP, PERSISTENT, Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FOR_ALL = 20.0
"""Seconds for closing eight consumers: half of what it takes when each of them waits for the keeper."""
MANY = 200
"""More than a desk takes at a time, so that there is something to be kept before the next is handed out."""


class Hanging:
    """A keeper in a process of its own, with a history, that can be stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program: Program | None = None

    def start(self) -> None:
        self._program = Program(
            "supply", str(self._folder), "0", str(MANY), module="tests.faults.group_process"
        )
        self._program.says("keeping")

    def stop(self) -> None:
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def clean_up(self) -> None:
        if self._program is not None:
            self.go_on()
            self._program.clean_up()

    def _send(self, what: signal.Signals) -> None:
        assert self._program is not None
        self._program.process.send_signal(what)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hanging]:
    own_meeting_folder(monkeypatch, tmp_path)
    keeper = Hanging(tmp_path / "other")
    yield keeper
    keeper.clean_up()


@pytest.fixture
def orders(keeper: Hanging, tmp_path: Path) -> Iterator[hg.Channel[Order]]:
    """A channel of which this process keeps one partition and hands out to its group."""
    with hg.Station(tmp_path / "own", domain=DOMAIN) as station:
        yield station.channel(CHANNEL, Order, qos=PERSISTENT)
        keeper.go_on()


def start(keeper: Hanging, orders: hg.Channel[Order]) -> None:
    """The other keeper comes, with its partition."""
    keeper.start()
    journal = orders._journal
    assert journal is not None
    assert wait_until(lambda: len(journal.feed.partitions) == 2)


def is_own(delivery: hg.Delivery[Order], orders: hg.Channel[Order]) -> bool:
    assert orders.store is not None
    return delivery.header.partition == orders.store.partition


def ends_in_time(call: Callable[[], object], limit: float) -> bool:
    """Whether it returns or raises within the limit, in a thread: it may hang."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except QueryFailed as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit)
    return not thread.is_alive()


def test_a_group_goes_on_with_the_other_partitions(keeper: Hanging, orders: hg.Channel[Order]) -> None:
    """One by one: each would wait five seconds for the keeper that hangs."""
    own = orders.consumer(group=GROUP, ack="manual", start="earliest")
    start(keeper, orders)
    other = orders.consumer(group=GROUP)
    held: list[hg.Delivery[Order]] = []

    def is_handed_out() -> bool:
        for member in (own, other):  # the keys are eight, and may all be one member's
            held.extend(islice(member.deliveries(0), 1 - len(held)))
        return bool(held)

    assert wait_until(is_handed_out)
    assert not is_own(held[0], orders)
    keeper.stop()
    got: list[int] = []

    def push_and_get() -> None:
        for number in range(MANY, 2 * MANY):
            orders.push(Order(number, number))
            while number not in got:
                for member in (own, other):
                    for delivery in member.deliveries(0):
                        if is_own(delivery, orders):
                            assert delivery.ack()
                            got.append(delivery.event.number)
                        else:
                            held.append(delivery)

    assert ends_in_time(push_and_get, LIMIT)
    assert got == list(range(MANY, 2 * MANY))
    keeper.go_on()

    def have_all() -> bool:
        for member in (own, other):
            held.extend(member.deliveries(0))
        return len(held) >= MANY

    assert wait_until(have_all)
    assert all(delivery.ack() for delivery in held)
    assert sorted(delivery.event.number for delivery in held) == list(range(MANY))
    assert not any(delivery.redelivered for delivery in held)


def test_pushes_of_a_station_without_a_folder_are_answered_while_a_keeper_hangs(
    keeper: Hanging, orders: hg.Channel[Order]
) -> None:
    """Its member asks all the time for what the keeper that hangs has."""
    with hg.Station(domain=DOMAIN) as station:
        elsewhere = station.channel(CHANNEL, Order, qos=PERSISTENT)
        member = elsewhere.consumer(group=GROUP, start="earliest")
        start(keeper, orders)
        assert member.pull(LIMIT)
        keeper.stop()

        def push_and_ask() -> None:
            for number in range(MANY):
                elsewhere.push(Order(number, number))
                member.pull(0)

        assert ends_in_time(push_and_ask, LIMIT)
        keeper.go_on()
        member.close()


def test_closing_waits_once_for_a_keeper_that_hangs(keeper: Hanging, orders: hg.Channel[Order]) -> None:
    start(keeper, orders)
    consumers = [orders.consumer(name=f"billing-{n}", start="earliest") for n in range(8)]
    for consumer in consumers:
        assert consumer.pull(LIMIT)
        assert consumer.pull(LIMIT)
    keeper.stop()
    assert ends_in_time(lambda: close_all(consumers), FOR_ALL)
    keeper.go_on()
    # What could not be kept comes again, and nobody holds the place of one that has left.
    for consumer in consumers:
        with orders.consumer(name=consumer.name, start="earliest") as again:
            found = {order.number for _ in range(MANY - 1) if (order := again.pull(LIMIT)) is not None}
            assert found >= set(range(1, MANY))


def is_acked(delivery: hg.Delivery[Order]) -> bool:
    try:
        return delivery.ack()
    except QueryFailed:
        return False


def close_all(consumers: list[hg.Consumer[Order]]) -> None:
    for consumer in consumers:
        try:
            consumer.close()
        except QueryFailed:
            continue


@pytest.mark.parametrize("what", ["consumer", "member of a group"])
def test_an_acknowledgement_that_raised_did_not_happen(keeper: Hanging, what: str) -> None:
    """The keeper reads it when it goes on, and is told that the event comes again."""
    keeper.start()
    with hg.Station(domain=DOMAIN) as station:
        orders = station.channel(CHANNEL, Order, qos=PERSISTENT)

        def opened() -> hg.Consumer[Order]:
            if what == "consumer":
                return orders.consumer(name=GROUP, ack="manual", start="earliest", lease=60.0)
            return orders.consumer(group=GROUP, ack="manual", start="earliest", lease=60.0)

        with opened() as consumer:
            deliveries = consumer.deliveries(LIMIT)
            held = [next(deliveries) for _ in range(3)]
            keeper.stop()
            with pytest.raises(QueryFailed):
                held[1].ack()
            keeper.go_on()
            again = next(delivery for delivery in deliveries if delivery.event == held[1].event)
            assert again.redelivered
            assert wait_until(lambda: is_acked(held[0]))  # once the keeper has answered something
            assert held[2].ack()
        with opened() as consumer:
            assert next(consumer.deliveries(LIMIT)).event == held[1].event
