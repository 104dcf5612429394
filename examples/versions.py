"""An old and a new version of a class share a channel, and a reader without any class sees all fields.

It prints:

    the old program reads [1, 2]
    the new program reads [(1, 1.0), (2, 0.4)]
    without a class: {'id': 2, 'battery': 0.4}
"""

from __future__ import annotations

import tempfile

import heliograph as hg


class Old(hg.Event, name="site.reading", key="id"):
    id: int


class New(hg.Event, name="site.reading", key="id"):
    id: int
    battery: float = 1.0  # what an event of the old class has


with tempfile.TemporaryDirectory() as folder:
    kept = hg.QoS(durability="persistent")
    with hg.Station(folder, domain="versions") as keeper, hg.Station(domain="versions") as field:
        new = keeper.channel("site.readings", New, qos=kept)
        old = field.channel("site.readings", Old, qos=kept)  # usually another process, deployed last year
        old.push(Old(1))
        new.push(New(2, battery=0.4))
        print("the old program reads", [reading.id for reading in old.consumer(until="now")])
        print("the new program reads", [(r.id, r.battery) for r in new.consumer(until="now")])
    rows = hg.history(folder, "site.readings", columns=["id", "battery"], start=1).arrow().to_pylist()
    print("without a class:", rows[0])
