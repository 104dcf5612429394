"""Two programs of one domain find each other; the filter runs where events are pushed.

It prints:

    the other process got [4, 5]
    of 6 events 2 were for it: delivered 2, dropped {}
"""

from __future__ import annotations

import subprocess
import sys

import heliograph as hg


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float


def display() -> None:
    """The other process: prints what it gets until its standard input is closed."""
    with hg.Station(domain="two-processes", name="display") as station:
        tracks = station.channel("air.tracks", Track)
        with tracks.consumer(where="speed > 300") as consumer:
            got = [consumer.pull(timeout=30.0).id for _ in range(2)]
            print("the other process got", got, flush=True)
            sys.stdin.read()


def radar() -> None:
    other = subprocess.Popen([sys.executable, __file__, "display"], stdin=subprocess.PIPE)  # noqa: S603 - runs itself
    with hg.Station(domain="two-processes", name="radar") as station:
        tracks = station.channel("air.tracks", Track)
        if not tracks.wait_matched(consumers=1, timeout=30.0):
            raise SystemExit("nobody came")
        tracks.push_many([Track(id=n, speed=n * 100.0) for n in range(6)])
        tracks.settle(timeout=30.0)
        other.communicate()
        counts = tracks.stats().departed
        print(f"of 6 events 2 were for it: delivered {counts.delivered}, dropped {dict(counts.dropped)}")


if __name__ == "__main__":
    display() if sys.argv[1:] == ["display"] else radar()
