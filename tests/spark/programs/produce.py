"""Pushes events with rising ids into a durable channel, and says which are acknowledged, until it is killed.

python produce.py DATA FIRST
"""

from __future__ import annotations

import sys
import time

import heliograph as hg


class Track(hg.Event, name="air.track", key="id"):
    id: int


def main(data: str, first: str) -> None:
    number = int(first)
    with hg.Station(data) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        while True:
            tracks.push_many([Track(number + n) for n in range(20)])
            number += 20
            print(number, flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
