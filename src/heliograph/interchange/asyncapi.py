"""The AsyncAPI document of channels: which there are, and what their events look like in JSON.

    document({"air.tracks": [format_of(Track)]}, title="Airspace")  ->  {"asyncapi": "3.0.0", ...}

It describes what is there, for catalogues and generators of code; nothing here is read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from heliograph.interchange.json_schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from heliograph.model.formats import Format

VERSION: Final = "3.0.0"


def document(channels: Mapping[str, Iterable[Format]], *, title: str, version: str = "1") -> dict[str, Any]:
    """The document of these channels. Of an event type in several versions the last one is described."""
    messages = {fmt.name: fmt for formats in channels.values() for fmt in formats}
    return {
        "asyncapi": VERSION,
        "info": {"title": title, "version": version},
        "defaultContentType": "application/json",
        "channels": {name: _channel(name, formats) for name, formats in sorted(channels.items())},
        "operations": {
            f"{action}.{name}": {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name in sorted(channels)
            for action in ("send", "receive")
        },
        "components": {"messages": {name: _message(fmt) for name, fmt in sorted(messages.items())}},
    }


def _channel(name: str, formats: Iterable[Format]) -> dict[str, Any]:
    names = sorted({fmt.name for fmt in formats})
    return {
        "address": name,
        "messages": {one: {"$ref": f"#/components/messages/{one}"} for one in names},
    }


def _message(fmt: Format) -> dict[str, Any]:
    return {
        "name": fmt.name,
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": schema_of(fmt),
        },
        **({"x-key": list(fmt.key)} if fmt.key else {}),
    }
