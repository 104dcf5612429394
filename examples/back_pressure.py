"""What happens when a receiver is too slow: the push waits and says so, or the oldest events go, counted.

It prints:

    refused: the queue of 'careful' was full
    careful got [0, 1, 2] and nothing was lost without a word
    hasty got [7, 8, 9] and knows of 7 that were dropped
"""

from __future__ import annotations

import heliograph as hg


class Reading(hg.Event, name="site.reading"):
    number: int


with hg.Station() as station:
    kept = station.channel("site.kept", Reading, qos=hg.QoS(queue=3, max_blocking=0.01))
    with kept.consumer(name="careful") as careful:
        for number in range(10):
            try:
                kept.push(Reading(number))
            except (
                hg.QueueFull
            ):  # no receiver has got this one: the program can wait, slow down or push it again
                print("refused: the queue of 'careful' was full")
                break
        numbers = [reading.number for reading in careful.read(timeout=5.0)]
        print("careful got", numbers, "and nothing was lost without a word")

    fresh = station.channel("site.fresh", Reading, qos=hg.QoS(queue=3, overflow="drop_oldest"))
    with fresh.consumer(name="hasty") as hasty:
        fresh.push_many([Reading(number) for number in range(10)])
        numbers = [reading.number for reading in hasty.read(timeout=5.0)]
        print("hasty got", numbers, "and knows of", hasty.counts().dropped["oldest"], "that were dropped")
