"""Events for later: delivered at their instant, also after a restart, unless they are cancelled.

It prints:

    2 wait
    cancelled: True
    after an hour: water the plants
"""

from __future__ import annotations

import heliograph as hg
from heliograph import testing


class Reminder(hg.Event, name="desk.reminder"):
    text: str


with testing.rig() as helio:  # a station whose clock jumps: the example takes no time
    desk = helio.station.channel("desk.reminders", Reminder, qos=hg.QoS(durability="persistent"))
    desk.subscribe(lambda reminder: print("after an hour:", reminder.text))
    desk.push(Reminder("water the plants"), deliver_after=3600)
    meeting = desk.push_nowait(Reminder("go to the meeting"), deliver_after=3600)
    print(desk.stats().delayed, "wait")
    print("cancelled:", desk.cancel(meeting))
    helio.clock.advance(3600)
    helio.settle()
