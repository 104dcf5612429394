"""MCAP files: a channel's history for Foxglove, PlotJuggler and other readers of robot logs, and back.

    write(HistoryRows("data", "air.tracks", None, None, None), "air.tracks", Path("tracks.mcap"))
    read(Path("drive.mcap"), station)  ->  {"robot.pose": 1200}

A channel is a topic whose messages are JSON with a JSON Schema, which these tools plot without a plug-in. The
time of appending is the log time, the source time the time of publishing. A file of ours also carries each
format, so that what is read back has the very same types; of a file of others those topics are read that are
JSON with a JSON Schema. What it says is data: classes are made of descriptions, no code comes out of a file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.codec import mapping_decoder
from heliograph.codec.dynamic.classes import class_for
from heliograph.codec.dynamic.reflect import event_from_json, mapping_to_json
from heliograph.errors import FormatError, InvalidEvent, MissingExtra, UnreadableFile
from heliograph.interchange.json_schema import schema_of
from heliograph.model import field_types as ft
from heliograph.model.formats import MAX_DESCRIPTION, Field, Format
from heliograph.qos.policies import QoS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from heliograph.channel.channel import Channel
    from heliograph.history_rows import HistoryRows
    from heliograph.model.event import Event
    from heliograph.station import Station

FORMAT: Final = "heliograph.format"
"""Metadata of a topic: the description of its events' format, in base64."""
JSON: Final = "json"
JSON_SCHEMA: Final = "jsonschema"
_UNDER_WAY: Final = 1_000
"""Events that are pushed and not yet on disk."""
_LIMIT: Final = 30.0
_SCALARS: Final = {"integer": "i64", "number": "f64", "string": "str", "boolean": "bool"}
_NO_NAME: Final = re.compile(r"[\s.*\x00-\x1f/\\]+")


def write(history: HistoryRows, channel: str, file: Path) -> int:
    """Write the events of a history into a new file; returns how many."""
    writer_module = _module("mcap.writer", "an export to MCAP")
    topics: dict[bytes, int] = {}
    events = 0
    with file.open("xb") as stream:
        writer = writer_module.Writer(stream)
        writer.start(profile="", library="heliograph")
        for row in history.rows():
            if row.record.format_id not in topics:
                topics[row.record.format_id] = _topic(writer, channel, row.format)
            writer.add_message(
                topics[row.record.format_id],
                log_time=row.append_ts,
                publish_time=max(0, row.record.source_ts),
                sequence=row.record.sequence & 0xFFFFFFFF,
                data=mapping_to_json(row.format, mapping_decoder(row.format)(row.record.body)),
            )
            events += 1
        writer.finish()
    return events


def _topic(writer: Any, channel: str, fmt: Format) -> int:
    schema = writer.register_schema(fmt.name, JSON_SCHEMA, msgspec.json.encode(schema_of(fmt)))
    description = base64.b64encode(fmt.description).decode()
    topic: int = writer.register_channel(channel, JSON, schema, {FORMAT: description})
    return topic


def read(file: Path, station: Station, topics: Collection[str] | None = None) -> dict[str, int]:
    """Push the messages of a file into persistent channels named as their topics; how many into which.

    Topics that are not JSON with a JSON Schema are refused, unless `topics` leaves them out.
    """
    targets: dict[int, tuple[Channel[Any], type[Event]]] = {}
    under_way: deque[Any] = deque()
    pushed: dict[str, int] = {}
    try:
        for schema, topic, message in _messages(file, topics):
            if topic.id not in targets:
                targets[topic.id] = _target(file, station, schema, topic)
            channel, cls = targets[topic.id]
            event = _event(file, topic.topic, cls, message)
            under_way.append(channel.push_nowait(event, source_ts=message.publish_time))
            pushed[channel.name] = pushed.get(channel.name, 0) + 1
            if len(under_way) >= _UNDER_WAY:
                under_way.popleft().result(_LIMIT)
    finally:
        while under_way:
            under_way.popleft().result(_LIMIT)
    return pushed


def _messages(file: Path, topics: Collection[str] | None) -> Iterator[Any]:
    """Schema, topic and message, in the order of log times."""
    make_reader = _module("mcap.reader", "an import from MCAP").make_reader
    with file.open("rb") as stream:
        try:
            yield from make_reader(stream, validate_crcs=True).iter_messages(topics=topics)
        except Exception as error:
            raise UnreadableFile(str(file), f"this is no whole MCAP file: {error!r}") from error


def _event(file: Path, topic: str, cls: type[Event], message: Any) -> Event:
    try:
        return event_from_json(cls, message.data)
    except InvalidEvent as error:
        reason = f"message {message.sequence} of topic {topic!r} is not as its schema says: {error}"
        raise UnreadableFile(str(file), reason) from None


def _target(file: Path, station: Station, schema: Any, topic: Any) -> tuple[Channel[Any], type[Event]]:
    if topic.message_encoding != JSON or schema is None or schema.encoding != JSON_SCHEMA:
        kind = (
            f"{topic.message_encoding or 'unnamed'} with {'no schema' if schema is None else schema.encoding}"
        )
        reason = f"topic {topic.topic!r} is {kind}; read are json with jsonschema. Name the topics to read"
        raise UnreadableFile(str(file), reason)
    name = channel_name(topic.topic)
    try:
        fmt = _format(schema, topic.metadata)
        cls = class_for(fmt)
    except (FormatError, msgspec.DecodeError, binascii.Error, ValueError) as error:
        reason = f"no event class can be made of topic {topic.topic!r}: {error}"
        raise UnreadableFile(str(file), reason) from None
    return station.channel(name, cls, qos=QoS(durability="persistent")), cls


def channel_name(topic: str) -> str:
    """A topic as a channel's name: `/robot/pose` is `robot.pose`."""
    return _NO_NAME.sub(".", topic).strip(".") or "topic"


def _format(schema: Any, metadata: dict[str, str]) -> Format:
    description = metadata.get(FORMAT)
    if description is not None:
        if len(description) > 2 * MAX_DESCRIPTION:
            raise FormatError("its description is too long")
        return Format.from_description(base64.b64decode(description, validate=True))
    tree = msgspec.json.decode(schema.data)
    if not isinstance(tree, dict) or tree.get("type") != "object":
        raise FormatError("its schema is no object")
    properties = tree.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise FormatError("its schema names no properties")
    fields = tuple(Field(str(name), _type(kind)) for name, kind in properties.items())
    return Format(schema.name or "message", fields)


def _type(schema: Any) -> ft.FieldType:
    """The type of a property; whatever a field has no type for is schema-less."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind in _SCALARS:
        return ft.Scalar(_SCALARS[kind])  # type: ignore[arg-type]  # names of scalars
    if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"].get("type") in _SCALARS:
        return ft.List(_type(schema["items"]))
    return ft.Anything()


def _module(name: str, call: str) -> Any:
    from importlib import import_module  # noqa: PLC0415 - beside its only use

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra(call, "mcap", "mcap") from error
