"""Events as CloudEvents 1.0 in JSON, and back: for webhooks, brokers and functions at the edge.

    to_cloudevent(track, header)  ->  {"specversion": "1.0", "id": "radar-1:1:7", "type": "air.track", ...}
    from_cloudevent(Track, document)  ->  the event, and what to push it with

The event itself is `data`; its id, source time, channel, priority and key are attributes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from heliograph.codec.dynamic.reflect import event_from_json, event_to_json
from heliograph.errors import InvalidEvent
from heliograph.model.event import format_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.model.event import Event, Header

E = TypeVar("E", bound="Event")

SPECVERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/json"
_REQUIRED: Final = ("specversion", "id", "source", "type")


class Received(NamedTuple):
    """What a CloudEvent says: `channel.push(received.event, **received.options)`.

    On a persistent channel `id=received.id` keeps an event once that is sent again.
    """

    event: Event
    options: dict[str, Any]
    """Source time, priority, correlation id and headers, as far as it has them."""
    id: str


def to_cloudevent(event: Event, header: Header, *, source: str | None = None) -> dict[str, Any]:
    """The attributes and the data of an event; `source` is where it comes from, else its channel."""
    seconds, nanoseconds = divmod(header.source_ts, 1_000_000_000)
    time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    attributes = {
        "specversion": SPECVERSION,
        "id": str(header.id),
        "source": source or f"/heliograph/{header.channel}",
        "type": header.type,
        "time": f"{time}.{nanoseconds:09d}Z",
        "datacontenttype": CONTENT_TYPE,
        "priority": header.priority,
    }
    if header.key:
        attributes["partitionkey"] = "/".join(map(str, header.key))
    if header.correlation_id is not None:
        attributes["correlationid"] = header.correlation_id
    if header.headers and "traceparent" in header.headers:
        attributes["traceparent"] = header.headers["traceparent"]
    return {**attributes, "data": msgspec.json.decode(event_to_json(event))}


def from_cloudevent(cls: type[E], document: Mapping[str, Any]) -> Received:
    """The event of a document of this class's type; InvalidEvent says what is wrong with any other."""
    name = format_of(cls).name
    for attribute in _REQUIRED:
        value = document.get(attribute)
        if not isinstance(value, str) or not value:
            raise InvalidEvent(
                name, f"a CloudEvent has the attribute {attribute!r}, a text that is not empty"
            )
    if document["specversion"] != SPECVERSION:
        raise InvalidEvent(name, f"this is a CloudEvent of version {document['specversion']}, 1.0 is read")
    if document["type"] != name:
        raise InvalidEvent(name, f"this CloudEvent is a {document['type']!r}")
    content = document.get("datacontenttype", CONTENT_TYPE)
    if content != CONTENT_TYPE or "data" not in document:
        raise InvalidEvent(name, f"its data is read from 'data' as {CONTENT_TYPE}, not {content}")
    event = event_from_json(cls, msgspec.json.encode(document["data"]))
    return Received(event, _options(name, document), document["id"])


def _options(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "time" in document:
        options["source_ts"] = _nanoseconds(name, document["time"])
    priority = document.get("priority")
    if priority is not None:
        options["priority"] = priority
    if "correlationid" in document:
        options["correlation_id"] = document["correlationid"]
    if "traceparent" in document:
        options["headers"] = {"traceparent": document["traceparent"]}
    return options


def _nanoseconds(name: str, text: object) -> int:
    if not isinstance(text, str):
        raise InvalidEvent(name, "the time of a CloudEvent is text as in RFC 3339")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidEvent(name, f"{text!r} is no time as in RFC 3339") from None
    if moment.tzinfo is None:
        raise InvalidEvent(name, f"{text!r} has no time zone")
    fraction = text.partition(".")[2]
    digits = fraction[: next((i for i, c in enumerate(fraction) if not c.isdigit()), len(fraction))]
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + int(f"{digits:0<9}"[:9] or 0)
