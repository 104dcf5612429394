"""Streams over Zenoh: a put goes once to each next hop towards the stations that its key names.

    hg1/<domain>/live/<channel>/<derivation>/<station>/<priority>/<audience>

Domain and channel are percent-encoded, the derivation and the station that puts are hexadecimal digits. The
audience is a list of stations by the last eight digits of each, such as `-00c0ffee-deadbeef-`: a station
subscribes to all keys that have its own there (`$*-deadbeef-$*`), so that it has one subscriber and one
thread for all that it takes, and gets nothing else. Whoever wants to hear a channel besides subscribes to
`hg1/<domain>/live/<channel>/**`.

Puts are dropped where a link is congested. A station that takes less than comes loses the oldest of it: the
channel of its subscriber is a ring, so that nothing of it holds up Zenoh.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from heliograph.errors import LinkLost
from heliograph.links.contract import LANES, StreamKey

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable

    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

PRIORITIES: Final = ("DATA", "DATA_LOW", "DATA", "DATA_HIGH", "INTERACTIVE_LOW", "INTERACTIVE_HIGH")
"""What Zenoh calls the priority of each lane; sessions of stations have that of the first."""
WAITING: Final = 8_192
"""Puts that wait to be taken in."""
MAX_KEYS: Final = 65_536
"""Keys of others that are remembered; more are taken apart again each time."""
LOOK_EVERY: Final = 0.1
"""Seconds between two looks at whether there is a session again."""
WAKE: Final = b""


class ZenohPutter:
    """See `heliograph.links.contract.StreamPutter`."""

    def __init__(self, streams: ZenohStreams, key: str, priority: Any) -> None:
        self._streams = streams
        self._key = key
        self._priority = priority
        self._session: Any = None
        self._publisher: Any = None

    def put(self, data: bytes) -> None:
        streams = self._streams
        streams.inside.append(None)  # before the session is looked at: whoever closes it waits for this
        try:
            publisher = self._declared_now()
            if publisher is not None:
                publisher.put(data)
        except streams.zenoh.ZError as error:  # the session is closed; readers ask for what they miss
            log.debug("%s: %s", self._key, error)
        finally:
            streams.inside.pop()

    @property
    def is_heard(self) -> bool:
        """Whether anybody subscribes to it."""
        publisher = self._declared_now()
        try:
            return publisher is not None and bool(publisher.matching_status.matching)
        except self._streams.zenoh.ZError:
            return False

    def _declared_now(self) -> Any:
        """The publisher in the session of this moment; None: there is none."""
        session = self._streams.session
        if session is None:
            return None
        if self._session is not session:
            self._publisher = self._streams.declared(session, self._key, self._priority)
            self._session = session
        return self._publisher

    def close(self) -> None:
        publisher, self._publisher, self._session = self._publisher, None, None
        if publisher is not None and self._streams.session is not None:
            with suppress(self._streams.zenoh.ZError):  # it has gone with its session
                publisher.undeclare()

    def abandon(self) -> list[Any]:
        return [self._publisher]


class ZenohStreams:
    """See the module, and `heliograph.links.contract.StreamTransport`.

    Args:
        zenoh: the library.
        prefix: of all keys of the domain.
        station: this one.
        inside: has as many entries as there are threads inside of Zenoh.
    """

    def __init__(self, zenoh: Any, prefix: str, station: int, tasks: Tasks, inside: deque[None]) -> None:
        self.zenoh = zenoh
        self.inside = inside
        self.session: Any = None
        self._prefix = f"{prefix}/live"
        self._tag = _tag(station)
        self._own = f"{self._prefix}/-/-/{station:016x}/0/-{self._tag}-"
        self._reopened = tasks.signal("session of streams")
        self._subscriber: Any = None
        self._keys: dict[str, StreamKey | None] = {}
        self._putters: list[ZenohPutter] = []
        self.is_closed = False

    def putter(self, key: StreamKey, stations: Iterable[int]) -> ZenohPutter:
        audience = "-".join(sorted(map(_tag, stations)))
        channel = quote(key.channel, safe="")
        text = f"{self._prefix}/{channel}/{key.derivation}/{key.station:016x}/{key.lane}/-{audience}-"
        return self.plain_putter(text, PRIORITIES[key.lane])

    def plain_putter(self, key: str, priority: str = PRIORITIES[0]) -> ZenohPutter:
        """Puts under any key."""
        putter = ZenohPutter(self, key, getattr(self.zenoh.Priority, priority))
        self._putters = [one for one in self._putters if one.abandon()[0] is not None]
        self._putters.append(putter)
        return putter

    def declared(self, session: Any, key: str, priority: Any) -> Any:
        return session.declare_publisher(
            key,
            congestion_control=self.zenoh.CongestionControl.DROP,
            priority=priority,
            allowed_destination=self.zenoh.Locality.REMOTE,
        )

    def receive(self, most: int) -> list[tuple[StreamKey, bytes]]:
        subscriber = self._subscriber
        if subscriber is None:
            if self.is_closed:
                raise LinkLost("the network", "is closed")
            self._reopened.wait(LOOK_EVERY)
            return []
        found: list[tuple[StreamKey, bytes]] = []
        try:
            sample = subscriber.recv()
            while sample is not None:
                text = str(sample.key_expr)
                key = self._keys.get(text) or self._parsed(text)
                if key is not None:
                    found.append((key, sample.payload.to_bytes()))
                sample = subscriber.try_recv() if len(found) < most else None
        except self.zenoh.ZError:
            if self._subscriber is subscriber:
                self._subscriber = None
        return found

    def wake(self) -> None:
        self._reopened.notify()
        self.inside.append(None)
        try:
            session = self.session
            if session is not None:
                session.put(self._own, WAKE, allowed_destination=self.zenoh.Locality.SESSION_LOCAL)
        except self.zenoh.ZError as error:  # it is closed, and whoever waited in it has returned
            log.debug("%s", error)
        finally:
            self.inside.pop()

    # For the transport

    def opened(self, session: Any) -> None:
        """There is a session from now on."""
        self.session = session
        expression = f"{self._prefix}/*/*/*/*/$*-{self._tag}-$*"
        self._subscriber = session.declare_subscriber(expression, self.zenoh.handlers.RingChannel(WAITING))
        self._reopened.notify()

    def closing(self) -> None:
        """There is none any more: it is about to be closed."""
        self.session = None

    def close(self) -> None:
        """Nor will there be."""
        self.is_closed = True
        self._subscriber = None
        self._reopened.notify()

    def abandoned(self) -> list[Any]:
        """What must not be let go of in the child of a fork."""
        putters = [kept for putter in self._putters for kept in putter.abandon()]
        return [self.session, self._subscriber, *putters]

    def _parsed(self, text: str) -> StreamKey | None:
        try:
            channel, derivation, station, lane, _ = text.removeprefix(f"{self._prefix}/").split("/")
            key = StreamKey(unquote(channel), derivation, int(station, 16), int(lane))
        except ValueError:
            return None
        if len(station) != 16 or not 0 < key.lane < LANES:
            return None
        if len(self._keys) >= MAX_KEYS:
            self._keys.clear()
        self._keys[text] = key
        return key


def _tag(station: int) -> str:
    """How an audience names a station; two of one tag get what is for either, and know what is theirs."""
    return f"{station & 0xFFFFFFFF:08x}"
