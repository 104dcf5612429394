"""How much of a history is kept on disk, and in what portions: checked where it is written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any, Final

from heliograph.errors import InvalidQoS
from heliograph.runtime.option_names import names_options

DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When heads are rotated and what is kept; sizes in bytes, times in seconds."""

    head_bytes: int = 64 << 20
    head_events: int = 1_000_000
    head_seconds: float = 600.0
    keep_bytes: int | None = 10 << 30
    """The partition's disk quota: beyond it the oldest sealed segments go. None: no limit."""
    keep_seconds: float | None = 30 * DAY
    """Segments whose last event is older go. None: no limit."""
    hold_unread: bool = True
    """What a durable consumer has not read stays beyond `keep_seconds`, though never beyond `keep_bytes`."""
    hold_seconds: float = 7 * DAY
    """A durable consumer that has not been heard of for so long holds nothing any more."""
    drop_read: bool = False
    """What all durable consumers have read goes at once; it needs at least one that was heard of."""
    grace_seconds: float = 600.0
    """How long sealed files stay on disk after they have left the history, for who planned to read them."""
    merge_events: int = 8_000_000
    merge_bytes: int = 256 << 20
    """Small neighbouring segments become one, up to about this size and an eighth of `keep_bytes`."""
    compact: bool = False
    """Only the last event of each key is kept in what is sealed. A channel's QoS sets this and the next."""
    tombstone_seconds: float = DAY
    """How long it is remembered that a key was forgotten."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _fits(field.name, value):
                raise InvalidQoS(f"Limits.{field.name}", value, _ALLOWED[_kind_of(field.name)])


Limits.__init__ = names_options(Limits.__init__)  # type: ignore[method-assign]  # a dataclass writes its own


def _kind_of(limit: str) -> str:
    if limit in ("hold_unread", "drop_read", "compact"):
        return "switch"
    if limit.endswith("_seconds"):
        return "seconds"
    return "kept" if limit == "keep_bytes" else "size"


_ALLOWED: Final = {
    "switch": "True or False",
    "seconds": "a number from 0; None where there may be no limit",
    "kept": "a whole number from 0, or None",
    "size": "a whole number from 1",
}


def _fits(limit: str, value: Any) -> bool:
    match _kind_of(limit):
        case "switch":
            return type(value) is bool
        case "seconds":
            return value is None if limit == "keep_seconds" and value is None else _is_number(value)
        case "kept":
            return value is None or (type(value) is int and value >= 0)
        case _:
            return type(value) is int and value >= 1


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < inf
