"""What `hg.Any` may hold: None, bool, int, float, str, bytes, aware datetimes, lists, maps with text keys."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH: Final = 64
"""How deep lists and maps may stand inside one another."""

_LEAVES: Final = frozenset({type(None), bool, int, float, str, bytes, datetime})


class BadAnything(ValueError):
    """Received data that `hg.Any` cannot hold."""


def check_received(value: Any) -> Any:
    """Return what msgspec decoded without a type, or raise BadAnything when it is not allowed."""
    # Level by level, because a call per level would need more memory than the data.
    level = [] if value.__class__ in _LEAVES else [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        level = [item for holder in level for item in _items(holder) if item.__class__ not in _LEAVES]
    if level:
        raise BadAnything(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _items(holder: Any) -> Iterable[Any]:
    if holder.__class__ is list:
        return holder
    if holder.__class__ is dict:
        for key in holder:
            if key.__class__ is not str:
                raise BadAnything(f"a map has a key that is {key.__class__.__name__}, not text")
        return cast("dict[str, Any]", holder).values()
    raise BadAnything(f"{holder.__class__.__name__} is nothing that any can hold")
