"""A station that is there to be killed: `python station_victim.py FOLDER LIFE`.

Two threads push events that never come again, and a consumer reads along. On standard output, a line each:
`acked ID` when a push came back, `saw OFFSET ID` when the consumer was given an event.
"""

from __future__ import annotations

import os
import sys
import threading
from itertools import count
from typing import TYPE_CHECKING

import heliograph as hg

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel

PER_LIFE = 1_000_000
"""Numbers that each thread of each life has for itself."""


class Beat(hg.Event, name="victim.beat"):
    id: int


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one write, so that a kill cuts no line


def push(beats: Channel[Beat], first: int) -> None:
    with beats.supplier() as supplier:
        for number in count(first):
            if number % 3:
                supplier.push(Beat(number))
                say("acked", number)
            else:
                supplier.push_nowait(Beat(number))


def main() -> None:
    folder, life = sys.argv[1], int(sys.argv[2])
    with hg.Station(folder) as station:
        beats = station.channel("beats", Beat, qos=hg.QoS(durability="persistent"))
        for thread in range(2):
            first = (2 * life + thread) * PER_LIFE
            threading.Thread(target=push, args=(beats, first), daemon=True).start()
        with beats.consumer(start="earliest") as consumer:
            for delivery in consumer.deliveries():
                say("saw", delivery.header.offset, delivery.event.id)


if __name__ == "__main__":
    main()
