"""Histories pushed again under a virtual clock: timers, deadlines and patterns fire as they would have.

    with hg.rehearse("data", {"air.tracks": Track, "air.weather": Weather}) as rehearsal:
        tracks, weather = rehearsal.channels.values()
        danger = hg.all_of(t=tracks.where("speed > 300"), w=weather, within=1.0, by="region", watchdog=5.0)
        rehearsal.station.subscribe(danger, print)
        rehearsal.run()

The station is in memory, in no domain, and its clock stands at the first event. A step moves the clock to the
next event, and on the way to each timer that is due before it, one after the other. It ends when every
callback has been given what waits for it. So a day of history takes as long as its events take to handle, and
two runs give the same.

An event is pushed at the instant at which it was appended, with the source time, priority, correlation id and
headers that it had. Events of several channels come in the order in which their station took them in. They
come from one supplier per channel: who pushed them is not repeated.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from heliograph.channel.replay import said_before
from heliograph.codec import decoder
from heliograph.errors import NotPossible
from heliograph.history_rows import HistoryRow, HistoryRows
from heliograph.model.event import info_of
from heliograph.testing import JumpingClock, Rig

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.model.event import Event, Header
    from heliograph.model.formats import Format
    from heliograph.qos.policies import QoS
    from heliograph.station import Station


class Rehearsed(NamedTuple):
    """How far a rehearsal has come."""

    events: int
    timers: int
    """Instants at which timers were due."""
    at_ns: int
    """The time on its clock, in nanoseconds since 1970."""


class _Next(NamedTuple):
    """A row of one of the channels. They compare by when they were taken in, then by where they are."""

    append_ts: int
    station_seq: int
    channel: str
    row: HistoryRow


class Rehearsal:
    """Made by `rehearse`; leaving the `with` block closes its station."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        channels: Mapping[str, type[Event] | tuple[type[Event], ...]],
        *,
        start: Any = "earliest",
        until: Any = "now",
        where: Mapping[str, str] | None = None,
        qos: QoS | None = None,
        on_error: Callable[[str, Header | None, BaseException], None] | None = None,
    ) -> None:
        if not channels:
            raise ValueError("no channel is named: rehearse(folder, {'air.tracks': Track})")
        for name in where or ():
            if name not in channels:
                raise NotPossible(name, f"a filter for a channel that is not among {', '.join(channels)}")
        histories = {
            name: HistoryRows(str(folder), name, start, until, (where or {}).get(name)) for name in channels
        }
        self._rows = merge(*(_rows(name, history) for name, history in histories.items()))
        self._next = next(self._rows, None)
        self._decoders: dict[tuple[str, bytes], Callable[[Any], Event]] = {}
        self._rig = Rig(
            clock=JumpingClock(None if self._next is None else self._next.append_ts), on_error=on_error
        )
        self._events = self._timers = 0
        self.channels: dict[str, Channel[Any]] = {
            name: self.station.channel(name, *(types if isinstance(types, tuple) else (types,)), qos=qos)
            for name, types in channels.items()
        }
        """The channels that events are pushed into, by name."""

    @property
    def station(self) -> Station:
        """For your own channels, subscriptions, patterns and timers."""
        return self._rig.station

    @property
    def errors(self) -> list[tuple[str, BaseException]]:
        """What callbacks raised, with the name of each."""
        return self._rig.errors

    @property
    def now_ns(self) -> int:
        """The time on its clock, in nanoseconds since 1970."""
        return self._rig.clock.time_ns()

    def step(self) -> bool:
        """Push the next event, when all is done that was due before it; False when there is none."""
        if self._next is None:
            return False
        after, self._next = self._next, next(self._rows, None)
        self._pass(after.append_ts - self.now_ns)
        event = self._decoder(after.channel, after.row.format)(after.row.record.body)
        self.channels[after.channel].push(event, **said_before(after.row.record))
        self._events += 1
        self._rig.settle()
        return True

    def run(self, seconds_after: float = 0.0) -> Rehearsed:
        """Push all events that are left, and let time pass after the last: watchdogs may still be due."""
        while self.step():
            pass
        self._pass(round(seconds_after * 1e9))
        return Rehearsed(self._events, self._timers, self.now_ns)

    def close(self) -> None:
        self.station.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decoder(self, channel: str, wire: Format) -> Callable[[Any], Event]:
        found = self._decoders.get((channel, wire.id))
        if found is None:
            classes = {info_of(cls).name: cls for cls in self.channels[channel].types}
            if wire.name not in classes:
                raise NotPossible(
                    channel, f"its history has events {wire.name!r}, for which no class is named"
                )
            found = self._decoders[channel, wire.id] = decoder(wire, classes[wire.name])
        return found

    def _pass(self, nanoseconds: int) -> None:
        """Let time pass, stopping where a timer is due: what it starts sees the time at which it was due."""
        clock, timers = self._rig.clock, self.station.timers
        end = clock.monotonic_ns() + max(0, nanoseconds)
        while (due := timers.first_due()) is not None and due <= end:
            clock.advance_ns(max(0, due - clock.monotonic_ns()))
            self._timers += 1
            self._rig.settle()
        clock.advance_ns(end - clock.monotonic_ns())


def rehearse(
    folder: str | os.PathLike[str],
    channels: Mapping[str, type[Event] | tuple[type[Event], ...]],
    **options: Any,
) -> Rehearsal:
    """Histories of a folder pushed again under a virtual clock: see the module.

    Args:
        folder: of a station, which may run.
        channels: which, and the class of the events of each; several classes as a tuple.
        options: `start` and `until` as for a consumer; `where` filters by channel; `qos` of the channels that
            events are pushed into; `on_error` as for a station.
    """
    return Rehearsal(folder, channels, **options)


def _rows(channel: str, history: HistoryRows) -> Iterator[_Next]:
    for row in history.rows():
        yield _Next(row.append_ts, row.record.station_seq, channel, row)
