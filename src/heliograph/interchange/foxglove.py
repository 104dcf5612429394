"""Live channels for Foxglove: a WebSocket server that Foxglove's app connects to.

    with FoxgloveServer(station, ["robot.**"]) as server:
        print(server.link)                       # ws://127.0.0.1:8765

Each channel of the domain whose name fits is a topic of JSON messages with a JSON Schema, as in an MCAP file.
A channel is subscribed to while a viewer looks at its topic, and not otherwise. Suppliers never wait for a
viewer: what a slow one has not taken is dropped, oldest first, here and in the server.

The protocol has no password, and a page of any site may connect to it: only loopback addresses are served,
and every program of this machine can read along. From elsewhere, use `ssh -L 8765:127.0.0.1:8765 host`.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from heliograph.channel.names import pattern_regex
from heliograph.errors import HeliographError, MissingExtra, NotPossible
from heliograph.interchange.json_schema import schema_of
from heliograph.model.event import info_of
from heliograph.runtime.endpoints import EndpointAddress
from heliograph.web.tail import Tails

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from heliograph.channel.channel import Channel
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.model.event import Event, Header
    from heliograph.model.formats import Format
    from heliograph.station import Station

log = logging.getLogger(__name__)

PORT: Final = 8765
"""Where Foxglove's app looks by itself."""
LOOK_EVERY: Final = 0.5
"""Seconds between two looks for channels that have come or gone."""
QUEUE: Final = 1_000
"""Events that wait for the viewers of a channel, where it keeps no history."""


class AdvertisedType(NamedTuple):
    """An event type of a channel, as viewers see it."""

    channel: str
    format: Format


class ViewedChannel(NamedTuple):
    """A channel that somebody looks at."""

    channel: Channel[Any]
    receiver: Receiver


class FoxgloveServer:
    """See the module.

    Args:
        station: of the domain.
        patterns: of names of channels; `*` stands for one part, `**` for several.
        host: a loopback address.
        port: 0 for any that is free.
    """

    def __init__(
        self, station: Station, patterns: Sequence[str] = ("**",), host: str = "127.0.0.1", port: int = PORT
    ) -> None:
        self._foxglove = _library()
        if not EndpointAddress("tcp", host, port).is_loopback:
            raise NotPossible(
                f"foxglove at {host}", "its protocol has no password: give a loopback address, and use ssh -L"
            )
        self._wanted = re.compile("|".join(f"(?:{pattern_regex(one)})" for one in patterns))
        self._station = station
        self._tails = Tails(station)
        self._context = self._foxglove.Context()
        self._topics: dict[AdvertisedType, Any] = {}
        self._schemas: dict[tuple[str, bytes], Any] = {}
        """Topics by the name of their channel and the id of their format."""
        self._viewed: dict[str, ViewedChannel] = {}
        # Viewers come and go in threads of the server, which must not wait for a station.
        self._asked: deque[tuple[int, str]] = deque()
        self._viewers: dict[str, int] = {}
        self._changed = station.ports.tasks.signal("foxglove")
        self._is_closed = False
        try:
            self._server = self._foxglove.start_server(
                name="Heliograph", host=host, port=port, server_listener=_Viewers(self), context=self._context
            )
        except RuntimeError as error:
            raise NotPossible(f"foxglove at {host}:{port}", str(error)) from error
        self.link = f"ws://{host}:{self._server.port}"
        self._task = station.ports.tasks.spawn("foxglove", self._run)

    def __enter__(self) -> FoxgloveServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it; viewers are disconnected. As often as you like."""
        if self._is_closed:
            return
        self._is_closed = True
        self._changed.notify()
        self._task.join()
        for name in list(self._viewed):
            self._leave(name)
        self._server.stop()

    def asked(self, step: int, topic: str) -> None:
        """A viewer has come (1) or gone (-1); in a thread of the server."""
        self._asked.append((step, topic))
        self._changed.notify()

    # In its task

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._look()
            except HeliographError as error:  # the station may be closing
                log.warning("topics for Foxglove could not be looked at, which is tried again: %s", error)
            self._changed.wait(LOOK_EVERY)

    def _look(self) -> None:
        there = set(self._known())
        for topic in there - self._topics.keys():
            self._advertise(topic)
        for topic in self._topics.keys() - there:
            self._withdraw(topic)
        while self._asked:
            step, name = self._asked.popleft()
            self._viewers[name] = self._viewers.get(name, 0) + step
        for name, viewers in list(self._viewers.items()):
            if viewers <= 0:
                del self._viewers[name]
                self._leave(name)
            elif name not in self._viewed:
                self._view(name)

    def _known(self) -> Iterator[AdvertisedType]:
        """What this station and the others of its domain have."""
        for channel in self._station.channels():
            if self._wanted.fullmatch(channel.name):
                yield from (AdvertisedType(channel.name, info_of(cls).format) for cls in channel.types)
        mesh = self._station.mesh
        names = set() if mesh is None else {one.name for other in mesh.stations() for one in other.channels}
        for name in filter(self._wanted.fullmatch, names):
            assert mesh is not None
            yield from (AdvertisedType(name, fmt) for fmt in mesh.formats(name))

    def _advertise(self, topic: AdvertisedType) -> None:
        schema = self._foxglove.Schema(
            name=topic.format.name, encoding="jsonschema", data=msgspec.json.encode(schema_of(topic.format))
        )
        made = self._foxglove.Channel(
            topic.channel, schema=schema, message_encoding="json", context=self._context
        )
        self._topics[topic] = self._schemas[topic.channel, topic.format.id] = made

    def _withdraw(self, topic: AdvertisedType) -> None:
        del self._schemas[topic.channel, topic.format.id]
        self._topics.pop(topic).close()

    def _view(self, name: str) -> None:
        try:
            channel = self._tails.open(name)
        except HeliographError as error:
            log.debug("channel %s is not there for Foxglove: %s", name, error)
            return
        bounds: dict[str, Any] = {} if channel.qos.journalled else {"queue": QUEUE, "overflow": "drop_oldest"}
        try:
            receiver = channel.subscribe(self._send, **bounds)
        except BaseException:
            self._tails.release(name)
            raise
        self._viewed[name] = ViewedChannel(channel, receiver)

    def _leave(self, name: str) -> None:
        viewed = self._viewed.pop(name, None)
        if viewed is not None:
            viewed.receiver.close()
            self._tails.release(name)

    def _send(self, event: Event, header: Header) -> None:
        topic = self._schemas.get((header.channel, info_of(type(event)).format.id))
        if topic is not None:
            topic.log(event.to_json(), log_time=header.append_ts or header.source_ts)


class _Viewers:
    """Tells of viewers, as Foxglove's library calls it."""

    def __init__(self, server: FoxgloveServer) -> None:
        self._server = server

    def on_subscribe(self, client: Any, channel: Any) -> None:  # noqa: ARG002 - as the library calls it
        self._server.asked(1, channel.topic)

    def on_unsubscribe(self, client: Any, channel: Any) -> None:  # noqa: ARG002 - likewise
        self._server.asked(-1, channel.topic)


def _library() -> Any:
    try:
        import foxglove  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise MissingExtra("helio foxglove", "foxglove-sdk", "foxglove") from error
    return foxglove
