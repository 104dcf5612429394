"""Functions made at run time, from source that holds only our own identifiers.

    source = Source()
    source.line("def add(event):", 0)
    source.line(f"return event.{source.attribute('price')} + {source.bind(5)}")
    add = source.functions()["add"]

Field names, defaults, literals and classes never stand in the text. A value is bound under a name of ours in
the function's globals; the name of an attribute is written as a placeholder and exchanged in the compiled
code, where a name is data and cannot become anything else.

This is the only place that compiles and runs generated text.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def define(lines: Iterable[str], scope: dict[str, Any], attributes: Mapping[str, str]) -> dict[str, Any]:
    """Run lines that define functions; returns `scope`, which holds what they may use and, after, them.

    Args:
        lines: source text made of our own identifiers only.
        scope: the functions' globals, builtins too if it names any.
        attributes: what each placeholder after a dot stands for.
    """
    code = compile("\n".join(lines) + "\n", "<heliograph>", "exec", dont_inherit=True)
    exec(_with_attribute_names(code, attributes), scope)  # noqa: S102 - the text is ours, see the module's docstring
    return scope


def _with_attribute_names(code: CodeType, attributes: Mapping[str, str]) -> CodeType:
    """The code with placeholders exchanged, in nested functions too."""
    constants = tuple(
        _with_attribute_names(constant, attributes) if isinstance(constant, CodeType) else constant
        for constant in code.co_consts
    )
    # Interned, as the compiler does it: attributes are then found by identity.
    names = tuple(sys.intern(attributes.get(name, name)) for name in code.co_names)
    return code.replace(co_names=names, co_consts=cast("Any", constants))


class Source:
    """The lines of functions in the making, and the values and attribute names that they use."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._values: dict[str, Any] = {}
        self._attributes: dict[str, str] = {}
        self._count = 0

    def fresh(self, prefix: str) -> str:
        """A name that nothing else in this source has."""
        self._count += 1
        return f"{prefix}_{self._count}"

    def bind(self, value: Any, prefix: str = "c") -> str:
        """The name under which the source can use a value."""
        name = self.fresh(prefix)
        self._values[name] = value
        return name

    def attribute(self, name: str) -> str:
        """What to write after a dot to reach the attribute `name`."""
        placeholder = self.fresh("attr")
        self._attributes[placeholder] = name
        return placeholder

    def include(self, values: Mapping[str, Any], attributes: Mapping[str, str]) -> None:
        """Let lines that were made elsewhere, under names of their own, be added: what they use."""
        self._values.update(values)
        self._attributes.update(attributes)

    def line(self, text: str, depth: int = 1) -> None:
        self._lines.append("    " * depth + text)

    def functions(self) -> dict[str, Any]:
        """Compile the lines; the functions that they define, by name, among the bound values."""
        return define(self._lines, self._values, self._attributes)

    def text(self) -> str:
        """The source as it stands, for tests and for the curious."""
        return "\n".join(self._lines)
