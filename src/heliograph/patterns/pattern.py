"""Patterns over several streams (`all_of`, `any_of`, `none_of`, `every`, `after`), as plain data.

    all_of(t=tracks.where("speed > 300"), w=weather, within=1.0, by="region")
        one event of each, the latest that came; with `reuse="consume"` a match empties the set, with
        `"latest"` the last of each is kept and used again
    any_of(fire=fire, smoke=smoke)
        any one of them
    none_of(beat=beats, within=5.0)
        none of them for so long: said once, and again only after one has come
    every(0.2), after(5.0)
        the clock: again and again on a grid that starts with the subscription, or once

Patterns nest. A `none_of` inside `all_of` takes its window from there: the match is given when the window
that the first of its events opened has closed and none of those came in it. `watchdog=` on the outermost
`all_of` reports, once, that the set was not complete in time, and names what was missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from heliograph.errors import InvalidPattern
from heliograph.errors.channel import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PARTS: Final = 64
"""Leaves of one pattern."""
MAX_DEPTH: Final = 8
"""Patterns inside patterns."""
DEPTH: Final = 1_000
"""Complete sets of one key that wait for their window to close, unless `depth=` says otherwise."""
KEYS: Final = 10_000
"""Keys that have events waiting at the same time, unless `keys=` says otherwise."""

OPTIONS: Final = ("within", "by", "reuse", "watchdog", "depth", "keys")
RESERVED: Final = frozenset({"key", "at", "missing"})
"""What a match says besides its events."""

Reuse: TypeAlias = Literal["consume", "latest"]


class Leaf(msgspec.Struct, frozen=True, eq=False, tag=True):
    """Events of one stream: a channel, or a channel with a filter; what it is only the shell knows.

    As text it says all that matters of it, in the same words wherever it is said.
    """

    stream: Any


class Every(msgspec.Struct, frozen=True, eq=False, tag=True):
    period: int


class After(msgspec.Struct, frozen=True, eq=False, tag=True):
    delay: int


class AllOf(msgspec.Struct, frozen=True, eq=False, tag=True):
    parts: dict[str, Node]
    within: int | None = None
    reuse: Reuse = "consume"
    watchdog: int | None = None
    by: str | dict[str, str] | None = None
    depth: int = DEPTH
    keys: int = KEYS


class AnyOf(msgspec.Struct, frozen=True, eq=False, tag=True):
    parts: dict[str, Node]


class NoneOf(msgspec.Struct, frozen=True, eq=False, tag=True):
    parts: dict[str, Node]
    within: int | None = None


Node: TypeAlias = Leaf | Every | After | AllOf | AnyOf | NoneOf
Pattern: TypeAlias = AllOf | AnyOf | NoneOf | Every | After


def all_of(
    *parts: Mapping[str, Any],
    within: float | None = None,
    by: str | Mapping[str, str] | None = None,
    reuse: Reuse = "consume",
    watchdog: float | None = None,
    depth: int = DEPTH,
    keys: int = KEYS,
    **more: Any,
) -> AllOf:
    """One of each, in any order.

    Args:
        *parts: streams and patterns by name, as keywords or, for names that are options, as one mapping.
        within: seconds from the first to the last event of a match.
        by: the field whose value all events of a match share; a mapping names it per stream.
        reuse: "consume": a match empties the set, so each event is in one match at most. "latest": the last
            of each is kept, and each event that comes gives a match with the last of the others.
        watchdog: seconds in which the set must become complete; else what is missing is reported.
        depth: complete sets of one key that may wait for a window with `none_of` to close; the oldest give
            way, and are counted.
        keys: keys that may have events waiting; the one longest without an event gives way, and is counted.
    """
    nodes = _nodes("all_of", parts, more)
    if reuse not in ("consume", "latest"):
        raise InvalidPattern("all_of", f"reuse={reuse!r}; it is 'consume' or 'latest'")
    for name, value in (("depth", depth), ("keys", keys)):
        if type(value) is not int or value < 1:
            raise InvalidPattern("all_of", f"{name}={value!r}; it is a whole number above 0")
    _check_absences(nodes, within, reuse)
    return AllOf(
        nodes,
        _optional_ns("within", within),
        reuse,
        _optional_ns("watchdog", watchdog),
        _checked_by(by, nodes),
        depth,
        keys,
    )


def any_of(*parts: Mapping[str, Any], **more: Any) -> AnyOf:
    """Any one of them; in the match all the others are None."""
    return AnyOf(_nodes("any_of", parts, more))


def none_of(*parts: Mapping[str, Any], within: float | None = None, **more: Any) -> NoneOf:
    """None of them: for `within` seconds, or inside `all_of` for as long as that one's window."""
    return NoneOf(_nodes("none_of", parts, more), _optional_ns("within", within))


def every(period: float) -> Every:
    """The clock, again and again: every so many seconds from the subscription on, without drift."""
    return Every(_ns("every", period))


def after(delay: float) -> After:
    """The clock, once: so many seconds after the subscription."""
    return After(_ns("after", delay))


def check(pattern: Any) -> None:
    """Whether a pattern can stand on its own; InvalidPattern says what is wrong."""
    if not isinstance(pattern, AllOf | AnyOf | NoneOf | Every | After):
        raise InvalidPattern(
            "the pattern", f"is all_of, any_of, none_of, every or after, not {pattern!r:.60}"
        )
    if isinstance(pattern, NoneOf) and pattern.within is None:
        raise InvalidPattern("none_of", "needs within= where it stands alone: for how long none may come")
    leaves = sum(1 for _ in leaves_of(pattern))
    if leaves > MAX_PARTS:
        raise InvalidPattern("the pattern", f"has {leaves} parts; at most {MAX_PARTS} are allowed")
    _check_inside(pattern, 1)


def limited(pattern: Pattern, *, keys: int | None, depth: int | None) -> Pattern:
    """The same pattern with these limits in place of its own, where any is given."""
    if keys is None and depth is None:
        return pattern
    check(pattern)
    return cast("Pattern", _limited(pattern, {"keys": keys, "depth": depth}))


def _limited(node: Node, limits: dict[str, int | None]) -> Node:
    if not isinstance(node, AllOf | AnyOf | NoneOf):
        return node
    said = {name: value for name, value in limits.items() if value is not None and isinstance(node, AllOf)}
    parts = {name: _limited(part, limits) for name, part in node.parts.items()}
    return msgspec.structs.replace(node, parts=parts, **said)


def leaves_of(node: Node) -> Iterator[Node]:
    """Streams and clocks, from left to right: the places where something comes in."""
    if isinstance(node, AllOf | AnyOf | NoneOf):
        for part in node.parts.values():
            yield from leaves_of(part)
    else:
        yield node


def _nodes(kind: str, parts: tuple[Mapping[str, Any], ...], more: Mapping[str, Any]) -> dict[str, Node]:
    if parts and not (len(parts) == 1 and isinstance(parts[0], Mapping)):
        raise InvalidPattern(kind, f"has parts without a name; name each: {kind}(t=tracks, w=weather)")
    named = {**(parts[0] if parts else {}), **more}
    if not named:
        raise InvalidPattern(kind, f"has no parts; name at least one: {kind}(t=tracks, w=weather)")
    for name in named:
        if not name.isidentifier() or name.startswith("_") or name in RESERVED:
            raise InvalidPattern(
                kind,
                f"calls a part {name!r}; a name is an identifier other than {', '.join(sorted(RESERVED))}",
            )
    return {name: _node(kind, name, part) for name, part in named.items()}


def _node(kind: str, name: str, part: Any) -> Node:
    if isinstance(part, Leaf | Every | After | AllOf | AnyOf | NoneOf):
        return part
    if not hasattr(part, "as_stream") and name in OPTIONS and kind != "all_of":
        said = {"within": "..."} | {name: repr(part)} if name != "within" else {name: repr(part)}
        options = ", ".join(f"{option}={value}" for option, value in said.items())
        around = f"hg.all_of(first=..., rest=hg.{kind}(...), {options})"
        raise InvalidPattern(kind, f"has no {name}=: it is for the all_of around it, {around:.200}")
    if not hasattr(part, "as_stream"):
        raise InvalidPattern(
            kind,
            f"has {name}={part!r:.60}; a part is a channel, channel.where(...) or a pattern"
            + did_you_mean(name, OPTIONS),
        )
    return Leaf(part.as_stream())


def _check_absences(nodes: Mapping[str, Node], within: float | None, reuse: Reuse) -> None:
    absences = [name for name, node in nodes.items() if isinstance(node, NoneOf)]
    if not absences:
        return
    if within is None:
        raise InvalidPattern(
            "all_of", f"has {absences[0]}=none_of(...), which needs within=: none, for how long?"
        )
    if reuse == "latest":
        raise InvalidPattern(
            "all_of", "with none_of decides when a window closes: it cannot use the latest again"
        )
    if len(absences) == len(nodes):
        raise InvalidPattern("all_of", "has nothing but none_of: what opens the window?")
    for name in absences:
        node = nodes[name]
        if isinstance(node, NoneOf) and node.within is not None:
            raise InvalidPattern(
                "none_of", f"inside all_of has the window of that one: leave out {name}'s within="
            )


def _check_inside(node: Node, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidPattern("the pattern", f"is nested deeper than {MAX_DEPTH}")
    if not isinstance(node, AllOf | AnyOf | NoneOf):
        return
    for name, part in node.parts.items():
        if isinstance(part, AllOf) and (part.by is not None or part.watchdog is not None):
            raise InvalidPattern(
                "all_of", f"{name} is inside another pattern: by= and watchdog= go to the outermost"
            )
        if isinstance(part, NoneOf) and part.within is None and not isinstance(node, AllOf):
            raise InvalidPattern("none_of", f"{name} needs within=: only all_of lends it a window")
        if isinstance(node, NoneOf) and isinstance(part, NoneOf):
            raise InvalidPattern("none_of", f"{name} is none_of inside none_of: name the events themselves")
        _check_inside(part, depth + 1)


def _checked_by(by: Any, nodes: Mapping[str, Node]) -> str | dict[str, str] | None:
    if by is None or isinstance(by, str):
        return by
    if not isinstance(by, Mapping) or not all(isinstance(field, str) for field in by.values()):
        raise InvalidPattern("all_of", f"by={by!r:.60}; it is a field, or a mapping of names to fields")
    streams = {name for name, node in nodes.items() if isinstance(node, Leaf)}
    if any(isinstance(node, AllOf | AnyOf | NoneOf) for node in nodes.values()):
        raise InvalidPattern("all_of", "by= is one field for all where patterns are nested")
    if by.keys() != streams:
        raise InvalidPattern(
            "all_of", f"by= names {', '.join(by)}; it names each stream: {', '.join(streams)}"
        )
    return dict(by)


def _optional_ns(name: str, seconds: float | None) -> int | None:
    return None if seconds is None else _ns(name, seconds)


def _ns(name: str, seconds: Any) -> int:
    if type(seconds) not in (int, float) or not 1e-9 <= seconds <= 1e9:
        raise InvalidPattern(name, f"is {seconds!r}; it is seconds above 0")
    nanoseconds: int = round(seconds * 1e9)
    return nanoseconds
