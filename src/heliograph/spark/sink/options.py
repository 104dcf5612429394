"""What can be said to `writeStream.format("heliograph")` and to `write`, checked before anything is staged.

    options = parse_sink_options({"path": "data", "channel": "air.totals", "writerId": "totals"}, stream=True)

`docs/guides/spark.md` has the table. Names are compared without case, as Spark hands them on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from heliograph.errors import InvalidOption
from heliograph.qos.policies import HIGHEST_PRIORITY, LOWEST_PRIORITY
from heliograph.spark.source.option_values import choice, folder, parse, seconds, several, text, truth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.spark.source.option_values import Parser

Adopt: TypeAlias = Literal["wait", "leave"]

MAX_WRITER: Final = 128
"""Characters of `writerId` and `runId`."""

_NAME = re.compile(r"[A-Za-z0-9._:@-]+")


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for. A stream has a writer, a batch write a run."""

    path: str
    channel: str
    """Of several, the first."""
    channels: tuple[str, ...] = ()
    """When rows go to several: a column says to which."""
    writer: str | None = None
    run: str | None = None
    accepts_new: bool = False
    type: str | None = None
    event: str | None = None
    creates: bool = False
    key: tuple[str, ...] = ()
    priority: int = 3
    adopt: Adopt = "wait"
    timeout: float = 60.0
    """Seconds that `adopt` waits."""


def parse_sink_options(given: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """The options of a stream or of a batch write; InvalidOption names the first that is wrong."""
    parsers = {**_EVERYWHERE, **(_STREAM_ONLY if stream else _BATCH_ONLY)}
    elsewhere = dict.fromkeys(_STREAM_ONLY, "streams") | dict.fromkeys(_BATCH_ONLY, "batch writes")
    parsed = parse(given, parsers, elsewhere)
    if "path" not in parsed:
        raise InvalidOption("path", None, "the folder of the station that keeps the channel")
    if "channels" in parsed and "channel" in parsed:
        raise InvalidOption("channels", ",".join(parsed["channels"]), "channel or channels, not both")
    if "channels" in parsed:
        parsed["channel"] = parsed["channels"][0]
    if "channel" not in parsed:
        allowed = "the channel to write to; or channels, when a column _channel says which one"
        raise InvalidOption("channel", None, allowed)
    if stream and "writerId" not in parsed:
        allowed = "a name for this query that stays the same when it is started again, such as 'totals'"
        raise InvalidOption("writerId", None, allowed)
    if "key" in parsed and not parsed.get("create"):
        raise InvalidOption("create", None, "true, when key is given: a channel's own format has its key")
    return SinkOptions(
        **{field: parsed[option] for option, field in _FIELDS.items() if option in parsed},
        accepts_new=parsed.get("newCheckpoint") == "accept",
    )


def _name(name: str, value: str) -> str:
    if not _NAME.fullmatch(value) or len(value) > MAX_WRITER:
        raise InvalidOption(name, value, f"1 to {MAX_WRITER} letters, digits and characters of .-_:@")
    return value


def _class_path(name: str, value: str) -> str:
    if not re.fullmatch(r"[\w.]+:[\w.]+", value):
        raise InvalidOption(name, value, "an event class as 'package.module:Class'")
    return value


def _priority(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]", value) or not LOWEST_PRIORITY <= int(value) <= HIGHEST_PRIORITY:
        raise InvalidOption(name, value, f"{LOWEST_PRIORITY} (low) to {HIGHEST_PRIORITY} (high)")
    return int(value)


_EVERYWHERE: Final[dict[str, Parser]] = {
    "path": folder,
    "channel": text,
    "channels": several,
    "type": text,
    "event": _class_path,
    "create": truth,
    "key": several,
    "priority": _priority,
    "adopt": choice("wait", "leave"),
    "adoptTimeout": seconds,
}
_STREAM_ONLY: Final[dict[str, Parser]] = {
    "writerId": _name,
    "newCheckpoint": choice("refuse", "accept"),
}
_BATCH_ONLY: Final[dict[str, Parser]] = {"runId": _name}
_FIELDS: Final = {
    "path": "path",
    "channel": "channel",
    "channels": "channels",
    "writerId": "writer",
    "runId": "run",
    "type": "type",
    "event": "event",
    "create": "creates",
    "key": "key",
    "priority": "priority",
    "adopt": "adopt",
    "adoptTimeout": "timeout",
}
