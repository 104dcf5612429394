"""A gateway joins two domains: a consumer in one, a supplier in the other, for the channels that it is told.

    with hg.Station(domain="west") as west, hg.Station(domain="east") as east:
        gateway = hg.Gateway(west, east, "air.**", where="altitude > 1000")

Events cross as they were pushed: the same supplier, epoch and sequence, source time, priority, key, headers,
correlation id, and what is left of their lifespan. Each carries the domains that it has been in. It enters no
domain twice, and where several gateways bring the same event each receiver gets it once, so domains may be
joined in chains, rings and meshes. On persistent channels the gateway has custody; see
`heliograph.federation.crossing`.

A gateway is a program of its own or a part of one, near the sources or near the sinks: it is where its two
stations are.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from heliograph.channel.forwarder import MOST_HOPS
from heliograph.errors import NotPossible
from heliograph.federation.crossing import Crossing, CrossingOptions
from heliograph.runtime.error_reporting import run_all
from heliograph.runtime.option_names import names_options
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.names import ChannelWatch
    from heliograph.federation.crossing import CrossingStats
    from heliograph.station import Station

log = logging.getLogger(__name__)

HOPS: Final = 8
"""Domains that an event may have been in, unless the gateway says otherwise."""
OPEN_LIMIT: Final = 5.0
"""Seconds that a new gateway waits for its channels to be open on both sides."""


class Gateway:
    """See the module.

    Args:
        here: a station of one domain.
        there: a station of another one.
        *channels: names, or patterns of names as in `station.subscribe`; more by `add`. Without any nothing
            crosses until then.
        where: only events for which this is true cross; it runs where they are pushed.
        params: values for `:name` and `%0` in it.
        both: whether events cross the other way, too.
        hops: domains that an event may have been in, the one that it was pushed in among them; those that
            have been in more do not cross.
        name: of the durable consumers of persistent channels; a gateway of the same name goes on where this
            one was, and of several that are there at once one does the work and the others stand by.
        start: where those begin when they are new: "now", if nothing else is said, or as in
            `channel.consumer`.
    """

    @names_options
    def __init__(
        self,
        here: Station,
        there: Station,
        *channels: str,
        where: str | None = None,
        params: Any = None,
        both: bool = False,
        hops: int = HOPS,
        name: str | None = None,
        start: Any = "now",
    ) -> None:
        _check_domains(here, there)
        if type(hops) is not int or not 1 <= hops <= MOST_HOPS:
            raise NotPossible("gateway", f"hops={hops!r}: a whole number from 1 to {MOST_HOPS}")
        if name is not None and (type(name) is not str or not name):
            raise NotPossible("gateway", f"name={name!r:.60}: a text")
        if not channels and (where is not None or params is not None or both):
            raise NotPossible("gateway", "where=, params= and both= are of channels: name some, or a pattern")
        self.here, self.there = here, there
        self._hops, self._name, self._start = hops, name, start
        self._lock = here.ports.tasks.lock("gateway")
        self._watches: list[ChannelWatch] = []
        self._crossings: dict[tuple[Channel[Any], str], Crossing] = {}
        self._closed = False
        self.owns_stations = False
        """Whether closing it closes its two stations: those that a file has opened."""
        try:
            for channel in channels:
                self.add(channel, where=where, params=params, both=both)
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Gateway:
        """Open the gateway and the two stations that a TOML file describes.

        See `heliograph.federation.gateway_file`; closing the gateway closes its stations.
        """
        from heliograph.federation.gateway_file import open_file  # noqa: PLC0415 - which makes gateways

        return open_file(path)

    @names_options
    def add(self, channels: str, *, where: str | None = None, params: Any = None, both: bool = False) -> None:
        """Have the channels of a name or pattern cross, from now on; returns when those that are there do.

        Args:
            channels: a name, or a pattern of names; those that are opened later cross then.
            where: as in `Gateway`.
            params: as in `Gateway`.
            both: as in `Gateway`.
        """
        ways = [(self.here, self.there), (self.there, self.here)] if both else [(self.here, self.there)]
        for source, target in ways:
            options = CrossingOptions(
                where, params, self._hops, self._name or f"gateway to {target.domain}", self._start
            )
            meet = partial(self._meet, source, target, options, channels)
            watch = source.each_channel(channels, meet)
            with self._lock:
                self._watches.append(watch)
        self._wait_tried(channels)

    def stats(self) -> tuple[CrossingStats, ...]:
        """What became of the events of each channel, by direction."""
        with self._lock:
            crossings = tuple(self._crossings.values())
        return tuple(crossing.stats() for crossing in crossings)

    def wait_open(self, channel: str, timeout: float = OPEN_LIMIT) -> bool:
        """Wait until a channel crosses; False when the time ran out."""
        return self._wait(
            lambda: any(s.channel == channel and not s.waits_for for s in self.stats()), timeout
        )

    def close(self) -> None:
        """Nothing crosses any more. What was not acknowledged is taken by the next gateway of this name.

        The two stations stay open, unless a file has opened them.
        """
        with self._lock:
            self._closed = True
            watches, self._watches = self._watches, []
            crossings = tuple(self._crossings.values())
        stations = (self.here, self.there) if self.owns_stations else ()
        run_all(
            [
                *(watch.close for watch in watches),
                *(crossing.close for crossing in crossings),
                *(station.close for station in stations),
            ]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Gateway {self.here.domain} to {self.there.domain}, {len(self._crossings)} crossings>"

    def _meet(
        self, source: Station, target: Station, options: CrossingOptions, _: str, channel: Channel[Any]
    ) -> None:
        """A channel that fits is open: have it cross, unless it does already."""
        assert target.domain is not None
        with self._lock:
            if self._closed:
                return
            for key in [key for key, crossing in self._crossings.items() if crossing.is_over]:
                del self._crossings[key]
            if (channel, target.domain) not in self._crossings:
                self._crossings[channel, target.domain] = Crossing(channel, source, target, options)

    def _wait_tried(self, channels: str) -> None:
        """Raises what bars a channel that is named for ever; of a pattern such channels are passed over."""
        until = self.here.ports.clock.monotonic_ns() + round(OPEN_LIMIT * 1e9)
        with self._lock:
            crossings = tuple(self._crossings.values())
        for crossing in crossings:
            crossing.wait_tried(seconds_until(self.here.ports.clock, until))
            if crossing.failure is not None and crossing.near.name == channels:
                raise crossing.failure

    def _wait(self, done: Callable[[], bool], timeout: float) -> bool:
        tasks, clock = self.here.ports.tasks, self.here.ports.clock
        until = clock.monotonic_ns() + round(timeout * 1e9)
        while not done():
            if clock.monotonic_ns() >= until:
                return False
            tasks.sleep(0.01)
        return True


def _check_domains(here: Station, there: Station) -> None:
    for station in (here, there):
        if station.domain is None:
            raise NotPossible("gateway", "joins stations of two domains: hg.Station(domain=...)")
        if "," in station.domain:
            raise NotPossible("gateway", f"domain {station.domain!r}: names of joined domains have no comma")
    if here.domain == there.domain:
        raise NotPossible(
            "gateway",
            f"both stations are of domain {here.domain!r}: stations of one domain are linked as it is",
        )
