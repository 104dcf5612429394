"""A consumer that takes a while for each event, in a process of its own; `test_overload.py` starts it.

With the last event it says how many it got, how many its queue dropped, and whether they came in order.
"""

from __future__ import annotations

import sys
from threading import Event, Thread

import heliograph as hg
from tests.e2e.link_process import say
from tests.faults.overload_support import DOMAIN, Load, qos_of


def main(policy: str) -> None:
    told, pause = Event(), Event()

    def listen() -> None:
        sys.stdin.read()
        told.set()

    Thread(target=listen, daemon=True).start()
    got: list[int] = []
    with hg.Station(domain=DOMAIN) as station:
        channel = station.channel("load", Load, qos=qos_of(policy))

        def slow(load: Load) -> None:
            pause.wait(0.0005)  # a capacity of some two thousand a second
            got.append(load.number)
            if load.is_last:
                dropped = channel.stats().consumers["slow"].dropped
                say(f"last {len(got)} {sum(dropped.values())} {got == sorted(got)}")

        channel.subscribe(slow, name="slow")
        say("ready")
        told.wait()


if __name__ == "__main__":
    main(sys.argv[1])
