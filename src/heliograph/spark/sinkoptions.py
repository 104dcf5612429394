"""What can be said to `writeStream.format("heliograph")` and to `write`, checked before anything is staged.

    options = parse_sink_options({"path": "data", "channel": "air.totals", "writerId": "totals"}, stream=True)

`docs/spark.md` has the table. Names are compared without case, as Spark hands them on.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from heliograph.errors import InvalidOption
from heliograph.qos import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Adopt: TypeAlias = Literal["wait", "leave"]

MAX_WRITER: Final = 128
"""Characters of `writerId` and `runId`."""

_NAME = re.compile(r"[A-Za-z0-9._:@-]+")


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for. A stream has a writer, a batch write a run."""

    path: str
    channel: str
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
    by_name = {name.lower(): value for name, value in given.items()}
    parsers = {**_EVERYWHERE, **(_STREAM_ONLY if stream else _BATCH_ONLY)}
    _insist_on_known(by_name, {name.lower(): name for name in parsers})
    parsed = {
        name: parse(name, by_name[name.lower()]) for name, parse in parsers.items() if name.lower() in by_name
    }
    if "path" not in parsed:
        raise InvalidOption("path", None, "the folder of the station that keeps the channel")
    if "channel" not in parsed:
        raise InvalidOption("channel", None, "the channel to write to")
    if stream and "writerId" not in parsed:
        allowed = "a name for this query that stays the same when it is started again, such as 'totals'"
        raise InvalidOption("writerId", None, allowed)
    if "key" in parsed and not parsed.get("create"):
        raise InvalidOption("create", None, "true, when key is given: a channel's own format has its key")
    return SinkOptions(
        **{field: parsed[option] for option, field in _FIELDS.items() if option in parsed},
        accepts_new=parsed.get("newCheckpoint") == "accept",
    )


def _insist_on_known(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    for name, value in given.items():
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        allowed = f"did you mean {known[near[0]]!r}?" if near else f"there are {', '.join(known.values())}"
        raise InvalidOption(name, value, allowed, exists=False)


def _text(name: str, value: str) -> str:
    if not value:
        raise InvalidOption(name, value, "a text that is not empty")
    return value


def _name(name: str, value: str) -> str:
    if not _NAME.fullmatch(value) or len(value) > MAX_WRITER:
        raise InvalidOption(name, value, f"1 to {MAX_WRITER} letters, digits and characters of .-_:@")
    return value


def _choice(*allowed: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.lower() not in allowed:
            raise InvalidOption(name, value, " or ".join(allowed))
        return value.lower()

    return parse


def _truth(name: str, value: str) -> bool:
    return _choice("true", "false")(name, value) == "true"


def _several(name: str, value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(","))
    if not all(found):
        raise InvalidOption(name, value, "names of columns with commas between them")
    return found


def _class_path(name: str, value: str) -> str:
    if not re.fullmatch(r"[\w.]+:[\w.]+", value):
        raise InvalidOption(name, value, "an event class as 'package.module:Class'")
    return value


def _priority(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]", value) or not LOWEST_PRIORITY <= int(value) <= HIGHEST_PRIORITY:
        raise InvalidOption(name, value, f"{LOWEST_PRIORITY} (low) to {HIGHEST_PRIORITY} (high)")
    return int(value)


def _seconds(name: str, value: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h)", value.strip().lower())
    if not found:
        raise InvalidOption(name, value, "a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}[found[2]]


_EVERYWHERE: Final[dict[str, Callable[[str, str], Any]]] = {
    "path": _text,
    "channel": _text,
    "type": _text,
    "event": _class_path,
    "create": _truth,
    "key": _several,
    "priority": _priority,
    "adopt": _choice("wait", "leave"),
    "adoptTimeout": _seconds,
}
_STREAM_ONLY: Final[dict[str, Callable[[str, str], Any]]] = {
    "writerId": _name,
    "newCheckpoint": _choice("refuse", "accept"),
    "checkpointLocation": _text,
}
_BATCH_ONLY: Final[dict[str, Callable[[str, str], Any]]] = {"runId": _name}
_FIELDS: Final = {
    "path": "path",
    "channel": "channel",
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
