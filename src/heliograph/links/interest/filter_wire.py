"""Filters on the wire: trees of the filter language as plain data, checked on arrival.

An expression from another station is data, never code: it is rebuilt node by node from a fixed set of
kinds, within the limits that the parser keeps, and then checked against the format of the events like one
that was written here.

A source may let through more than was asked for, never less, because the receiver filters again. So where
the two stations' classes differ in a field that the condition reads, or where it reads how many links an
event has crossed, the source does not filter at all.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, get_args
from uuid import UUID

import msgspec

from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.errors import BadFrame, ExpressionError
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.filters.tree import Expr, Tree
    from heliograph.links.session.messages import Want
    from heliograph.model.event import Event
    from heliograph.model.formats import Format

MAX_DEPTH: Final = 200
"""Levels of lists in a condition: more than any tree within the parser's limits needs."""

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "Name": ("text", "bool"),
    "Member": ("tree", "text"),
    "Element": ("tree", "value"),
    "Negate": ("tree",),
    "Arith": ("arithmetic", "tree", "tree"),
    "Compare": ("comparison", "tree", "tree"),
    "Between": ("tree", "tree", "tree"),
    "In": ("tree", "values"),
    "Like": ("tree", "value", "value or none"),
    "IsNull": ("tree",),
    "Not": ("tree",),
    "And": ("two trees",),
    "Or": ("two trees",),
    "Case": ("tree or none", "pairs", "tree or none"),
    "Call": ("function", "trees"),
}
"""What each kind of node is made of, by its name on the wire; a `Value` is looked at on its own."""

_WRITTEN: Final[dict[str, type]] = {"date": date, "uuid": UUID, "decimal": Decimal}
"""Kinds of constants that travel as text."""


def to_data(tree: Tree) -> Any:
    """A tree as nested lists: the name of each node's kind, then its fields but for the place."""
    from heliograph.filters import tree as t  # noqa: PLC0415 - only links that carry filters need trees

    return t.to_data(tree)


def from_data(data: Any, peer: str) -> Expr:
    """The expression that `to_data` described; BadFrame for anything else."""
    from heliograph.filters import tree as t  # noqa: PLC0415 - only links that carry filters need trees

    return t.Expr(_Rebuild(peer).tree(data, MAX_DEPTH), t.SourceText("(from another station)"))


class _Rebuild:
    """Rebuilds trees, looking at every part before it becomes one."""

    def __init__(self, peer: str) -> None:
        from heliograph.filters import tree as t  # noqa: PLC0415 - as above

        self._peer = peer
        self._kinds = t

    def tree(self, data: Any, depth: int) -> Any:
        name = data[0] if isinstance(data, list) and data and depth else None
        fields = _FIELDS.get(name) if isinstance(name, str) else None
        if name == "Value":
            return self._value(data)
        if fields is None or len(fields) != len(data) - 1:
            raise BadFrame(self._peer, f"a condition with a node {str(name)[:40]!r}, or nested too deeply")
        parts = [self._part(kind, part, depth - 1) for kind, part in zip(fields, data[1:], strict=True)]
        if name == "Call":
            self._check_call(*parts)
        return getattr(self._kinds, self._kinds.CLASS_IN_DATA.get(str(name), str(name)))(*parts)

    def _check_call(self, function: str, args: tuple[Any, ...]) -> None:
        from heliograph.filters.parser import FUNCTIONS  # noqa: PLC0415 - as above

        least, most = FUNCTIONS.get(function, (1, 0))
        if not least <= len(args) <= most:
            raise BadFrame(self._peer, f"a condition that calls {function[:40]!r} of {len(args)} values")

    def _part(self, kind: str, data: Any, depth: int) -> Any:
        match kind:
            case "tree":
                return self.tree(data, depth)
            case "value":
                return self._value(data)
            case "tree or none" | "value or none":
                return None if data is None else self._part(kind.removesuffix(" or none"), data, depth)
            case "trees":
                return tuple(self.tree(item, depth) for item in self._items(data))
            case "two trees" if len(self._items(data)) > 1:
                return self._part("trees", data, depth)
            case "values" if 0 < len(self._items(data)) <= self._kinds.MAX_IN:
                return tuple(self._value(item) for item in self._items(data))
            case "pairs":
                return tuple(self._pair(pair, depth) for pair in self._items(data))
            case "text" | "function" if isinstance(data, str):
                return data
            case "bool" if isinstance(data, bool):
                return data
            case "arithmetic" | "comparison" if data in get_args(getattr(self._kinds, kind.capitalize())):
                return data
        raise BadFrame(self._peer, f"a condition with {str(data)[:40]!r} where a {kind} should be")

    def _pair(self, data: Any, depth: int) -> tuple[Any, Any]:
        pair = self._items(data)
        if len(pair) != 2:
            raise BadFrame(self._peer, "a condition with a branch that is no pair")
        return self.tree(pair[0], depth), self.tree(pair[1], depth)

    def _items(self, data: Any) -> list[Any]:
        if not isinstance(data, list) or data[:1] != [""]:
            raise BadFrame(self._peer, "a condition without a list where there should be one")
        return data[1:]

    def _value(self, data: Any) -> Any:
        from heliograph.filters.params import constant  # noqa: PLC0415 - as above

        if not isinstance(data, list) or len(data) != 3 or data[0] != "Value":
            raise BadFrame(self._peer, "a condition without a value where there should be one")
        _, value, kind = data
        if kind in _WRITTEN:
            value = self._unwritten(value, kind)
        try:
            node = constant(value)
        except ExpressionError as error:
            raise BadFrame(self._peer, f"a condition with a value that is none: {error}") from None
        if node.kind != kind:
            raise BadFrame(self._peer, f"a condition with a {node.kind} that is called a {str(kind)[:40]}")
        return node

    def _unwritten(self, value: Any, kind: str) -> Any:
        """A value of a kind that msgpack has only as text."""
        try:
            return msgspec.convert(value, _WRITTEN[kind])
        except msgspec.ValidationError as error:
            raise BadFrame(self._peer, f"a condition with a {kind} that is none: {error}") from None


def condition_for(
    want: Want, cls: type[Event], format_of: Callable[[bytes], Format | None], peer: str
) -> ReceiverCondition:
    """When to send an event of a class to a station that wants this."""
    sources = None if want.sources is None else frozenset(want.sources)
    if want.tree is None:
        return ReceiverCondition(None, sources)
    expr = from_data(want.tree, peer)
    own = info_of(cls).format
    theirs = own if want.format_id == own.id else format_of(want.format_id)
    if theirs is None or not _same_fields(expr.tree, own, theirs):
        return ReceiverCondition(None, sources)
    from heliograph.filters.check import check  # noqa: PLC0415 - as above

    try:
        return ReceiverCondition(check(expr, own), sources)
    except ExpressionError:
        return ReceiverCondition(None, sources)


def _same_fields(tree: Tree, own: Format, theirs: Format) -> bool:
    """Whether every field that a condition reads is the same on both sides; links crossed are not."""
    from heliograph.filters import tree as t  # noqa: PLC0415 - as above

    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, t.Name) and node.header and node.name == "hops":
            return False
        if isinstance(node, t.Name) and not node.header:
            ours, other = own.by_name.get(node.name), theirs.by_name.get(node.name)
            if ours is None or other is None or ours.type != other.type:
                return False
        waiting.extend(t.children(node))
    return True
