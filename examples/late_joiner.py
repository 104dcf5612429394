"""A late joiner gets the last known state first: the latest event of each key, then what is new.

It prints:

    oven 180.0
    fridge 4.0
    fridge 5.5
"""

from __future__ import annotations

import heliograph as hg


class Temperature(hg.Event, name="home.temperature", key="device"):
    device: str
    celsius: float


with hg.Station() as station:
    state = hg.QoS(durability="transient", history=1)  # one event per key, kept in memory for late joiners
    temperatures = station.channel("home.temperatures", Temperature, qos=state)
    temperatures.push(Temperature("oven", 20.0))
    temperatures.push(Temperature("oven", 180.0))
    temperatures.push(Temperature("fridge", 4.0))

    with temperatures.consumer() as late:
        temperatures.push(Temperature("fridge", 5.5))
        for event in late.read(max=3, timeout=5.0):
            print(event.device, event.celsius)
