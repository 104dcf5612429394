"""Helpers for error messages: short lists, hints at what was meant, names of stations.

listed(["a", "b"])                   a, b
listed(fmt.by_name)                  id, lat, lon, speed, region, alt, squawk, seen and 992 more
listed(twins, joint=" or ")          alt or height
hint("queuex", ("queue", "ack"))     ; did you mean queue?
of_batch(3)                          ; it is [3] of the batch, of which none is pushed
station_text(7, "tower")             station 0000000000000007 (tower)
station_name(that)                   tower
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

SHOWN: Final = 8
"""Items of a list that a sentence shows; of the others it says how many there are."""
_LONGEST: Final = 60
"""Characters of a value; what is longer loses its middle."""


def listed(items: Collection[object], *, joint: str = ", ", shown: int = SHOWN) -> str:
    """The first items, as they are, and how many more there are; `none` when there are none."""
    if not items:
        return "none"
    first = [str(item) for item, _ in zip(items, range(shown), strict=False)]
    rest = len(items) - len(first)
    return joint.join(first) + (f" and {rest:,} more" if rest else "")


def hint(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not known: the one that looks most like it, if one does."""
    from difflib import get_close_matches  # noqa: PLC0415 - loaded when something is misspelled

    near = get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def brief(value: object) -> str:
    """A value as Python writes it, cut to a length that fits into a sentence."""
    text = repr(value)
    if len(text) <= _LONGEST:
        return text
    half = (_LONGEST - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def of_batch(index: int | None) -> str:
    """The end of a sentence about an event that was pushed together with others; empty if it was not."""
    return "" if index is None else f"; it is [{index}] of the batch, of which none is pushed"


def station_text(station: int, name: str) -> str:
    """A station by its id and name, as users see it."""
    return f"station {station:016x} ({name})" if name else f"station {station:016x}"


def station_name(text: str) -> str:
    """The name in what `station_text` wrote; where there is none, all of it."""
    _, opened, rest = text.partition(" (")
    return rest.removesuffix(")") if opened and text.startswith("station ") else text
