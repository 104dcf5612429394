"""For tests of your own code: a station in memory, and a clock that jumps.

    def test_fast_tracks_raise_an_alarm(helio):            # the fixture comes with the package
        tracks = helio.station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        watch(tracks)                                      # your code
        tracks.push(Track(id=7, speed=410))
        helio.settle()                                     # every callback has been called
        helio.clock.advance(60)                            # a minute later, at once
        assert alarms == [7]

Without pytest, `heliograph.testing.rig()` is the same as a context manager. Nothing touches the disk, threads
and queues are the real ones, and chance is seeded.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from heliograph.runtime.error_reporting import log_error
from heliograph.runtime.ports import Ports, ThreadTasks
from heliograph.sim import SimDisk, SimRandom
from heliograph.station import Station

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.model.event import Header

DEFAULT_LIMIT = 10.0
"""Seconds that `settle` waits: longer than any healthy test needs."""


class JumpingClock:
    """Stands still until it is told to jump, at the present or at an instant in nanoseconds since 1970."""

    def __init__(self, wall_ns: int | None = None) -> None:
        self._monotonic = time.monotonic_ns()
        self._wall = time.time_ns() if wall_ns is None else wall_ns
        self._lock = threading.Lock()
        self._told: list[Callable[[], object]] = []

    def monotonic_ns(self) -> int:
        return self._monotonic

    def time_ns(self) -> int:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time passes forwards; set_wall() moves the clock on the wall alone")
        self.advance_ns(round(seconds * 1e9))

    def advance_ns(self, nanoseconds: int) -> None:
        with self._lock:
            self._monotonic += nanoseconds
            self._wall += nanoseconds
        for told in self._told:
            told()

    def tell(self, call: Callable[[], object]) -> None:
        """Have something called after every jump."""
        self._told.append(call)

    def set_wall(self, seconds: float) -> None:
        """Put the clock on the wall, and only that one, to a time since 1970, as a correction would."""
        with self._lock:
            self._wall = round(seconds * 1e9)


class Rig:
    """A station in memory with its clock and disk.

    `Rig(disk=rig.disk.crash())` is what is there after a loss of power: nothing was closed, and only what had
    been synced is left; `kill()` in place of `crash()` ends the process and leaves the disk as it is.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        disk: SimDisk | None = None,
        clock: JumpingClock | None = None,
        on_error: Callable[[str, Header | None, BaseException], None] | None = None,
        **options: Any,
    ) -> None:
        self.errors: list[tuple[str, BaseException]] = []
        """What callbacks raised, and what else went wrong where no caller waits, with the name of each. The
        fixture fails a test that leaves any here: clear it where that is expected."""
        self._on_error = on_error
        self.clock = clock or JumpingClock()
        self.disk = disk or SimDisk()
        ports = Ports(self.clock, ThreadTasks(), SimRandom(str(seed)), self.disk)
        self.station = Station(ports=ports, on_error=self._note, **options)
        self.clock.tell(self.station.timers.run_due)

    def _note(self, receiver: str, header: Header | None, error: BaseException) -> None:
        self.errors.append((receiver, error))
        if self._on_error is None:
            log_error(receiver, header, error)
        else:
            self._on_error(receiver, header, error)

    def settle(self, timeout: float = DEFAULT_LIMIT) -> None:
        """Return when every callback has been given all that waits for it; AssertionError if never.

        Functions of groups that acknowledge (`group=` on a persistent channel) are not waited for: wait for
        what they do.
        """
        before = -1
        # Callbacks push too: it is over when a whole round has brought nothing new.
        while (pushed := sum(stats.pushed for stats in self.station.stats().values())) != before:
            before = pushed
            for channel in self.station.channels():
                if not channel.settle(timeout):
                    raise AssertionError(
                        f"{channel.name} still delivers after {timeout:g} s: {channel.stats()}"
                    )
            # After the channels: an event that a channel has just delivered may complete a match.
            for pattern in self.station.patterns():
                pattern.settle(timeout)


@contextmanager
def rig(*, seed: int = 0, **options: Any) -> Iterator[Rig]:
    """A rig that is closed at the end. Options are those of `Station`."""
    made = Rig(seed=seed, **options)
    try:
        yield made
    finally:
        made.station.close()
