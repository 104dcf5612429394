"""Yesterday's events again: a history pushed into another channel, as fast as possible or at its own pace.

It prints:

    live: 3 jams
    replayed 100 events, and the new rule finds 9 jams
"""

from __future__ import annotations

import tempfile

import heliograph as hg


class Car(hg.Event, name="road.car"):
    number: int
    speed: float


with tempfile.TemporaryDirectory() as folder, hg.Station(folder) as station:
    cars = station.channel("road.cars", Car, qos=hg.QoS(durability="persistent"))
    with cars.consumer(where="speed < 3") as jams:
        cars.push_many([Car(number, float(number)) for number in range(100)])
        print("live:", len(jams.read(timeout=5.0)), "jams")

    rehearsal = station.channel("rehearsal.cars", Car)
    with rehearsal.consumer(where="speed < 9") as jams:
        again = cars.replay(rehearsal, speed=None)  # 1.0 is the pace of then, 10.0 ten times as fast
        print(f"replayed {again.events} events, and the new rule finds {len(jams.read(timeout=5.0))} jams")
