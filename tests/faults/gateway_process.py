"""The supplier in the tests that kill gateways: it keeps a channel and pushes numbered events into it."""

from __future__ import annotations

import sys
from pathlib import Path

import heliograph as hg
from tests.e2e.link_support import Track


def supply(folder: str, log: str, most: str) -> None:
    """Keep the channel, push so many events, and write down each that was acknowledged."""
    with hg.Station(folder, domain="west", name="supplier") as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        print("keeping", flush=True)
        with Path(log).open("a", buffering=1) as acked:
            for i in range(int(most)):
                tracks.push(Track(i))
                acked.write(f"{i}\n")
        print("pushed", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    supply(*sys.argv[1:])
