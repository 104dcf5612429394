"""The options of a push (priority, lifespan, id, deliver_at, ...), checked where they are given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

import msgspec

from heliograph.errors import InvalidEvent, NotPossible, UnknownOption
from heliograph.model import field_types as ft
from heliograph.model.event import LATENCY, MAX_USER_HEADER, MAX_USER_HEADERS, PUSH_ID, SUB_PRIORITY
from heliograph.model.formats import MAX_NAME
from heliograph.qos.dispatch_order import MAX_SUB_PRIORITY
from heliograph.qos.policies import HIGHEST_PRIORITY, LONGEST_LATENCY, LOWEST_PRIORITY
from heliograph.runtime.option_names import insist_on_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.model.event import Header


class Said(TypedDict, total=False):
    """What a push may say; see `stamp`."""

    priority: int | None
    source_ts: int | None
    correlation_id: str | None
    headers: Mapping[str, str] | None
    id: str | None
    sub_priority: int | None
    latency: float | None
    deliver_at: datetime | None
    deliver_after: float | None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_WAIT: Final = 1e9
"""Seconds of a `timeout=`."""
TIMEOUT: Final = (
    "timeout= is for push and apush on channels that are persistent or have ack='delivered'; "
    "elsewhere QoS(max_blocking=...) says how long a push waits for room"
)
MAX_DELAY: Final = 1e9
"""Seconds that a delivery can be put off: about 31 years."""


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


def stamp(
    *,
    priority: int | None = None,
    source_ts: int | None = None,
    correlation_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    id: str | None = None,  # noqa: A002 - as the face says
    deliver_at: datetime | None = None,
    deliver_after: float | None = None,
    sub_priority: int | None = None,
    latency: float | None = None,
    **unknown: object,
) -> Stamp:
    """The stamp of a push; InvalidEvent names what does not fit. Most pushes say nothing: `PLAIN`.

    Args:
        priority: 1 (low) to 5 (high).
        source_ts: when it happened, in nanoseconds since 1970.
        correlation_id: what it belongs to.
        headers: free text by name.
        id: of a push that may be repeated.
        deliver_at: an aware datetime before which nobody gets it.
        deliver_after: the same, as seconds from now.
        sub_priority: 0 (low) to 255 (high), within one priority, for dispatch orders.
        latency: seconds that it may wait for a receiver, for dispatch orders.
        **unknown: what no push can say.
    """
    if unknown:
        known = tuple(Said.__annotations__)
        if "timeout" in unknown:
            raise UnknownOption("push", "timeout", known, TIMEOUT)
        insist_on_known("push", unknown, known)
    said = (
        priority,
        source_ts,
        correlation_id,
        headers,
        id,
        sub_priority,
        latency,
        deliver_at,
        deliver_after,
    )
    if all(one is None for one in said):
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
    own = _own_headers(id, sub_priority, latency)
    checked = None if headers is None else _checked_headers(headers, room=MAX_USER_HEADERS - len(own))
    if own:
        checked = {**(checked or {}), **own}
    due_ns, delay_ns = _checked_instant(deliver_at, deliver_after)
    return Stamp(priority, source_ts, correlation_id, checked, id, due_ns, delay_ns)


def _own_headers(push_id: str | None, sub_priority: int | None, latency: float | None) -> dict[str, str]:
    """What travels in the free headers."""
    own: dict[str, str] = {}
    if push_id is not None:
        _check_text("id", push_id, MAX_NAME)
        if not push_id:
            raise _refused("id", "is empty; leave it out, or give every event one of its own")
        own[PUSH_ID] = push_id
    if sub_priority is not None:
        if type(sub_priority) is not int or not 0 <= sub_priority <= MAX_SUB_PRIORITY:
            raise _refused("sub_priority", f"is 0 (low) to {MAX_SUB_PRIORITY} (high), not {sub_priority!r}")
        own[SUB_PRIORITY] = str(sub_priority)
    if latency is not None:
        if type(latency) not in (int, float) or not 0 <= latency <= LONGEST_LATENCY:
            raise _refused("latency", f"is seconds from 0 to {LONGEST_LATENCY:,.15g}, not {latency!r:.60}")
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
        if type(deliver_after) not in (int, float) or not 0 <= deliver_after <= MAX_DELAY:
            raise _refused(
                "deliver_after", f"is seconds, from 0 to {MAX_DELAY:,.15g}, not {deliver_after!r:.60}"
            )
        return None, round(deliver_after * 1e9)
    return None, None


def check_timeout(channel: str, timeout: Any, *, ends: bool = False) -> None:
    """NotPossible for what is no number of seconds, before anything is kept; for None if it has to end."""
    if timeout is None and not ends:
        return
    if type(timeout) not in (int, float) or not 0 <= timeout <= LONGEST_WAIT:
        allowed = f"seconds from 0 on, up to {LONGEST_WAIT:,.15g}{'' if ends else ', or None to wait'}"
        raise NotPossible(channel, f"timeout={timeout!r:.60}: {allowed}")


def check_limit(owner: str, option: str, seconds: Any) -> None:
    """NotPossible for what is no time to wait."""
    if type(seconds) not in (int, float) or not 0 < seconds <= LONGEST_WAIT:
        raise NotPossible(owner, f"{option}={seconds!r:.60}: seconds above 0, up to {LONGEST_WAIT:,.15g}")


def _checked_headers(headers: Mapping[str, str], *, room: int) -> dict[str, str]:
    if len(headers) > room:
        raise _refused("headers", f"are at most {room} here, not {len(headers)}")
    for name, value in headers.items():
        if name in _OPTION_IN:
            raise _refused("headers", f"cannot hold {name!r}, which is ours; say {_OPTION_IN[name]}=")
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
