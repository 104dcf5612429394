"""An event that is too old is not delivered, and the ledger says so.

It prints:

    shown: pose 2
    delivered 1, expired 1, balanced: True
"""

from __future__ import annotations

import heliograph as hg
from heliograph import testing


class Pose(hg.Event, name="robot.pose"):
    number: int


with testing.rig() as helio:  # a station whose clock jumps: the example takes no time
    poses = helio.station.channel("robot.poses", Pose, qos=hg.QoS(lifespan=0.1))
    with poses.consumer(name="display") as display:
        poses.push(Pose(1))
        helio.clock.advance(0.5)  # the display was busy for half a second
        poses.push(Pose(2))
        print("shown: pose", display.pull(timeout=1.0).number)
        stats = poses.stats()
        counts = stats.consumers["display"]
        print(f"delivered {counts.delivered}, expired {counts.expired}, balanced: {stats.balanced}")
