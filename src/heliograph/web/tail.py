"""The live tail of a channel: what it carries from some point on, sampled so that a browser keeps up.

Suppliers never wait for a tail: on a channel without a history its queue drops the oldest events, and says
how many. A tick sends at most `PER_TICK` events; how many it skipped is in it. Its id is where the next one
begins, as {partition: offset}, so that a page whose connection broke goes on without a gap.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.cli.output import header_document
from heliograph.errors import HeliographError, NotPossible
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel
    from heliograph.channel.receive.delivery import Delivery
    from heliograph.station import Station

TICK: Final = 0.25
"""Seconds between two messages of a tail."""
PER_TICK: Final = 50
"""Events of one message: 200 a second."""
QUEUE: Final = 200
"""Events that wait for a tail, and that it reads at once."""
MAX_SHOWN: Final = 64 << 10
"""Bytes of an event that are shown whole."""
PREVIEW: Final = 2_000
"""Characters that are shown of a larger one."""


class Tails:
    """The channels that tails of a page have opened, each until its last tail ends."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._lock = station.ports.tasks.lock("tails of a page")
        self._opened: dict[str, list[Any]] = {}

    def open(self, name: str) -> Channel[Any]:
        """The channel, opened if only other stations have it."""
        with self._lock:
            for channel in self._station.channels():
                if channel.name == name and name not in self._opened:
                    return channel
            held = self._opened.setdefault(name, [None, 0])
            held[1] += 1
            if held[0] is None:
                try:
                    held[0] = open_as_others(self._station, name)
                except BaseException:
                    self.release(name, locked=True)
                    raise
            opened: Channel[Any] = held[0]
            return opened

    def release(self, name: str, *, locked: bool = False) -> None:
        """A tail of it has ended."""
        if not locked:
            with self._lock:
                self.release(name, locked=True)
            return
        held = self._opened.get(name)
        if held is None:
            return
        held[1] -= 1
        if held[1] == 0:
            del self._opened[name]
            if held[0] is not None:
                held[0].close(0.0)


def open_as_others(station: Station, name: str) -> Channel[Any]:
    """A channel that only other stations have, with classes made of their formats."""
    from heliograph.links.history.directory import classes_of, least_qos  # noqa: PLC0415 - only a domain needs it

    mesh = station.mesh
    if mesh is None or not mesh.formats(name):
        raise NotPossible(name, "no station has a channel of this name")
    return station.channel(name, *classes_of(mesh, name), qos=least_qos(mesh, name))


class Tail:
    """One viewer of one channel."""

    def __init__(self, channel: Channel[Any], where: str | None, start: Any) -> None:
        self._channel = channel
        options: dict[str, Any] = {"where": where or None}
        if channel.qos.journalled:
            options["start"] = "now" if start is None else start
        else:
            options |= {"queue": QUEUE, "overflow": "drop_oldest"}
        self._consumer = channel.consumer(**options)
        self._place: dict[str, int] = {}
        self._dropped = 0

    def tick(self) -> dict[str, Any] | None:
        """What came in the last moment; None when nothing did.

        A queue in memory is left to itself and emptied once: dropping in it costs less than reading from it.
        """
        clock = self._channel.ports.clock
        deadline = clock.monotonic_ns() + round(TICK * 1e9)
        if not self._channel.qos.journalled:
            self._channel.ports.tasks.sleep(TICK)
        latest: deque[Delivery[Any]] = deque(maxlen=PER_TICK)
        seen = 0
        for delivery in self._consumer.deliveries(seconds_until(clock, deadline)):
            seen += 1
            header = delivery.header
            if header.partition is not None and header.offset is not None:
                self._place[header.partition] = header.offset + 1
            latest.append(delivery)
            if clock.monotonic_ns() >= deadline and seen >= QUEUE:
                break
        dropped = sum(self._consumer.counts().dropped.values())
        skipped, self._dropped = seen - len(latest) + dropped - self._dropped, dropped
        if not seen and not skipped:
            return None
        now = clock.time_ns()
        return {
            "skipped": skipped,
            "events": [shown(one.event, one.header, now) for one in latest],
            "place": self._place,
        }

    def close(self) -> None:
        self._consumer.close()


def shown(event: Any, header: Any, now_ns: int) -> dict[str, Any]:
    """An event as the page gets it."""
    try:
        body = event.to_json()
    except HeliographError as error:
        return {"id": str(header.id), "header": header_document(header), "problem": str(error)}
    found: dict[str, Any] = {
        "id": str(header.id),
        "header": header_document(header),
        "age": (now_ns - header.source_ts) / 1e9,
    }
    if len(body) > MAX_SHOWN:
        found["large"] = len(body)
        found["preview"] = body[:PREVIEW].decode(errors="replace")
    else:
        found["event"] = msgspec.Raw(body)
    return found
