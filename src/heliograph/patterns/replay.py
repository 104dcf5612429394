"""Replays a pattern's recording: finds its matches again.

    replayed(pattern, inputs)        the matches, in the order in which they were found
    to_text(pattern)                 a pattern as text that can be kept, and read where its channels are not
    from_text(text)

A station replays a whole record, or one key of it; Spark some of the keys in each task. Both give the machine
only inputs of keys that belong together. What they leave out is said by ticks, for it moved the clock, and by
evictions, for keys that were left out crowd nobody out a second time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from heliograph.errors import FormatError
from heliograph.patterns.machine import Correlator
from heliograph.patterns.pattern import KEYS, After, AllOf, AnyOf, Every, Leaf, Node, NoneOf, Pattern

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from heliograph.patterns.machine import Match


class ReplayedInput(NamedTuple):
    """One thing that happened to a pattern.

    Attributes:
        kind: "connect": what was before is forgotten; "event"; "tick": time has passed; "evict": a key gave
            way because there were too many.
        at: the instant on the pattern's clock.
        leaf: of an event, the stream it came by, counted from the left.
        key: what it goes by.
        event: the event, or whatever stands for it in a match.
    """

    kind: str
    at: int
    leaf: int = -1
    key: Hashable = None
    event: Any = None


def replayed(pattern: Pattern, inputs: Iterable[ReplayedInput]) -> Iterator[Match]:
    """The matches; the first input must be a connect."""
    if isinstance(pattern, AllOf):  # who gave way is in the record
        pattern = msgspec.structs.replace(pattern, keys=sys.maxsize)
    machine = Correlator(pattern, 0)
    for kind, at, leaf, key, event in inputs:
        match kind:
            case "connect":
                machine = Correlator(pattern, at)
            case "event":
                yield from machine.offer(leaf, key, event, at)
            case "tick":
                yield from machine.advance(at)
            case "evict":
                yield from machine.forget(key, at)


def to_text(pattern: Pattern) -> str:
    """Equal for patterns that find the same in a record. Of a stream only its text is kept.

    How many keys may wait does not matter: who gave way is in the record.
    """
    return msgspec.json.encode(_bare(pattern)).decode()


def from_text(text: str) -> Pattern:
    """FormatError when this is no pattern."""
    try:
        pattern: Pattern = msgspec.json.decode(text, type=Pattern)
    except msgspec.DecodeError as error:
        raise FormatError(f"this is no pattern: {error}") from error
    return pattern


def described(node: Node) -> str:
    """A pattern as it could be written in a program."""
    match node:
        case Leaf(stream=stream):
            return str(stream)
        case Every(period=period):
            return f"every({period / 1e9:g})"
        case After(delay=delay):
            return f"after({delay / 1e9:g})"
        case AllOf() | AnyOf() | NoneOf():
            kind = {AllOf: "all_of", AnyOf: "any_of", NoneOf: "none_of"}[type(node)]
            parts = [f"{name}={described(part)}" for name, part in node.parts.items()]
            said = [
                f"{name}={value / 1e9:g}" if name in ("within", "watchdog") else f"{name}={value!r}"
                for name in node.__struct_fields__
                if name != "parts" and (value := getattr(node, name)) is not None
            ]
            return f"{kind}({', '.join([*parts, *said])})"


def _bare(node: Node) -> Node:
    match node:
        case Leaf(stream=stream):
            return Leaf(str(stream))
        case AllOf() | AnyOf() | NoneOf():
            parts = {name: _bare(part) for name, part in node.parts.items()}
            said = msgspec.structs.replace(node, parts=parts)
            return msgspec.structs.replace(said, keys=KEYS) if isinstance(said, AllOf) else said
        case _:
            return node
