"""The resend rate over loss: how often the event monitor sends an event again, by how many are lost.

A consumer loses each delivery with a given chance, by raising; the monitor sends the event again until it is
acknowledged. With loss p an event takes 1 / (1 - p) sends, of which p / (1 - p) are resends.
"""

from __future__ import annotations

import random

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment

LOSSES = (0.01, 0.1, 0.3)


class Note(hg.Event, name="wang.note"):
    number: int


def resends(loss: float, events: int) -> tuple[float, bool]:
    """Resends for each event, and whether every event was acknowledged."""
    chance = random.Random(f"{loss}")
    sends = 0
    with hg.Station(on_error=lambda *_: None) as station:
        qos = hg.QoS(ack="delivered", ack_timeout=0.1, resends=100)
        channel = station.channel("notes", Note, qos=qos)

        def receive(_: Note) -> None:
            nonlocal sends
            sends += 1
            if chance.random() < loss:
                raise TimeoutError("lost")

        channel.subscribe(receive)
        done = all(channel.push(Note(number), timeout=60.0) for number in range(events))
    return (sends - events) / events, done


@experiment("wang-resends")
def resend_rate(size: Size) -> Experiment:
    events = 30 if size.quick else 1_000
    rows, facts = [], []
    for loss in LOSSES:
        found, done = resends(loss, events)
        expected = loss / (1 - loss)
        rows.append((f"{loss:.0%}", f"{found:.4f}", f"{expected:.4f}"))
        facts.append(Fact(f"With {loss:.0%} loss every event is acknowledged.", done))
    return Experiment(
        "wang-resends",
        "Wang and others: resends of the event monitor over loss",
        f"{events:,} events, one consumer that loses deliveries by chance. The paper measures nothing.",
        ("loss", "resends an event", "expected"),
        tuple(rows),
        tuple(facts),
    )
