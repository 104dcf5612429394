"""Functions made at run time, from source that holds only our own identifiers.

    source = Source()
    source.line("def add(event):", 0)
    source.line(f"return event.{source.attribute('price')} + {source.bind(5)}")
    add = source.functions()["add"]

Field names, defaults, literals and classes never stand in the text. A value is bound under a name of ours in
the function's globals; the name of an attribute is written as a placeholder and exchanged in the compiled
code, where a name is data and cannot become anything else.

Each source has a file name of its own, such as `<heliograph way 12>`, and its text is in `linecache` for as
long as one of its functions lives: tracebacks, profilers and debuggers show the line, with the names of the
user's fields where these are identifiers.

This is the only place that compiles and runs generated text.
"""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import weakref
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_NUMBERS: Final = itertools.count(1)
_ATTRIBUTE: Final = re.compile(r"(?<=\.)[A-Za-z_]\w*")
_FUNCTION: Final = re.compile(r"\s*def (\w+)\(")
GENERATED: Final = "<heliograph "
"""How the file name of generated code begins."""
_TEXT: Final = "__source_text__"
"""The name of the token among a function's globals whose end removes the text from `linecache`."""


def define(lines: Iterable[str], scope: dict[str, Any], attributes: Mapping[str, str]) -> dict[str, Any]:
    """Run lines that define functions; returns `scope`, which holds what they may use and, after, them.

    Args:
        lines: source text made of our own identifiers only.
        scope: the functions' globals, builtins too if it names any.
        attributes: what each placeholder after a dot stands for.
    """
    written = list(lines)
    named = next((found[1] for line in written if (found := _FUNCTION.match(line))), "code")
    file_name = f"{GENERATED}{named} {next(_NUMBERS)}>"
    code = compile("\n".join(written) + "\n", file_name, "exec", dont_inherit=True)
    exec(_with_attribute_names(code, attributes), scope)  # noqa: S102 - the text is ours, see the module's docstring
    scope[_TEXT] = _show(file_name, written, attributes)
    return scope


class _Text:
    """Lives as long as the globals of generated functions, and with it their text in `linecache`."""

    __slots__ = ("__weakref__", "file_name")

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name


def _show(file_name: str, lines: list[str], attributes: Mapping[str, str]) -> _Text:
    """Hand the text to `linecache`, where everything that shows Python code looks for it."""

    def attribute(found: re.Match[str]) -> str:
        name = attributes.get(found[0], "")
        # A name from a foreign format may hold anything, control characters too: such a one is not shown.
        return name if name.isidentifier() else found[0]

    # Interned: ten thousand channels have ten thousand texts of mostly the same lines.
    shown = [sys.intern(_ATTRIBUTE.sub(attribute, line) + "\n") for line in lines]
    # No time of change: `linecache.checkcache` then keeps the entry although there is no such file.
    linecache.cache[file_name] = (sum(map(len, shown)), None, shown, file_name)
    text = _Text(file_name)
    weakref.finalize(text, linecache.cache.pop, file_name, None).atexit = False
    return text


def text_of(function: Callable[..., Any]) -> str:
    """The text of a generated function and of those that were made with it, as tracebacks show it."""
    return "".join(linecache.getlines(function.__code__.co_filename))


def _with_attribute_names(code: CodeType, attributes: Mapping[str, str]) -> CodeType:
    """The code with placeholders exchanged, in nested functions too."""
    constants = tuple(
        _with_attribute_names(constant, attributes) if isinstance(constant, CodeType) else constant
        for constant in code.co_consts
    )
    # Interned, as the compiler does it: attributes are then found by identity.
    names = tuple(sys.intern(attributes.get(name, name)) for name in code.co_names)
    return code.replace(co_names=names, co_consts=cast("Any", constants))


class CodeBuilder:
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
