"""Programs that the tests of links between hosts run, as those of `link_process`."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.errors import ForkedStation
from tests.e2e.link_process import say
from tests.e2e.link_support import LIMIT, Track, open_station

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = hg.QoS(durability="persistent")


def share(channel: str) -> None:
    """As a member of a group, say and acknowledge each event, until standard input ends."""
    with open_station(name="member") as station:
        member = station.channel(channel, Track, qos=KEPT).consumer(group="workers", ack="manual")

        def take() -> None:
            for delivery in member.deliveries():
                say("got", delivery.event.id)
                delivery.ack()

        threading.Thread(target=take, daemon=True).start()
        say("ready")
        sys.stdin.read()


def read_from_start(channel: str, number: str) -> None:
    """Read a history from its start, and what comes live behind it, and say whether that was all and once."""
    with (
        open_station(name="late") as station,
        station.channel(channel, Track, qos=KEPT).consumer(start="earliest") as consumer,
    ):
        ids: list[int] = []
        while len(ids) < int(number):
            track = consumer.pull(LIMIT)
            assert track is not None, f"only {len(ids)} came"
            ids.append(track.id)
            if len(ids) == 1:
                say("begun")
        say("done", ids == list(range(int(number))), consumer.pull(0))


def leave_open(channel: str) -> None:
    """End without closing anything, while a callback is busy and everything is declared."""
    station = open_station(name="careless")
    tracks = station.channel(channel, Track)
    tracks.subscribe(lambda _: time.sleep(0.001))
    assert tracks.wait_matched(2, LIMIT)
    for i in range(100):
        tracks.push(Track(i))
    say("ending")


def fork(channel: str) -> None:
    """Fork; the child's station refuses and the child ends by itself, the parent's goes on."""
    with open_station(name="parent") as station:
        tracks = station.channel(channel, Track)
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(1))
        child = os.fork()
        if child == 0:
            try:
                tracks.push(Track(2))
            except ForkedStation:
                sys.exit(
                    7
                )  # as programs do: the interpreter is taken apart, with all that Zenoh has left in it
            sys.exit(1)
        _, status = os.waitpid(child, 0)
        tracks.push(Track(3))
        assert tracks.settle(LIMIT)
        say("child", os.waitstatus_to_exitcode(status))
        sys.stdin.read()


def supply_large(channel: str, size: str) -> None:
    """Push an event of so many bytes, then a small one."""
    with open_station(name="large") as station:
        images = station.channel(channel, Image)
        assert images.wait_matched(1, LIMIT)
        images.push(Image(1, b"x" * int(size)))
        images.push(Image(2, b""))
        assert images.settle(LIMIT)
        say("pushed")
        sys.stdin.read()


class Image(hg.Event, name="air.image"):
    id: int
    pixels: bytes = b""


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "share": share,
        "read_from_start": read_from_start,
        "leave_open": leave_open,
        "fork": fork,
        "supply_large": supply_large,
    }
    programs[sys.argv[1]](*sys.argv[2:])
