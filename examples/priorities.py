"""What is urgent goes first, though it came last.

It prints:

    alarm: pressure
    reading 1
    reading 2
    reading 3
"""

from __future__ import annotations

import heliograph as hg


class Message(hg.Event, name="plant.message"):
    text: str


with hg.Station() as station:
    messages = station.channel("plant.messages", Message)
    with messages.consumer() as consumer:
        for number in (1, 2, 3):
            messages.push(Message(f"reading {number}"), priority=2)
        messages.push(Message("alarm: pressure"), priority=5)  # 1 is low, 5 is high
        for message in consumer.read(max=4, timeout=5.0):
            print(message.text)
