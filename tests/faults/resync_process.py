"""Suppliers that offer their state and receivers that heal by it, as processes to be killed."""

from __future__ import annotations

import sys
import time

import heliograph as hg
from tests.e2e.link_process import say
from tests.e2e.link_support import Track, transport

QUICK = hg.Resync(grace=0.05, check=0.2, pause=0.05)


def supply(life: str, keys: str, kind: str) -> None:
    """Change keys one after the other until killed; each life begins with a state of its own."""
    with hg.Station(domain="e2e", transport=transport(), name=f"life {life}") as station:
        tracks = station.channel("tracks", Track, qos=hg.QoS(overflow="drop_oldest", queue=64))
        table = {i: Track(i, 0.0, life) for i in range(int(keys))}
        if kind == "latest":
            tracks.state("latest")
            tracks.push_many(list(table.values()))
        else:
            tracks.state(lambda: list(table.values()))
        say("offers", life)
        rounds = 0
        for line in sys.stdin:
            rounds = int(line)
            for n in range(1, rounds + 1):
                for i in range(int(keys)):
                    table[i] = Track(i, float(n), life)
                    tracks.push(table[i])
            say("pushed", life, rounds)


def receive(keys: str) -> None:
    """Say what the state is whenever all keys have the same life and round."""
    with hg.Station(domain="e2e", transport=transport(), name="receiver") as station:
        tracks = station.channel("tracks", Track)
        told: dict[int, Track] = {}
        slow = 0

        def keep(track: Track) -> None:
            nonlocal slow
            slow += 1
            if not slow % 100:
                time.sleep(0.002)  # so that queues overflow
            told[track.id] = track

        subscription = tracks.subscribe(keep, resync=QUICK, queue=64, overflow="drop_oldest")
        say("receives")
        last: set[tuple[str, float]] = set()
        while True:
            kinds = {(track.region, track.speed) for track in tuple(told.values())}
            if len(told) == int(keys) and len(kinds) == 1 and kinds != last:
                last = kinds
                ((life, rounds),) = kinds
                same = subscription.resync.state() == told
                say("all", life, round(rounds), "same" if same else "other")
            time.sleep(0.002)


if __name__ == "__main__":
    if sys.argv[1] == "supply":
        supply(*sys.argv[2:])
    else:
        receive(*sys.argv[2:])
