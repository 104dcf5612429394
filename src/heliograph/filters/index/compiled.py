"""The functions that a matcher generates: what to look an event up by, and what is left to evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from heliograph.filters.index.regions import ENCODERS
from heliograph.filters.python_codegen import INDENT, Access, Emitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.filters.typed import Column, Node

Condition: TypeAlias = "Callable[[Any, Any], object]"
"""Of (event, header); truthy exactly when it is TRUE."""
Load: TypeAlias = "Callable[[Any, Any], Any]"
"""Of (event, header); gives points, None for NULL."""


def condition(node: Node, access: Access) -> Condition:
    """Whether a condition is TRUE."""
    emitter = Emitter(access=access)
    slot = emitter.add(node)
    return _function(emitter, lambda: f"return {slot}")


def point(column: Column, access: Access) -> Load:
    """The value of a column as a point of its domain."""
    emitter = Emitter(access=access)
    slot = emitter.add_value(column)
    return _function(emitter, lambda: f"return {_encoded(column, str(slot))}")


def key(columns: tuple[Column, ...], access: Access) -> Load:
    """The values of several columns at once, as a tuple of points; of one column, as the point itself."""
    if len(columns) == 1:
        return point(columns[0], access)
    emitter = Emitter(access=access)
    slots = [(column, emitter.add_value(column)) for column in columns]
    return _function(
        emitter,
        lambda: "return (" + "".join(f"{_encoded(column, str(slot))}, " for column, slot in slots) + ")",
    )


def _encoded(column: Column, value: str) -> str:
    if column.kind not in ENCODERS:
        return value
    encoded = f"{column.kind}_point"
    return f"(None if (x := {value}) is None else {encoded}(x))" if column.nullable else f"{encoded}({value})"


_NAMESPACE = {f"{kind}_point": encode for kind, encode in ENCODERS.items()}


def _function(emitter: Emitter, result: Callable[[], str]) -> Callable[[Any, Any], Any]:
    emitter.finish()
    body = [*emitter.lines, result()]
    source = ["def evaluate(event, header):", *(INDENT + line for line in body)]
    function: Callable[[Any, Any], Any] = emitter.function("evaluate", source, _NAMESPACE)
    return function
