"""Samples a domain once a second for as long as somebody looks, and makes the rows that the page shows.

One thread per page takes this station's snapshot, asks the others for theirs, and keeps five minutes of each.
It ends when the last viewer has gone: a page that nobody has open costs nothing.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import HeliographError
from heliograph.monitoring.rates import Rates, RateWindow
from heliograph.monitoring.snapshot import ask_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.monitoring.snapshot import ChannelSnapshot, StationSnapshot
    from heliograph.station import Station

EVERY: Final = 1.0
"""Seconds between two samples."""
LONGEST_PAUSE: Final = 10.0
"""Between two samples of a domain that takes long to answer: at most a tenth of a core is spent."""
SHARE: Final = 0.1


class Sampler:
    """See the module."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._lock = threading.Condition()
        self._viewers = 0
        self._runs = False
        self._closed = False
        self._windows: dict[str, RateWindow] = {}
        self._stations: list[StationSnapshot] = []
        self._silent: list[str] = []
        self.samples = 0
        """How many were taken."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Sample while inside."""
        with self._lock:
            self._viewers += 1
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="heliograph page sampler", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._viewers -= 1
                self._lock.notify_all()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        """Wait for a sample after the one that was seen; the number of the last."""
        with self._lock:
            self._lock.wait_for(lambda: self.samples > seen or self._closed, timeout)
            return self.samples

    def _run(self) -> None:
        clock = self._station.ports.clock
        while True:
            begun = clock.monotonic_ns()
            with suppress(HeliographError):  # it is being closed
                self._sample()
            took = (clock.monotonic_ns() - begun) / 1e9
            with self._lock:
                if self._closed or not self._viewers:
                    self._lock.wait_for(lambda: self._closed or self._viewers, EVERY)
                    if self._closed or not self._viewers:
                        self._runs = False
                        return
                self._lock.wait_for(lambda: self._closed, min(LONGEST_PAUSE, max(EVERY, took / SHARE)))

    def _sample(self) -> None:
        own = self._station.snapshot()
        others, silent = ask_all(self._station.mesh)
        stations = [own, *sorted(others, key=lambda one: (one.name, one.station))]
        with self._lock:
            known = {one.station for one in stations}
            self._windows = {name: window for name, window in self._windows.items() if name in known}
            for one in stations:
                self._windows.setdefault(one.station, RateWindow()).add(one)
            self._stations, self._silent = stations, silent
            self.samples += 1
            self._lock.notify_all()

    def overview(self) -> dict[str, Any]:
        """All stations and channels, a row each."""
        with self._lock:
            stations, silent = list(self._stations), list(self._silent)
            rates = {one.station: self._windows[one.station].rates() for one in stations}
            sample = self.samples
        return {
            "sample": sample,
            "time": stations[0].time_ns / 1e9 if stations else None,
            "here": f"{self._station.id:016x}",
            "silent": silent,
            "stations": [_station_row(one) for one in stations],
            "channels": [
                _channel_row(station, channel, rates[station.station].get(channel.name, Rates()))
                for station in stations
                for channel in station.channels
            ],
            "left_out": sum(one.channels_left_out for one in stations),
        }

    def detail(self, name: str) -> dict[str, Any]:
        """One channel in all stations, with its receivers and its last five minutes."""
        with self._lock:
            stations = list(self._stations)
            series = {one.station: self._windows[one.station].series(name) for one in stations}
        found = []
        for station in stations:
            channel = station.channel(name)
            if channel is not None:
                told = msgspec.to_builtins(channel)
                points = [(at, rates) for at, rates in series[station.station] if rates is not None]
                told["station"] = {"id": station.station, "name": station.name}
                told["series"] = {
                    "time": [at for at, _ in points],
                    "pushed": [rates.pushed for _, rates in points],
                    "delivered": [rates.delivered for _, rates in points],
                    "dropped": [rates.dropped for _, rates in points],
                    "pending": [rates.pending for _, rates in points],
                }
                found.append(told)
        return {"channel": name, "stations": found}


def _station_row(one: StationSnapshot) -> dict[str, Any]:
    return {
        "id": one.station,
        "name": one.name,
        "domain": one.domain,
        "pid": one.pid,
        "version": one.version,
        "uptime": one.uptime_s,
        "busy": one.busy_s,
        "free": one.free_bytes,
        "stalls": one.stalls,
        "links": msgspec.to_builtins(one.links),
    }


def _channel_row(station: StationSnapshot, one: ChannelSnapshot, rates: Rates) -> dict[str, Any]:
    return {
        "name": one.name,
        "station": station.station,
        "types": one.types,
        "durability": one.durability,
        "pushed": one.pushed,
        "delivered": one.delivered,
        "rate": rates.pushed,
        "out": rates.delivered,
        "drop_rate": rates.dropped,
        "wait": rates.wait_s,
        "pending": one.pending,
        "dropped": one.dropped,
        "failed": one.failed,
        "expired": one.expired,
        "suspended": one.suspended,
        "receivers": [(r.name, r.kind, r.pending, r.suspended) for r in one.receivers[:50]],
        "receivers_total": len(one.receivers) + one.receivers_left_out,
        "suppliers": [(s.name, s.is_remote, s.pushed) for s in one.suppliers[:50]],
        "unmatched": one.unmatched,
        "groups_apart": one.groups_apart,
        "lag": one.lag,
        "latency": one.latency,
        "lifespan": one.lifespan,
        "journal": None if one.journal is None else msgspec.to_builtins(one.journal),
        "durable": msgspec.to_builtins(one.durable),
    }
