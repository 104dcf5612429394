"""Programs that the tests of links run as processes of their own.

Each says on standard output what it did, line by line, so that a test can wait for it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import heliograph as hg
from heliograph.errors import QueryFailed, SupplierHeld
from tests.e2e.link_support import LIMIT, Track, open_station

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.qos.policies import Ack


def say(*words: object) -> None:
    print(" ".join(map(str, words)), flush=True)  # at once, so that a kill cuts no word


def supply(channel: str, number: str) -> None:
    """Wait for a consumer, push so many events, and stay until standard input ends."""
    with open_station(name="supplier") as station:
        tracks = station.channel(channel, Track)
        assert tracks.wait_matched(1, LIMIT)
        say("matched")
        for i in range(int(number)):
            tracks.push(Track(i, float(i % 1_000)))
        say("pushed", number)
        sys.stdin.read()


def work(channel: str) -> None:
    """As the only member of a group, acknowledge by hand until killed; say each that was."""
    with open_station(name="worker") as station:
        tracks = station.channel(channel, Track, qos=hg.QoS(durability="persistent"))
        with tracks.consumer(group="workers", ack="manual") as member:
            for delivery in member.deliveries():
                if delivery.event.id % 3:
                    delivery.ack()
                    say("acked", delivery.event.id)


def once_free(open_supplier: Callable[[], hg.Supplier[Track]]) -> hg.Supplier[Track]:
    """Its last holder may have been killed a moment ago."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            return open_supplier()
        except (QueryFailed, SupplierHeld):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def supply_named(channel: str) -> None:
    """Go on behind the last durable event of this name until killed; say where that was, and every ack."""
    with open_station(name="named") as station:
        tracks = station.channel(channel, Track, qos=hg.QoS(durability="persistent"))
        with once_free(lambda: tracks.supplier("radar-1")) as radar:
            say("last", radar.last_sequence)
            for i in count(radar.last_sequence + 1):
                radar.push(Track(i))
                say("acked", i)


def supply_forever(channel: str) -> None:
    """Push until killed; every thousandth is told."""
    with open_station(name="supplier") as station:
        tracks = station.channel(channel, Track, qos=hg.QoS(max_blocking=60.0))
        assert tracks.wait_matched(1, LIMIT)
        for i in count():
            tracks.push(Track(i))
            if i % 1_000 == 0:
                say("pushed", i)


def supply_batches(channel: str) -> None:
    """Push batches of 500 until killed; each is told."""
    with open_station(name="supplier") as station:
        tracks = station.channel(channel, Track, qos=hg.QoS(max_blocking=60.0))
        assert tracks.wait_matched(1, LIMIT)
        for batch in count():
            tracks.push_many([Track(500 * batch + i) for i in range(500)])
            say("pushed", batch)


def consume(channel: str, number: str, where: str = "id >= 0") -> None:
    """Take so many events and say whether they came in order, and the first and last."""
    with open_station(name="consumer") as station:
        tracks = station.channel(channel, Track, qos=hg.QoS(max_blocking=60.0))
        with tracks.consumer(where=where) as consumer:
            say("ready")
            ids: list[int] = []
            for _ in range(int(number)):
                track = consumer.pull(LIMIT)
                assert track is not None, f"only {len(ids)} came"
                ids.append(track.id)
                if len(ids) % 1_000 == 0:
                    say("got", len(ids))
            say("done", ids == sorted(set(ids)), ids[0], ids[-1])
            sys.stdin.read()


def hang(channel: str, durability: Literal["volatile", "persistent"]) -> None:
    """Take one event of a channel whose pushes wait for that, say so, and never come back from it."""
    with open_station(name="hung") as station:
        qos = hg.QoS(ack="delivered", durability=durability)

        def never(_: Track) -> None:
            say("in hand")
            sys.stdin.read()

        station.channel(channel, Track, qos=qos).subscribe(never)
        sys.stdin.read()


def supply_at(level: Ack, *folder: str) -> None:
    """Push at an ack level until killed, with a folder or to a keeper elsewhere; say each that was True."""
    with open_station(*folder, name="supplier") as station:
        tracks = station.channel("x", Track, qos=hg.QoS(durability="persistent", ack=level))
        if level == "delivered":
            tracks.subscribe(lambda _: None)
        for i in count():
            if tracks.push(Track(i)):
                say("acked", i)


def read_durably(level: Ack, name: str) -> None:
    """As a durable consumer, say each event; one that is said may come again to the next of that name."""
    with open_station(name="reader") as station:
        tracks = station.channel("x", Track, qos=hg.QoS(durability="persistent", ack=level))
        with tracks.consumer(name=name, start="earliest") as consumer:
            for track in consumer:
                say("got", track.id)


def tally(channel: str, path: str) -> None:
    """Write the id of each event to a file as its callback is called: what is there survives a kill."""
    with (
        open_station(name="tally") as station,
        Path(path).open("ab", 0) as file,
    ):
        tracks = station.channel(channel, Track)
        tracks.subscribe(lambda track: file.write(b"%d\n" % track.id), inline=True)
        say("ready")
        sys.stdin.read()


def hear(*channels: str) -> None:
    """Count what comes of channels, and whenever a line comes say that, and what is known to be missed.

    Those whose names begin with `lossy` are best-effort ones.
    """
    with open_station(name="hearer") as station:
        assert station.mesh is not None
        seen: dict[str, list[int]] = {channel: [] for channel in channels}
        for channel in channels:
            lossy = channel.startswith("lossy")
            qos = hg.QoS(reliability="best-effort") if lossy else hg.QoS(queue=100)
            tracks = station.channel(channel, Track, qos=qos)
            tracks.subscribe(lambda track, ids=seen[channel]: ids.append(track.id), inline=True)
        for _ in sys.stdin:
            counts = {channel: len(ids) for channel, ids in seen.items()}
            ordered = all(ids == sorted(set(ids)) for ids in seen.values())
            missed = [dict(link.missed) for link in station.mesh.stats()]
            say("heard", json.dumps([counts, ordered, missed]))


def starve(channel: str) -> None:
    """Consume; at a line, have no descriptor left, and at the next, have them back and say what was told."""
    told: list[str] = []
    with open_station(
        name="starved",
        on_error=lambda _, __, error: told.append(type(error).__name__),
    ) as station:
        tracks = station.channel(channel, Track)
        tracks.subscribe(lambda track: say("got", track.id))
        say("ready")
        sys.stdin.readline()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        taken: list[int] = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        say("starving")
        sys.stdin.readline()
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert station.mesh is not None
        say("told", json.dumps([told, station.mesh.stalls]))
        sys.stdin.read()


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "supply": supply,
        "supply_forever": supply_forever,
        "supply_named": supply_named,
        "supply_batches": supply_batches,
        "work": work,
        "consume": consume,
        "hear": hear,
        "hang": hang,
        "tally": tally,
        "supply_at": supply_at,
        "read_durably": read_durably,
        "starve": starve,
    }
    programs[sys.argv[1]](*sys.argv[2:])
