"""A station's own events, on the channel `$station`: channels that open and close, errors, who never meets.

    station.channel("$station", hg.StationEvent).subscribe(print, where="kind = 'error'")

They are pushed where a program has opened that channel, and cost nothing where none has; stations of a domain
that have it open see each other's. Nobody waits for a receiver of them, and its trouble is not told on it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from heliograph.errors import HeliographError
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.model.event import Header
    from heliograph.runtime.error_reporting import OnError

STATION: Final = "$station"
MAX_SAID: Final = 1_000
"""Characters of what an event of a station says."""

Kind: TypeAlias = Literal["opened", "closed", "error", "mismatch", "granted"]


class StationEvent(Event, name="helio.station"):
    """Something that happened in a station."""

    station: str
    """Its id."""
    name: str
    """Its name."""
    kind: str
    """"opened" and "closed" are about a channel, "error" is what `on_error` is told, "mismatch" why a writer
    and a reader never meet, "granted" what became of policies that were negotiated."""
    channel: str
    """Empty where it is about none."""
    receiver: str
    """Of an error: what raised, or missed something."""
    text: str


class StationEvents:
    """Pushes them, where somebody has the channel open."""

    def __init__(self, station: int, name: str, channel: Callable[[str], Channel[Any] | None]) -> None:
        self._station = f"{station:016x}"
        self._name = name
        self._channel = channel

    def tell(self, kind: Kind, channel: str = "", receiver: str = "", text: str = "") -> None:
        """Without waiting for anybody."""
        told = self._channel(STATION)
        if told is None or told.closed or channel == STATION:
            return
        with suppress(HeliographError):  # it is just being closed, or carries other events
            told.push_nowait(
                StationEvent(self._station, self._name, kind, channel, receiver, text[:MAX_SAID])
            )

    def reporting(self, report: OnError) -> OnError:
        """A report that is told on the channel, too."""

        def told(receiver: str, header: Header | None, error: BaseException) -> None:
            report(receiver, header, error)
            channel = "" if header is None else header.channel
            self.tell("error", channel, receiver, f"{type(error).__name__}: {error}")

        return told
