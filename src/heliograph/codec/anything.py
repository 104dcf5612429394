"""What `hg.Any` may hold: None, bool, int, float, str, bytes, aware datetimes, lists, maps with text keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

MAX_DEPTH: Final = 64
"""How deep lists and maps may stand inside one another."""

_LEAVES: Final = frozenset({type(None), bool, int, float, str, bytes, datetime})


class BadAnything(ValueError):
    """Received data that `hg.Any` cannot hold. `place` is where inside it, such as `.a[3]`."""

    def __init__(self, reason: str, place: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


def check_received(value: Any) -> Any:
    """Return what msgspec decoded without a type, or raise BadAnything when it is not allowed."""
    if value.__class__ not in _LEAVES:
        _check(value, "", MAX_DEPTH)
    return value


def _check(value: Any, place: str, depth: int) -> None:
    if depth == 0:
        raise BadAnything(f"nested deeper than {MAX_DEPTH} levels", place)
    if value.__class__ is list:
        for index, item in enumerate(value):
            if item.__class__ not in _LEAVES:
                _check(item, f"{place}[{index}]", depth - 1)
    elif value.__class__ is dict:
        for key, item in value.items():
            if key.__class__ is not str:
                raise BadAnything(f"a map has a key that is {key.__class__.__name__}, not text", place)
            if item.__class__ not in _LEAVES:
                _check(item, f"{place}.{key}", depth - 1)
    else:
        raise BadAnything(f"{value.__class__.__name__} is nothing that any can hold", place)
