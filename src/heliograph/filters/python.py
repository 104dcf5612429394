"""Filters and projections as Python functions of (event, header).

    matches = compile_one(checked)              matches(event, header) is True, False or None
    which = compile_merged([first, second])     which(event, header) -> [1]: the second one is TRUE
    derive = compile_projection(projection)     derive(event, header) -> (7, 555.6)

Events are objects with attributes, or mappings with `access="item"`. `heliograph.filters.python_codegen`
generates the code and can place it inside larger functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.filters.python_codegen import INDENT, Access, Emitter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.filters.typed import Checked, CheckedProjection


def compile_one(checked: Checked, *, access: Access = "attr") -> Callable[..., Any]:
    """A function that gives the value of one expression, None for NULL."""
    emitter = Emitter(access=access)
    value = emitter.add_value(checked.node)
    return _function(emitter, lambda: [f"return {value}"])


def compile_merged(filters: Sequence[Checked], *, access: Access = "attr") -> Callable[..., list[int]]:
    """A function that gives the numbers of the filters that are TRUE, in ascending order."""
    emitter = Emitter(access=access)
    conditions = [emitter.add(checked.node) for checked in filters]
    found = [f"if {{}}: found.append({number})" for number in range(len(conditions))]
    return _function(
        emitter,
        lambda: [
            "found = []",
            *(line.format(condition) for line, condition in zip(found, conditions, strict=True)),
            "return found",
        ],
    )


def compile_projection(
    projection: CheckedProjection, *, access: Access = "attr"
) -> Callable[..., tuple[Any, ...]]:
    """A function that gives the values of a projection."""
    emitter = Emitter(access=access)
    values = [emitter.add_value(node) for node in projection.nodes]
    return _function(emitter, lambda: ["return (" + "".join(f"{value}, " for value in values) + ")"])


def compile_making(projection: CheckedProjection, make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives what `make` makes of the values of a projection."""
    emitter = Emitter()
    values = [emitter.add_value(node) for node in projection.nodes]
    return _function(emitter, lambda: [f"return made({', '.join(map(str, values))})"], {"made": make})


def _function(
    emitter: Emitter, body: Callable[[], list[str]], values: dict[str, Any] | None = None
) -> Callable[..., Any]:
    emitter.finish()
    lines = [*emitter.lines, *body()]
    source = ["def evaluate(event, header=None):", *(INDENT + line for line in lines)]
    function: Callable[..., Any] = emitter.function("evaluate", source, values or {})
    return function
