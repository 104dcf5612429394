"""What a push may say about its event besides the event itself, checked where it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

import msgspec

from heliograph import fieldtypes as ft
from heliograph.errors import InvalidEvent, NotPossible, UnknownOption
from heliograph.event import MAX_USER_HEADER, MAX_USER_HEADERS, PUSH_ID
from heliograph.formats import MAX_NAME
from heliograph.qos import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.event import Header


class Said(TypedDict, total=False):
    """What a push may say; see `stamp`."""

    priority: int | None
    source_ts: int | None
    correlation_id: str | None
    headers: Mapping[str, str] | None
    id: str | None


class Stamp(NamedTuple):
    """What goes into a header in place of what the channel would put there."""

    priority: int | None = None
    source_ts: int | None = None
    correlation_id: str | None = None
    headers: Mapping[str, str] | None = None
    id: str | None = None
    """Of a push that may be repeated; it travels in the headers."""

    def on(self, header: Header) -> Header:
        said = {name: value for name, value in self._asdict().items() if value is not None and name != "id"}
        return msgspec.structs.replace(header, **said)


PLAIN: Final = Stamp()


def stamp(
    priority: int | None = None,
    source_ts: int | None = None,
    correlation_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    id: str | None = None,  # noqa: A002 - as the face says
    **unknown: object,
) -> Stamp:
    """The stamp of a push; InvalidEvent names what does not fit. Most pushes say nothing: `PLAIN`."""
    if unknown:
        raise UnknownOption("push", next(iter(unknown)), tuple(Said.__annotations__))
    if priority is None and source_ts is None and correlation_id is None and headers is None and id is None:
        return PLAIN
    if priority is not None and (
        type(priority) is not int or not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY
    ):
        raise _refused("priority", f"is 1 (low) to 5 (high), not {priority!r}")
    low, high = ft.INTEGER_RANGES["i64"]
    if source_ts is not None and (type(source_ts) is not int or not low <= source_ts <= high):
        raise _refused("source_ts", f"is nanoseconds since 1970 as a 64-bit integer, not {source_ts!r:.60}")
    if correlation_id is not None:
        _check_text("correlation_id", correlation_id, MAX_NAME)
    if headers is not None and PUSH_ID in headers:
        raise _refused("headers", f"cannot hold {PUSH_ID!r}, where the id of a push travels; say id=")
    if id is not None:
        _check_text("id", id, MAX_NAME)
        if not id:
            raise _refused("id", "is empty; leave it out, or give every event one of its own")
        headers = {**(headers or {}), PUSH_ID: id}
    checked = None if headers is None else _checked_headers(headers)
    return Stamp(priority, source_ts, correlation_id, checked, id)


def check_timeout(channel: str, timeout: Any) -> None:
    """NotPossible for what is no number of seconds, before anything is kept."""
    if timeout is not None and (type(timeout) not in (int, float) or not timeout >= 0):
        raise NotPossible(channel, f"timeout={timeout!r:.60}: seconds from 0 on, or None to wait")


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    if len(headers) > MAX_USER_HEADERS:
        raise _refused("headers", f"are at most {MAX_USER_HEADERS}, not {len(headers)}")
    for name, value in headers.items():
        _check_text("headers", name, MAX_NAME)
        _check_text(f"headers[{name!r}]", value, MAX_USER_HEADER)
    return dict(headers)


def _check_text(where: str, text: Any, longest: int) -> None:
    if type(text) is not str or len(text) > longest or not _is_encodable(text):
        raise _refused(where, f"is text of at most {longest} characters, not {text!r:.60}")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(where: str, reason: str) -> InvalidEvent:
    return InvalidEvent("header", f"{where} {reason}", path=f"$.{where}")
