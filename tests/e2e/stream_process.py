"""Programs that the tests of streams between hosts run, as those of `link_process`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec

import heliograph as hg
from heliograph.links.mesh.mesh import Mesh
from heliograph.links.session import messages as m
from tests.e2e.link_process import say
from tests.e2e.link_support import LIMIT, Track, open_station

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.session.link import Link

LONG = hg.QoS(max_blocking=LIMIT)


def take(channel: str, *conditions: str) -> None:
    """Take what any of some conditions lets through.

    At a line, which may be another condition in their place, say what has come, and the streams.
    """
    with open_station(name="taker") as station:
        assert station.mesh is not None
        seen: list[int] = []
        tracks = station.channel(channel, Track, qos=LONG)

        receivers = [
            tracks.subscribe(lambda track: seen.append(track.id), where=where)
            for where in conditions or ("id >= 0",)
        ]
        say("ready")
        for line in sys.stdin:
            if line.strip():
                receivers[0].change(where=line.strip())
                say("changed", line.strip())
                continue
            streams = msgspec.to_builtins([one for one in station.mesh.streams() if one.peer and one.events])
            missed = dict(sum((Counter(link.missed) for link in station.mesh.stats()), Counter()))
            is_sound = seen == sorted(set(seen))
            say("taken", json.dumps([len(seen), is_sound, seen[-1:], streams, missed]))


def take_as_before(channel: str) -> None:
    """As `take`, as a station of the version of the protocol that has no streams."""
    m.VERSION = 4  # type: ignore[misc]  # this process is of another version
    hello, hear = Mesh._hello, Mesh.on_message

    def old_hello(mesh: Mesh, *arguments: Any, **more: Any) -> m.Hello:
        return msgspec.structs.replace(hello(mesh, *arguments, **more), streams=False)

    def old_hear(mesh: Mesh, link: Link, message: m.Message) -> None:
        assert not isinstance(message, m.StreamBegin | m.StreamEnd | m.StreamAck), "there is no such message"
        hear(mesh, link, message)

    with mock.patch.object(Mesh, "_hello", old_hello), mock.patch.object(Mesh, "on_message", old_hear):
        take(channel)


def push_on(channel: str) -> None:
    """Push until killed, in bursts of 500."""
    with open_station(name="pusher") as station:
        tracks = station.channel(channel, Track, qos=LONG)
        assert tracks.wait_matched(1, LIMIT)
        for i in count():
            tracks.push(Track(i))
            if i % 500 == 0:
                say("pushed", i)


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "take": take,
        "take_as_before": take_as_before,
        "push_on": push_on,
    }
    programs[sys.argv[1]](*sys.argv[2:])
