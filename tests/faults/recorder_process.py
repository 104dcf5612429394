"""A station with a flight recorder; pushes until it is told to end, or killed.

    python recorder_process.py FOLDER FIRST

Says each number that it has pushed. Number FIRST + 50 is a trigger. A line on standard input ends it.
"""

from __future__ import annotations

import sys
import threading

import heliograph as hg

AFTER = 50


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


def main(folder: str, first: int) -> None:
    told = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track)
        kept = station.channel("kept.tracks", Track, qos=hg.QoS(durability="persistent"))
        with hg.FlightRecorder(station, tracks, kept, when="speed > 900", before=3_600, after=3_600):
            number = first
            while not told.wait(0.001):
                tracks.push(Track(number, 999.0 if number == first + AFTER else 0.0))
                print(number, flush=True)
                number += 1
            tracks.settle(60.0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
