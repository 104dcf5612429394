"""Replay: events of a channel's history pushed again into another channel, at the pace at which they came.

    done = tracks.replay(again)                                  in original time
    tracks.replay(again, speed=10, where="region = 'north'")     ten times as fast, only some
    tracks.replay(again, speed=None, name="rehearsal")           as fast as possible, once each across kills

An event keeps its source time, priority, correlation id and headers, and the order in which the history has
it. When it is due follows from the first event alone, so that one that is late moves none of the later ones.
Time is the station's own clock.

With a name the reading is that of a durable consumer, and each event is pushed under an id that is made of
its place: an event that was pushed and not acknowledged when the process was killed is dropped by the
target's history when it is pushed again. The target must be persistent for that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from heliograph.errors import NotPossible
from heliograph.model.event import LATENCY, OWN_HEADERS, SUB_PRIORITY, Event
from heliograph.runtime.durations import Durations
from heliograph.runtime.option_names import is_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.publish.supplier import Receipt
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.delivery import Delivery

T = TypeVar("T", bound=Event)


class Said(Protocol):
    """What travels with an event, as a header or a row of a history has it."""

    @property
    def source_ts(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def correlation_id(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, str] | None: ...


UNDER_WAY: Final = 500
"""Events that are pushed and not yet kept, at most."""
LIMIT: Final = 60.0
"""Seconds for the disk to keep one."""
NEXT: Final = 0.005
"""Seconds without a next event after which those before it are acknowledged."""
IDLE_NS: Final = 2_000_000
"""Nanoseconds until the next event that are enough to acknowledge those before it."""


class Replayed(msgspec.Struct):
    """What a replay did so far. Times are in seconds."""

    events: int = 0
    seconds: float = 0.0
    late_median: float = 0.0
    """How far behind its schedule an event was pushed: half of them at most so far, to within 1.6 %."""
    late_max: float = 0.0


class Replay:
    """One replay of a channel into another of the same station."""

    def __init__(
        self,
        source: Channel[Any],
        target: Channel[Any],
        *,
        speed: float | None,
        by: str,
        name: str | None,
        progress: Callable[[Replayed], object] | None,
    ) -> None:
        from heliograph.channel.channel import Channel  # noqa: PLC0415 - it imports this module

        if not isinstance(target, Channel):
            raise NotPossible(
                source.name, f"replay({target!r:.60}): into a channel of this station, station.channel(...)"
            )
        if speed is not None and (not is_number(speed) or not speed > 0):
            raise NotPossible(source.name, f"speed={speed!r}: a number above 0, or None for no pace")
        if by not in ("append", "source"):
            raise NotPossible(source.name, f"by={by!r}: allowed are 'append' and 'source'")
        if target is source or target.name == source.name:
            raise NotPossible(source.name, "it cannot be replayed into itself; open another channel for it")
        if not source.qos.journalled:
            raise NotPossible(source.name, "it keeps no history: hg.QoS(durability='persistent')")
        if name is not None and not target.qos.journalled:
            raise NotPossible(
                target.name, "a replay with a name needs a persistent target, or it could repeat events"
            )
        self._source, self._target = source, target
        self._speed, self._by, self._name = speed, by, name
        self._progress = progress
        self._clock = source.ports.clock
        self._sleep = source.ports.tasks.signal("replay").wait
        self._first: tuple[int, int] | None = None
        """The time of the first event, and when it was due on the monotonic clock."""
        self._late = Durations()
        self._under_way: deque[tuple[Delivery[Any], Receipt]] = deque()
        self.done = Replayed()

    def run(self, **selection: Any) -> Replayed:
        """Push what is selected, and return when all of it is kept."""
        began = self._clock.monotonic_ns()
        # One priority for all: a queue would hand the urgent ones out first.
        options: dict[str, Any] = {"name": self._name, "priority": 3, **selection}
        if self._name is not None:
            options |= {"ack": "manual", "max_in_flight": 2 * UNDER_WAY}
        with self._source.consumer(**options) as consumer:
            for delivery in self._deliveries(consumer):
                self._wait_for(delivery)
                self._push(delivery)
                self.done.events += 1
                self.done.seconds = (self._clock.monotonic_ns() - began) / 1e9
                if self._progress is not None:
                    self._progress(self.done)
            self._settle(0)
        self.done.late_median = self._late.percentile(0.5) / 1e9
        self.done.late_max = self._late.most / 1e9
        self.done.seconds = (self._clock.monotonic_ns() - began) / 1e9
        return self.done

    def _deliveries(self, consumer: Consumer[Any]) -> Iterator[Delivery[Any]]:
        """All that comes. What is under way is acknowledged before it waits, or it would come again."""
        while True:
            yield from consumer.deliveries(NEXT)
            self._settle(0)
            delivery = next(iter(consumer.deliveries()), None)
            if delivery is None:
                return
            yield delivery

    def _wait_for(self, delivery: Delivery[Any]) -> None:
        if self._speed is None:
            return
        header, now = delivery.header, self._clock.monotonic_ns()
        at = header.append_ts if self._by == "append" and header.append_ts is not None else header.source_ts
        if self._first is None:
            self._first = (at, now)
        due = self._first[1] + round((at - self._first[0]) / self._speed)
        if due - now > IDLE_NS:
            self._settle(0)  # or the leases of events that wait for their turn to be acknowledged would end
        while (left := due - self._clock.monotonic_ns()) > 0:
            self._sleep(left / 1e9)
        self._late.add(-left)

    def _push(self, delivery: Delivery[Any]) -> None:
        header = delivery.header
        said = said_before(header)
        if self._name is not None:
            said["id"] = f"replay/{self._name}/{header.partition}/{header.offset}"
        if not self._target.qos.journalled:
            self._target.push(delivery.event, **said)
            return
        self._under_way.append((delivery, self._target.push_nowait(delivery.event, **said)))
        self._settle(UNDER_WAY)

    def _settle(self, most: int) -> None:
        """Acknowledge what is kept, in order, until at most so many are under way."""
        while len(self._under_way) > most:
            delivery, receipt = self._under_way[0]
            receipt.result(LIMIT)
            self._under_way.popleft()
            if self._name is not None:
                delivery.ack()


def said_before(header: Said) -> dict[str, Any]:
    """What the push of an event said about it, for the push that repeats it."""
    headers = header.headers or {}
    said: dict[str, Any] = {"source_ts": header.source_ts, "priority": header.priority}
    if own := {key: value for key, value in headers.items() if key not in OWN_HEADERS}:
        said["headers"] = own
    if SUB_PRIORITY in headers:
        said["sub_priority"] = int(headers[SUB_PRIORITY])
    if LATENCY in headers:
        said["latency"] = int(headers[LATENCY]) / 1e9
    if header.correlation_id is not None:
        said["correlation_id"] = header.correlation_id
    return said
