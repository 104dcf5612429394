"""Live discovery of channels: what peers have and a pattern of names of this station fits is opened here.

    station.subscribe("air.*", callback)        # also channels that only other stations have, now or later

A discovered channel carries classes made of the formats that its peers tell of. It belongs to the discovery:
it is closed when no pattern wants it, or no peer has it any more, unless the program has opened it itself
since. A program that opens it with its own classes or QoS gets a channel with these, to which patterns
subscribe anew.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import Closed, HeliographError, LinkError
from heliograph.links.history.directory import classes_of, least_qos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.model.event import Event
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Clock, Tasks

log = logging.getLogger(__name__)

WAKE_SECONDS: Final = 1.0
"""How long it waits for a change at most before it looks whether it was closed."""
SHORTEST_PAUSE: Final = 0.005
"""Seconds between two looks: peers that open many channels at once are looked at once."""
PAUSE: Final = 4
"""How many times as long as a look takes it pauses at least: of ten thousand channels that is a while."""
CLOSE_LIMIT: Final = 5.0
"""Seconds in which a channel that nobody wants any more delivers what waits."""


class ChannelDiscovery:
    """Opens and closes channels of peers for the patterns of one station.

    Args:
        wants: whether a pattern of this station fits a name.
        opened: a channel of this station, by its name, or None.
        open_channel: opens one, as the discovery's own.
    """

    def __init__(
        self,
        mesh: Mesh,
        clock: Clock,
        tasks: Tasks,
        *,
        wants: Callable[[str], bool],
        opened: Callable[[str], Channel[Any] | None],
        open_channel: Callable[[str, tuple[type[Event], ...], QoS | None], Channel[Any]],
    ) -> None:
        self._mesh = mesh
        self._clock = clock
        self._tasks = tasks
        self._wants = wants
        self._opened = opened
        self._open_channel = open_channel
        # Held while channels are opened and closed, by the discovery or in place of its own.
        self._lock = tasks.lock("discovery of channels")
        self._own: dict[str, Channel[Any]] = {}
        self._refused: dict[str, frozenset[bytes]] = {}
        """Channels that could not be opened, and with which formats: tried again when these change."""
        self._is_closing = False
        self._task = tasks.spawn("discovery of channels", self._run)

    def look(self) -> None:
        """Open what fits and is not open, and close what nobody wants or has any more."""
        with self._lock:
            there = self._there()
            for name in [name for name in self._own if name not in there]:
                self._own.pop(name).close(CLOSE_LIMIT)
            for name, formats in there.items():
                if self._is_closing:
                    return
                if self._refused.get(name) != formats:
                    self._carry(name, formats)

    @contextmanager
    def given_up(self, name: str, *, as_it_is: bool) -> Iterator[None]:
        """A channel becomes the program's: as it is, or closed, to be opened as the program says."""
        with self._lock:
            channel = self._own.pop(name, None)
            if channel is not None and not as_it_is:
                channel.close(CLOSE_LIMIT)
            yield

    def wake(self) -> None:
        """What is wanted has changed."""
        self._mesh.wake()

    def close(self) -> None:
        self._is_closing = True
        self._mesh.wake()
        self._task.join()

    def _run(self) -> None:
        seen = -1
        while not self._is_closing:
            seen = self._mesh.wait_changed(seen, WAKE_SECONDS)
            begun = self._clock.monotonic_ns()
            try:
                self.look()
            except Closed:
                return
            except Exception:
                log.exception("channels of other stations could not be looked at; that is tried again")
            took = (self._clock.monotonic_ns() - begun) / 1e9
            self._tasks.sleep(max(SHORTEST_PAUSE, PAUSE * took))

    def _there(self) -> dict[str, frozenset[bytes]]:
        """The channels that peers have and a pattern wants, with the formats that they have them in."""
        found: dict[str, set[bytes]] = {}
        for other in self._mesh.stations():
            for state in other.channels:
                # Those that are discovered there, or handed on to a worker, are had by somebody else.
                if not (state.discovered or state.relayed) and self._wants(state.name):
                    found.setdefault(state.name, set()).update(state.formats)
        return {name: frozenset(formats) for name, formats in found.items() if formats}

    def _carry(self, name: str, formats: frozenset[bytes]) -> None:
        """Have a channel open here, with the types that peers have it with, unless the program has it."""
        channel = self._opened(name)
        if channel is not None and channel is not self._own.get(name):
            return
        try:
            types = tuple(classes_of(self._mesh, name))
            if channel is None and types:
                self._own[name] = self._open_channel(name, types, least_qos(self._mesh, name))
            elif channel is not None and (new := tuple(cls for cls in types if cls not in channel.types)):
                channel.add_types(new)
        except Closed:
            raise
        except LinkError as error:  # who has it does not answer now: it is tried again with the next look
            log.info("channel %s of another station is not subscribed to yet: %s", name, error)
        except HeliographError as error:
            self._refused[name] = formats
            log.warning("channel %s of another station is not subscribed to: %s", name, error)
