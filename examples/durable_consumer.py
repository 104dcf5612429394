"""A durable consumer goes on where it was, in the next run of the program and after a crash.

It prints:

    first run: [0, 1, 2]
    second run: [3, 4]
"""

from __future__ import annotations

import tempfile

import heliograph as hg


class Order(hg.Event, name="shop.order", key="id"):
    id: int
    total: float


def run(folder: str, new: range) -> list[int]:
    """One run of the program: it pushes orders, and bills what it has not billed yet."""
    with hg.Station(folder) as station:
        orders = station.channel("shop.orders", Order, qos=hg.QoS(durability="persistent"))
        orders.push_many([Order(number, 9.5) for number in new])  # True when they are on disk
        with orders.consumer(name="billing", start="earliest", until="now") as billing:
            return [order.id for order in billing]


with tempfile.TemporaryDirectory() as folder:
    print("first run:", run(folder, range(3)))
    print("second run:", run(folder, range(3, 5)))
