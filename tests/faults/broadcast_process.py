"""Stations that broadcast and hear broadcasts until they are killed: `python -m ... ROLE DOMAIN ...`.

    supply MARK     pushes numbered parcels without end: one by one and in batches
    hear HOW        checks that the parcels of each source follow each other, `inline` or `queued`

Each line on the standard input of a hearer is answered with what it has heard by then, as JSON. Its end
ends either.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import time
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

import heliograph as hg
from heliograph.errors import Closed
from heliograph.links.broadcast.carrier_choice import NORMAL
from heliograph.links.broadcast.reader_admission import SLOTS
from heliograph.ring.layout import SLOT

if TYPE_CHECKING:
    from collections.abc import Callable

CHANNEL: Final = "post.parcels"
HEARERS: Final = 3
"""With the one in the test's own process."""
LIMIT: Final = 60.0
"""Seconds: the others may be killed, and started again, several times."""
QOS: Final = hg.QoS(max_blocking=LIMIT)
NUMBER: Final = struct.Struct("<q")
SMALLEST: Final = 2_000
"""Bytes of a load."""
LAP: Final = SLOTS * SLOT // SMALLEST + 1
"""Parcels that are more than a ring holds."""


class Parcel(hg.Event, name="post.parcel"):
    source: str
    number: int
    load: str


def parcel(source: str, number: int) -> Parcel:
    """The parcel of a source with that number; its load follows from it."""
    return Parcel(source, number, str(number % 10) * (SMALLEST + number * 7919 % 1_000))


class OffsetRange(NamedTuple):
    """What was heard of a source: from `first` on, and all before `following`."""

    first: int
    following: int


class Heard:
    """What has come of each source; whatever does not follow, or is not whole, is written down."""

    def __init__(self) -> None:
        self.spans: dict[str, OffsetRange] = {}
        self.wrong: list[str] = []

    def take(self, got: Parcel) -> None:
        span = self.spans.get(got.source) or OffsetRange(got.number, got.number)
        if got != parcel(got.source, got.number):
            self.wrong.append(f"parcel {got.number} of {got.source} is damaged")
        if got.number != span.following:
            self.wrong.append(f"parcel {got.number} of {got.source} after {span.following - 1}")
        self.spans[got.source] = OffsetRange(span.first, got.number + 1)

    def following(self, source: str) -> int:
        """The first number that has not come."""
        return self.spans[source].following if source in self.spans else 0


class Answer(msgspec.Struct):
    """What a hearer says of itself."""

    stations: list[str]
    spans: dict[str, OffsetRange]
    wrong: list[str]
    balanced: bool


def source_of(station: hg.Station) -> str:
    return f"{station.id:016x}"


def sources_there(station: hg.Station) -> set[str]:
    """The other stations that a station knows."""
    assert station.mesh is not None
    return {f"{other.station:016x}" for other in station.mesh.stations()}


def supply(domain: str, mark: str) -> None:
    """Push; `mark` holds how many are known to be in the ring, where they outlive this process."""
    chance = random.Random(os.getpid())
    file = os.open(mark, os.O_RDWR | os.O_CREAT)
    with hg.Station(domain=domain, transport="ring") as station:
        post = station.channel(CHANNEL, Parcel, qos=QOS)
        print(f"source {source_of(station)}", flush=True)  # at once: a kill cuts no word
        assert post.wait_matched(HEARERS, LIMIT)
        Thread(target=_end_with_standard_input, daemon=True).start()
        pushed = 0
        while True:
            pushed += _push_some(post, source_of(station), pushed, chance)
            if _are_all_in_the_ring(station, post):
                os.pwrite(file, NUMBER.pack(pushed), 0)
            time.sleep(0.0005)  # hearers have as little of the machine as this one


def _end_with_standard_input() -> None:
    sys.stdin.read()
    os._exit(0)


def _push_some(post: hg.Channel[Parcel], source: str, first: int, chance: random.Random) -> int:
    if chance.random() < 0.5:
        post.push(parcel(source, first))
        return 1
    batch = [parcel(source, first + i) for i in range(chance.randrange(1, 40))]
    post.push_many(batch)
    return len(batch)


def _are_all_in_the_ring(station: hg.Station, post: hg.Channel[Parcel]) -> bool:
    assert station.mesh is not None
    broadcast = station.mesh._airing._broadcasts[NORMAL]
    with broadcast._sending:
        return post.settle(0) and not broadcast._unsent


def hear(domain: str, how: str) -> None:
    heard = Heard()
    with hg.Station(domain=domain, transport="ring") as station:
        post = station.channel(CHANNEL, Parcel, qos=QOS)
        if how == "inline":
            post.subscribe(heard.take, inline=True)
        else:
            Thread(target=_pull_all, args=(post.consumer(), heard.take), daemon=True).start()
        print(f"source {source_of(station)}", flush=True)  # at once: a kill cuts no word
        for line in sys.stdin:
            there = sorted(sources_there(station))
            answer = Answer(there, dict(heard.spans), heard.wrong, post.stats().balanced)
            print(line.strip(), msgspec.json.encode(answer).decode(), flush=True)


def _pull_all(consumer: hg.Consumer[Parcel], take: Callable[[Parcel], object]) -> None:
    try:
        for got in consumer:
            take(got)
    except Closed:
        pass


if __name__ == "__main__":
    {"supply": supply, "hear": hear}[sys.argv[1]](*sys.argv[2:])
