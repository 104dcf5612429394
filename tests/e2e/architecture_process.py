"""One program for all architectures: it pushes or receives in the domain that its environment names."""

from __future__ import annotations

import os
import sys

import heliograph as hg
from tests.e2e.link_support import LIMIT, Track


def supply() -> None:
    """Push what is asked for on standard input, so many at a time."""
    with hg.Station(domain=os.environ["DOMAIN"], name="supplier") as station:
        tracks = station.channel("air.tracks", Track)
        assert tracks.wait_matched(1, LIMIT)
        print("matched", flush=True)
        number = 0
        for line in sys.stdin:
            for _ in range(int(line)):
                tracks.push(Track(number))
                number += 1
            print("pushed", number, flush=True)


def receive() -> None:
    """Say how many have come, and which was the last."""
    with hg.Station(domain=os.environ["DOMAIN"], name="receiver") as station:
        got: list[int] = []

        def count(track: Track) -> None:
            got.append(track.id)
            if got != list(range(len(got))):
                print("wrong", got[-5:], flush=True)
            if len(got) % 50 == 0:
                print("received", len(got), flush=True)

        station.channel("air.tracks", Track).subscribe(count)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    {"supply": supply, "receive": receive}[sys.argv[1]]()
