"""LIKE patterns: from text to segments, and from segments to a regular expression that runs in linear time.

`%` stands for any number of characters, `_` for one; with ESCAPE, the escape before `%`, `_` or itself makes
it an ordinary character. A character is a code point, newlines included.

A pattern is cut at its `%`. Each middle segment has a fixed length, so the leftmost position where it fits is
always right, and no engine ever needs to come back to it: an atomic group tells the regular expression so.
"""

from __future__ import annotations

from typing import Final, TypeAlias

MAX_PATTERN: Final = 1_000
"""Characters in a LIKE pattern."""

Segment: TypeAlias = tuple[str | None, ...]


class BadPattern(ValueError):
    """The pattern cannot be right; the checker adds the column."""


def segments(pattern: str, escape: str | None) -> tuple[Segment, ...]:
    """What stands between the `%`; None in a segment is `_`. Neighbouring `%` count as one."""
    if len(pattern) > MAX_PATTERN:
        raise BadPattern(f"a LIKE pattern has at most {MAX_PATTERN} characters, not {len(pattern)}")
    if escape is not None and len(escape) != 1:
        raise BadPattern("ESCAPE takes exactly one character")
    found: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            found[-1].append(_escaped(next(characters, None), escape))
        elif character == "%":
            found.append([])
        else:
            found[-1].append(None if character == "_" else character)
    inner = [segment for segment in found[1:-1] if segment]
    kept = [found[0], *inner, found[-1]] if len(found) > 1 else found
    return tuple(tuple(segment) for segment in kept)


def _escaped(character: str | None, escape: str) -> str:
    if character is None or character not in ("%", "_", escape):
        raise BadPattern(f"the escape {escape!r} must stand before %, _ or itself")
    return character


def literal(segment: Segment) -> str | None:
    """The segment as plain text, or None when it holds a `_`."""
    return None if None in segment else "".join(part for part in segment if part is not None)


def regex(parts: tuple[Segment, ...], *, atomic: bool) -> str:
    """A regular expression in the dialect that Python, Java and RE2 share, anchored at the start only.

    The end is `fullmatch` in Python and a `\\z` to be added elsewhere: they share no way to write it.

    With `atomic`, middle segments are atomic groups, which RE2 has not and does not need.
    """
    pieces = [_piece(segment) for segment in parts]
    if len(pieces) == 1:
        return rf"(?s)\A{pieces[0]}"
    opening, closing = ("(?>", ")") if atomic else ("(?:", ")")
    middle = "".join(f"{opening}.*?{piece}{closing}" for piece in pieces[1:-1])
    return rf"(?s)\A{pieces[0]}{middle}.*{pieces[-1]}"


def _piece(segment: Segment) -> str:
    return "".join("." if part is None else _character(part) for part in segment)


def _character(character: str) -> str:
    # A backslash before ASCII punctuation means the character itself in all three dialects.
    special = character.isascii() and character.isprintable() and not character.isalnum()
    return "\\" + character if special else character
