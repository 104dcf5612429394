"""The options of a push (priority, lifespan, id, deliver_at, ...), checked where they are given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import msgspec

from heliograph.errors import InvalidEvent, UnknownOption
from heliograph.model import field_types as ft
from heliograph.model.event import LATENCY, MAX_USER_HEADER, MAX_USER_HEADERS, PUSH_ID, SUB_PRIORITY, VIA
from heliograph.model.formats import MAX_NAME
from heliograph.qos.endpoint import PushOptions
from heliograph.runtime.declared_options import Text, rows_of
from heliograph.runtime.option_names import insist_on_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.model.event import Header


Said = PushOptions


class WaitingSaid(PushOptions, total=False):
    """What a push that waits may say."""

    timeout: float | None
    """Seconds; see `TIMEOUT` for which channels have it."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIMEOUT: Final = (
    "timeout= is for push and apush on channels that are persistent or have ack='delivered'; "
    "elsewhere QoS(max_blocking=...) says how long a push waits for space in a queue"
)
_ROWS: Final = rows_of(PushOptions)
_NAME, _VALUE = Text(MAX_NAME), Text(MAX_USER_HEADER)


class Stamp(NamedTuple):
    """What goes into a header in place of what the channel would put there."""

    priority: int | None = None
    source_ts: int | None = None
    correlation_id: str | None = None
    headers: Mapping[str, str] | None = None
    id: str | None = None
    """Of a push that may be repeated; it travels in the headers."""
    due_ns: int | None = None
    """When to deliver it, in nanoseconds since 1970."""
    delay_ns: int | None = None
    """How long from now until it is delivered."""

    @property
    def postponed(self) -> bool:
        return self.due_ns is not None or self.delay_ns is not None

    def on(self, header: Header) -> Header:
        said = {name: value for name in _IN_HEADERS if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(header, **said)


_IN_HEADERS: Final = ("priority", "source_ts", "correlation_id", "headers")


PLAIN: Final = Stamp()

_OPTION_IN: Final = {PUSH_ID: "id", SUB_PRIORITY: "sub_priority", LATENCY: "latency"}
"""What travels in the free headers, and how a push says it."""


def stamp(**said: Unpack[PushOptions]) -> Stamp:
    """The stamp of a push; InvalidEvent names what does not fit. Most pushes say nothing: `PLAIN`."""
    if not said:
        return PLAIN
    for name, value in said.items():
        if value is not None:
            _check(name, value)
    own = _own_headers(said.get("id"), said.get("sub_priority"), said.get("latency"))
    headers = said.get("headers")
    checked = None if headers is None else _checked_headers(headers, room=MAX_USER_HEADERS - len(own))
    if own:
        checked = {**(checked or {}), **own}
    due_ns, delay_ns = _checked_instant(said.get("deliver_at"), said.get("deliver_after"))
    return Stamp(
        said.get("priority"),
        said.get("source_ts"),
        said.get("correlation_id"),
        checked,
        said.get("id"),
        due_ns,
        delay_ns,
    )


def _check(name: str, value: Any) -> None:
    row = _ROWS.get(name)
    if row is None:
        if name == "timeout":
            raise UnknownOption("push", name, tuple(_ROWS), TIMEOUT)
        insist_on_known("push", (name,), tuple(_ROWS))
    elif (allowed := row.allowed.why_not(value)) is not None:
        raise _refused(name, f"is {allowed}, not {value!r:.60}")


def _own_headers(push_id: str | None, sub_priority: int | None, latency: float | None) -> dict[str, str]:
    """What travels in the free headers."""
    own: dict[str, str] = {}
    if push_id is not None:
        if not push_id:
            raise _refused("id", "is empty; leave it out, or give every event one of its own")
        own[PUSH_ID] = push_id
    if sub_priority is not None:
        own[SUB_PRIORITY] = str(sub_priority)
    if latency is not None:
        own[LATENCY] = str(round(latency * 1e9))
    return own


def _checked_instant(deliver_at: Any, deliver_after: Any) -> tuple[int | None, int | None]:
    """Nanoseconds since 1970, or from now."""
    if deliver_at is not None and deliver_after is not None:
        raise _refused("deliver_at", "and deliver_after say the same: give one of them")
    if deliver_at is not None:
        if not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None:
            raise _refused("deliver_at", f"is a datetime with a time zone, not {deliver_at!r:.60}")
        # In whole microseconds: a float would lose some of them.
        due_ns = (deliver_at - _EPOCH) // timedelta(microseconds=1) * 1000
        low, high = ft.INTEGER_RANGES["i64"]
        if not low <= due_ns <= high:
            raise _refused("deliver_at", f"is beyond what a header can hold (1677 to 2262): {deliver_at}")
        return due_ns, None
    if deliver_after is not None:
        return None, round(deliver_after * 1e9)
    return None, None


def _checked_headers(headers: Mapping[str, str], *, room: int) -> dict[str, str]:
    if len(headers) > room:
        raise _refused("headers", f"are at most {room} here, not {len(headers)}")
    for name, value in headers.items():
        if name in _OPTION_IN:
            raise _refused("headers", f"cannot hold {name!r}, which is ours; say {_OPTION_IN[name]}=")
        if name == VIA:
            raise _refused("headers", f"cannot hold {name!r}, which gateways between domains set")
        if (reason := _NAME.why_not(name)) is not None:
            raise _refused("headers", f"has names; such a name is {reason}, not {name!r:.60}")
        if (reason := _VALUE.why_not(value)) is not None:
            raise _refused(f"headers[{name!r}]", f"is {reason}, not {value!r:.60}")
    return dict(headers)


def _refused(where: str, reason: str) -> InvalidEvent:
    return InvalidEvent("header", f"{where} {reason}", path=f"$.{where}")
