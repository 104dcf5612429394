"""The contract of a link: what every transport and connection does.

A *transport* finds the other stations of a domain and makes connections to them; a *connection* carries
frames to one of them and back. Socket, Zenoh and simulation are transports. Above them,
`heliograph.links.session.link.Link` turns connections that may break, and frames that may be lost, repeated
or reordered, into interest, events, queries and liveliness between two stations.

    frame        some bytes that arrive whole or not at all
    lane         frames of one lane carry a dense sequence, so that a loss is seen and repaired
    liveliness   a transport knows which stations are alive, and says so when one is gone

The clocks of stations have nothing in common: an event carries what is left of its lifetime, and what it
waits on the way counts too (`heliograph.links.session.lifetimes`).

What a connection need not do: keep order, avoid loss or repetition, or notice that the peer has died. What
it must do: never join, split or change frames, and refuse those larger than `MAX_FRAME`, and before the hello
those larger than `MAX_HELLO`, before any memory is set aside for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from heliograph.links.transports.peer_process import PeerProcess
    from heliograph.runtime.ports import Clock

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_FRAME: Final = 64 << 20
"""Bytes of the largest frame that is read."""

MAX_HELLO: Final = 16 << 10
"""Bytes of the largest frame that is read from a caller that has not said hello."""

KNOCK: Final = b"\x05"
"""The only frame of a connection by which a station asks another to look around and dial it."""

NETWORK: Final = "zenoh"
"""What carries the frames of a connection between hosts, which share no memory."""

SOCKET: Final = "socket"
"""What carries those between stations of one host, which have rings in place of streams."""

CONTROL: Final = 0
"""The lane of interest, queries and everything else that is no event."""
LANES: Final = 6
"""The control lane, and one lane for each of the five priorities."""


class Connection(Protocol):
    """Frames to and from one station. One task receives; sending is under a lock of the link."""

    def offer(self, frame: Sequence[Buffer]) -> bool:
        """Take a frame, given in parts, and send as much as goes without waiting.

        False when some of it still waits for `flush`, which must come before the next `offer`. Raises
        LinkLost when the connection has ended. Whatever else is raised out of it, as a signal handler may
        do at any instant, the frame is sent whole or not at all.
        """
        ...

    @property
    def has_unsent(self) -> bool:
        """Whether some of a frame may wait for `flush`."""
        ...

    def flush(self) -> None:
        """Send what waits, waiting as long as it takes; LinkLost when the connection ends.

        By one task, without the lock: nobody offers anything meanwhile.
        """
        ...

    def receive_hello(self, clock: Clock, limit: float | None) -> list[memoryview]:
        """As `receive`, once and first: LinkLost when no whole frame came within so many seconds."""
        ...

    def receive(self) -> list[memoryview]:
        """Wait for frames and return all that have come. LinkLost at the end, BadFrame for what is none."""
        ...

    def drain(self) -> None:
        """End it but for what has come by now: that can still be received, then LinkLost. From any task."""
        ...

    def close(self) -> None:
        """End it; whoever waits in it is let go with LinkLost. As often as you like."""
        ...

    def abandon(self) -> None:
        """In the child of a fork: let go of it; the parent's connection goes on."""
        ...

    @property
    def carrier(self) -> str:
        """What carries its frames: `socket`, `memory`, `zenoh`."""
        ...

    @property
    def process(self) -> PeerProcess:
        """The process at the other end as the kernel says; `UNKNOWN` where nobody can know."""
        ...

    @property
    def sent_bytes(self) -> int: ...

    @property
    def received_bytes(self) -> int: ...


class StreamKey(NamedTuple):
    """One lane of a stream."""

    channel: str
    derivation: str
    """Which events of the channel: a digest of what was asked for."""
    station: int
    """That puts them."""
    lane: int


class StreamPutter(Protocol):
    """Puts into one lane of a stream, for some stations."""

    def put(self, data: bytes) -> None:
        """Send it to all of them, without waiting for any of them for long."""
        ...

    def close(self) -> None: ...


class StreamTransport(Protocol):
    """Carries what is put once to all stations that it is for. Puts may be lost, and are never changed.

    Those of one lane arrive in the order in which they were put, those of another lane may overtake them.
    """

    def putter(self, key: StreamKey, stations: Iterable[int]) -> StreamPutter:
        """Whoever else wants to may hear it, too."""
        ...

    def receive(self, most: int) -> list[tuple[StreamKey, bytes]]:
        """Wait until something was put for this station, or `wake`; so many of all that has come.

        When more comes than is taken, the oldest is let go of. LinkLost at the end. By one task at a time.
        """
        ...

    def wake(self) -> None:
        """Have the task return that waits, or the next one that would."""
        ...


Connected: TypeAlias = "Callable[[Connection, int | None], None]"
"""Called with each new connection, and the station that was dialled; None when this side was."""


class Transport(Protocol):
    """Finds the other stations and connects to them."""

    def start(self, on_connection: Connected, on_gone: Callable[[int], None]) -> None:
        """Make this station known, and begin to look for others. Connections are made once per pair."""
        ...

    def others(self) -> set[int]:
        """The other stations that are alive, as far as can be known."""
        ...

    @property
    def streams(self) -> StreamTransport | None:
        """What carries streams to the stations that it connects to; None: nothing does."""
        ...

    @property
    def secret(self) -> bytes:
        """What this station says with its hello, so that others know that it is this one."""
        ...

    def doubt(self, station: int, process: PeerProcess, secret: bytes) -> str:
        """Why a caller that claims to be a station is not that one; empty when it is."""
        ...

    def linked(self, station: int, process: PeerProcess) -> None:
        """A connection to this station, which is that process, stands, so no other is needed."""
        ...

    def lost(self, station: int, *, soon: bool = True) -> None:
        """A connection to this station has ended; while it is alive another is made, if wanted at once."""
        ...

    def look(self) -> None:
        """Look around for stations now: one has knocked."""
        ...

    def refuse(self, station: int) -> None:
        """Make no more connections to this station."""
        ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In the child of a fork: let go of everything without a trace; the parent goes on."""
        ...
