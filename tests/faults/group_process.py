"""Programs that tests run, stop and kill: a keeper, and workers that share its stream.

Workers write what they do into one file, a whole line per event, before they acknowledge it: what is there
is what was done, in the order in which it was done, whoever was killed.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import heliograph as hg
from heliograph.errors import NotPossible, QueryFailed, SupplierHeld

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PERSISTENT = hg.QoS(durability="persistent")
CUSTOMERS = 8
"""Of each supplier."""
CHANNEL, GROUP, DOMAIN = "shop.orders", "workers", "shop"


class Order(hg.Event, name="shop.order", key="customer"):
    customer: int
    number: int


def keep(folder: str) -> None:
    """Keep the channel, and say so, until standard input ends or it is killed."""
    with hg.Station(folder, domain=DOMAIN, on_error=lambda *_: None) as station:
        station.channel(CHANNEL, Order, qos=PERSISTENT)
        print("keeping", flush=True)
        sys.stdin.read()


def supply(folder: str, first: str, orders: str) -> None:
    """As `keep`, with so many orders of its own in the history."""
    with hg.Station(folder, domain=DOMAIN, on_error=lambda *_: None) as station:
        channel = station.channel(CHANNEL, Order, qos=PERSISTENT)
        channel.push_many(
            [Order(number % 8, number) for number in range(int(first), int(first) + int(orders))]
        )
        print("keeping", flush=True)
        sys.stdin.read()


def host(folder: str) -> None:
    """Keep the channel; at each line push so many orders as it says, and say who sits at the group's desk."""
    with hg.Station(folder, domain=DOMAIN, on_error=lambda *_: None) as station:
        channel = station.channel(CHANNEL, Order, qos=PERSISTENT)
        print("keeping", flush=True)
        pushed = 0
        for line in sys.stdin:
            orders = range(pushed, pushed + int(line))
            channel.push_many([Order(number % CUSTOMERS, number) for number in orders])
            pushed += len(orders)
            group = channel.asking._groups.get(GROUP)
            print("members", 0 if group is None else len(group.desk.members()), flush=True)


def push(folder: str, supplier: str, log: str) -> None:
    """Keep the channel and push into it until killed, one order after another, going on behind the last.

    The number of an order is its sequence. What is acknowledged is written down.
    """
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    with hg.Station(folder, domain=DOMAIN, on_error=lambda *_: None) as station:
        channel = station.channel(CHANNEL, Order, qos=PERSISTENT)
        source = patiently(lambda: channel.supplier(supplier), SupplierHeld, QueryFailed)
        print("keeping", flush=True)
        for number in count(source.last_sequence + 1):
            customer = int(supplier) * CUSTOMERS + number % CUSTOMERS
            assert source.push(Order(customer, number))
            os.write(file, b"%d\n" % number)
            time.sleep(0.002)  # as much as workers get through


def work(log: str, name: str) -> None:
    """As a member of the group, write down and acknowledge what is handed out, until killed."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    with hg.Station(domain=DOMAIN) as station:
        orders = opened(station)
        with orders.consumer(group=GROUP, name=name, ack="manual", order="key", lease=60.0) as member:
            print("working", flush=True)
            do_orders(member, file)


def do_orders(member: hg.Consumer[Order], file: int) -> None:
    for delivery in member.deliveries():
        order = delivery.event
        os.write(file, b"%d %d %d\n" % (order.customer, order.number, delivery.redelivered))
        with suppress(QueryFailed):  # the keeper is away for long: it comes again
            delivery.ack()


def opened(station: hg.Station) -> hg.Channel[Order]:
    """The keeper may have been killed a moment ago."""
    return patiently(lambda: station.channel(CHANNEL, Order, qos=PERSISTENT), NotPossible, QueryFailed)


def patiently(call: Callable[[], T], *errors: type[Exception]) -> T:
    """What a call returns, once it no longer raises these."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return call()
        except errors:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "keep": keep,
        "host": host,
        "push": push,
        "supply": supply,
        "work": work,
    }
    programs[sys.argv[1]](*sys.argv[2:])
