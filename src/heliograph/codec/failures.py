"""What a decoder raises when bytes are wrong: always DecodeError, with the path of the field.

The same goes for a class whose own `__post_init__` refuses the values: its error is the cause.

Generated code only finds that something is wrong. Which field it is in is found afterwards: by reading the
body again with the interpreted decoder, which knows where it is, or for large bodies from the position that
msgspec names, where `$[2][0]` becomes `$.position.lat`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import msgspec

from heliograph.codec.interpret import interpreted_decoder
from heliograph.errors import ROOT, DecodeError, InvalidEvent
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from heliograph.model.event import Event
    from heliograph.model.formats import Format

Explain: TypeAlias = Callable[[Exception, Any], NoReturn]

MAX_REREAD: Final = 8 << 10
"""Reading again builds objects one by one; a larger body is not worth the memory and time."""


def explainer(wire: Format, cls: type[Event] | None) -> Explain:
    """A function that raises, for what went wrong with a body, a DecodeError that names the field."""
    reread = interpreted_decoder(wire, cls)

    def explain(error: Exception, body: Any) -> NoReturn:
        if isinstance(error, MemoryError):
            raise error
        if len(body) <= MAX_REREAD:
            try:
                reread(body)
            except DecodeError as exact:
                raise exact from exact.__cause__
        raise _translated(error, wire) from error

    return explain


def _translated(error: Exception, wire: Format) -> DecodeError:
    match error:
        case DecodeError():
            return error
        case InvalidEvent():
            return DecodeError(error.reason, path=error.path)
        case RecursionError():
            return DecodeError("lists and maps are nested too deeply")
        case msgspec.ValidationError():
            reason, _, place = str(error).partition(" - at `")
            return DecodeError(reason, path=named_path(wire, place))
        case _:
            return DecodeError(str(error) or type(error).__name__)


def named_path(wire: Format, place: str) -> str:
    """The path of fields for a path of indexes, as far as the format can follow it."""
    path = ROOT
    kind: ft.FieldType = ft.NestedEvent(wire)
    for step in re.findall(r"\[[^\]]*\]", place):
        while isinstance(kind, ft.Optional):
            kind = kind.item
        number = step[1:-1]
        match kind:
            case ft.NestedEvent(format=fmt) if number.isdigit() and int(number) < len(fmt.fields):
                field = fmt.fields[int(number)]
                path += f".{field.name}"
                kind = field.type
            case ft.List(item=item) | ft.Map(value=item):
                path += step
                kind = item
            case _:
                break
    return path
