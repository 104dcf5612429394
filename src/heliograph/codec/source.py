"""Functions made at run time, from source that holds only our own identifiers.

    source = Source("def add(event):")
    source.line(f"return event.{source.attribute('price')} + {source.bind(5)}")
    add = source.function()

Field names, defaults, literals and classes never stand in the text. A value is bound under a name of ours in
the function's globals; the name of an attribute is written as a placeholder and exchanged in the compiled
code, where a name is data and cannot become anything else.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, cast


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

    def line(self, text: str, depth: int = 1) -> None:
        self._lines.append("    " * depth + text)

    def functions(self) -> dict[str, Any]:
        """Compile the lines; the functions that they define, by name, among the bound values."""
        code = compile("\n".join(self._lines) + "\n", "<heliograph codec>", "exec", dont_inherit=True)
        exec(self._with_attribute_names(code), self._values)  # noqa: S102 - the text is ours, see the module's docstring
        return self._values

    def text(self) -> str:
        """The source as it stands, for tests and for the curious."""
        return "\n".join(self._lines)

    def _with_attribute_names(self, code: CodeType) -> CodeType:
        constants = tuple(
            self._with_attribute_names(constant) if isinstance(constant, CodeType) else constant
            for constant in code.co_consts
        )
        names = tuple(self._attributes.get(name, name) for name in code.co_names)
        return code.replace(co_names=names, co_consts=cast("Any", constants))
