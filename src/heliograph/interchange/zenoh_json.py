"""Channels for clients of bare Zenoh in any language: events as CloudEvents in JSON, under keys of their own.

    with JsonStreams(station, publish=[tracks], accept=[orders]):
        ...

    hg1/<domain>/json/<channel>/out     each event of the channel, wherever it was pushed, in one put
    hg1/<domain>/json/<channel>/in      what is put there is pushed into the channel; whoever asks instead, by
                                        a query with the event as its payload, is answered: {"id": "..."}, or
                                        an error that says what is wrong

An event is as in `heliograph.interchange.cloudevents`. While nobody subscribes nothing is made or put. What
is put may be lost on the way: JSON has neither numbers nor repair, which is what stations have streams for.
The station has to be on a network, and is what clients connect to, or is connected to it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from heliograph.errors import HeliographError, InvalidEvent, NotPossible
from heliograph.interchange.cloudevents import from_cloudevent, to_cloudevent
from heliograph.links.transports.zenoh_streams import ZenohStreams
from heliograph.model.event import format_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from heliograph.channel.channel import Channel
    from heliograph.model.event import Event, Header
    from heliograph.runtime.ports import Queue
    from heliograph.station import Station

log = logging.getLogger(__name__)

WAITING: Final = 1_024
"""Puts of clients that wait to be pushed; when more come the oldest is let go of."""
LOOK_EVERY: Final = 0.1
"""Seconds between two looks at whether it is closed, or the network is there anew."""
MAX_JSON: Final = 16 << 20
"""Bytes of an event that a client may put."""


class JsonStreams:
    """See the module.

    Args:
        station: that listens or connects.
        publish: channels of it whose events clients may subscribe to.
        accept: channels into which clients may push.
    """

    def __init__(
        self, station: Station, *, publish: Iterable[Channel[Any]] = (), accept: Iterable[Channel[Any]] = ()
    ) -> None:
        mesh = station.mesh
        network = None if mesh is None else mesh.network
        if mesh is None or not isinstance(network, ZenohStreams):
            raise NotPossible("JSON over Zenoh", "is for stations on a network: add listen= or connect=")
        self._network = network
        self._tasks = station.ports.tasks
        self._prefix = f"hg1/{quote(mesh.identity.domain, safe='')}/json"
        self._is_closed = False
        self._receivers = [self._publish(channel) for channel in publish]
        self.refused = 0
        """What clients put and was no event of the channel."""
        self._serving = [
            self._tasks.spawn(f"JSON for {channel.name}", partial(self._serve, channel)) for channel in accept
        ]

    def __enter__(self) -> JsonStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Publish and accept nothing more."""
        self._is_closed = True
        for receiver in self._receivers:
            receiver.close()
        for task in self._serving:
            task.join()

    def _key(self, channel: Channel[Any], side: str) -> str:
        return f"{self._prefix}/{quote(channel.name, safe='')}/{side}"

    def _publish(self, channel: Channel[Any]) -> Any:
        putter = self._network.plain_putter(self._key(channel, "out"))

        def put(event: Event, header: Header) -> None:
            if putter.is_heard:
                putter.put(msgspec.json.encode(to_cloudevent(event, header)))

        return channel.subscribe(put, name="JSON over Zenoh")

    def _push(self, channel: Channel[Any], payload: Any) -> str:
        """The id that the event was sent with; InvalidEvent says what is wrong with it."""
        if payload is not None and len(payload) > MAX_JSON:  # before it is copied
            raise InvalidEvent(channel.name, f"an event of {len(payload)} bytes; {MAX_JSON} are read")
        data = b"" if payload is None else payload.to_bytes()
        try:
            document = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidEvent(channel.name, f"this is no CloudEvent in JSON: {error}") from None
        kind = document.get("type")
        cls = next((cls for cls in channel.types if format_of(cls).name == kind), None)
        if cls is None:
            known = ", ".join(format_of(cls).name for cls in channel.types)
            raise InvalidEvent(channel.name, f"its types are {known}, not {kind!r:.80}")
        received = from_cloudevent(cls, document)
        channel.push(received.event, **received.options)
        return received.id

    def _serve(self, channel: Channel[Any]) -> None:
        """Push what clients put and ask, in a task of its own, over one session of Zenoh after another."""
        came: Queue[Any] = self._tasks.queue(f"JSON for {channel.name}", WAITING)
        key, declared, seen = self._key(channel, "in"), [], None
        try:
            while not self._is_closed and not self._network.is_closed:
                session = self._network.session
                if session is not seen and session is not None:
                    declare = (session.declare_subscriber, session.declare_queryable)
                    declared = [each(key, came.put_evicting) for each in declare]
                    seen = session
                item = came.get(LOOK_EVERY)
                if item is not None:
                    self._take(channel, key, item)
        finally:
            for one in declared:
                one.undeclare()

    def _take(self, channel: Channel[Any], key: str, item: Any) -> None:
        """A put, or a query, which is answered."""
        is_query = isinstance(item, self._network.zenoh.Query)
        pushed, problem = "", ""
        try:
            pushed = self._push(channel, item.payload)
        except HeliographError as error:
            self.refused += 1
            problem = str(error)
            log.warning("what a client put for %s is refused: %s", channel.name, error)
        if not is_query:
            return
        try:
            if problem:
                item.reply_err(problem.encode())
            else:
                item.reply(key, msgspec.json.encode({"id": pushed}))
            item.drop()
        except self._network.zenoh.ZError as error:  # the session has gone with whoever asked; others ask on
            log.debug("%s: %s", key, error)
