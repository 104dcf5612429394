"""A derivation: what a receiver has made of the events of a channel, and the format of what comes out.

    derivation = Derivation("air.tracks", "air.track", parse_projection("id, speed * 1.852 AS kmh"), where)
    derivation.digest            the same text for all who ask for the same, in every station
    made = derivation.over(fmt)  checked against one version of the event class
    made.format                  the format of the derived events
    made.function(cls)           (event, header) -> a derived event

A derivation is data: two trees and some names. What it makes is decided by the format of the events that it
is applied to:

| a column is | its type is |
|---|---|
| a field as it is | that of the field; an enum's value in place of an enum |
| a condition | bool |
| int, float, text, bytes, datetime, date, uuid | i64, f64, str, bytes, datetime, date, uuid |
| an unsigned 64-bit field | u64 |

and `| None` behind it exactly where the value can be NULL: a field that is optional is read, or an operator
can fail, as a division can. A derived event keeps the key of its class if all fields of the key are among its
columns as they are.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.codec import decoder, encoder
from heliograph.codec.dynamic.classes import class_for
from heliograph.errors import ExpressionError, FormatError
from heliograph.errors.sentences import listed
from heliograph.filters import tree as t
from heliograph.filters import typed as k
from heliograph.filters.check import check, check_projection
from heliograph.filters.python import compile_making, compile_one
from heliograph.model import field_types as ft
from heliograph.model.compatibility import compare, defaults_of
from heliograph.model.event import Event, EventMeta, info_of
from heliograph.model.formats import Field, Format

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSION: Final = 1
"""Of what the digest is made of."""
DIGEST_SIZE: Final = 8

_KIND_TYPES: Final[dict[str, ft.ScalarName]] = {
    "bool": "bool",
    "int": "i64",
    "wide": "u64",
    "float": "f64",
    "text": "str",
    "bytes": "bytes",
    "datetime": "datetime",
    "date": "date",
    "uuid": "uuid",
}


class Derivation(msgspec.Struct, frozen=True, dict=True):
    """See the module; equal ones have one digest."""

    channel: str
    """Whose events."""
    type: str
    """The name of their event type."""
    projection: t.Projection
    where: t.Expr | None = None
    sources: tuple[str, ...] | None = None

    @cached_property
    def digest(self) -> str:
        """What all who ask for the same share: it names the derived channel and the type of its events."""
        return blake2b(
            msgspec.msgpack.encode([_VERSION, *self.as_data()]), digest_size=DIGEST_SIZE
        ).hexdigest()

    def as_data(self) -> tuple[Any, ...]:
        """Plain data, which says everything but how it was written."""
        columns = [[output.name, t.to_data(output.tree)] for output in self.projection.outputs]
        where = None if self.where is None else t.to_data(self.where.tree)
        return self.channel, self.type, columns, where, self.sources

    @property
    def type_name(self) -> str:
        """The name of the type of derived events."""
        return f"{self.type}.derived-{self.digest}"

    def over(self, fmt: Format) -> CheckedDerivation:
        """Checked against one version of the class; ExpressionError points at what does not fit."""
        projection = check_projection(self.projection, fmt)
        condition = None if self.where is None else check(self.where, fmt)
        return CheckedDerivation(self, fmt, projection, condition)

    def __str__(self) -> str:
        where = "" if self.where is None else f" where {self.where}"
        return f"{self.projection.text.text} of {self.channel}{where}"


class CheckedDerivation:
    """A derivation of the events of one format."""

    def __init__(
        self,
        derivation: Derivation,
        source: Format,
        projection: k.CheckedProjection,
        condition: k.Checked | None,
    ) -> None:
        self.derivation = derivation
        self.source = source
        self.projection = projection
        self.condition = condition
        pairs = tuple(zip(projection.names, projection.nodes, strict=True))
        fields = tuple(Field(name, type_of(node, source)) for name, node in pairs)
        plain = {name for name, node in pairs if isinstance(node, k.Column) and _path(node) == (name,)}
        key = source.key if source.key and plain.issuperset(source.key) else ()
        if any(not _fits_key(field.type) for field in fields if field.name in key):
            key = ()  # of an enum the value is left
        self.format = Format(derivation.type_name, fields, key)

    @cached_property
    def needs_header(self) -> bool:
        """Whether a column says something of the header."""
        return any(c.header for node in self.projection.nodes for c in k.columns(node))

    def class_made(self) -> type[Event]:
        """The class of derived events where no program has one of its own."""
        try:
            return class_for(self.format)
        except FormatError as error:
            raise ExpressionError(error.reason, text=self.projection.text, column=1) from None

    def class_into(self, into: type[Event]) -> type[Event]:
        """A class of derived events that are events of the user's class; FormatError when they cannot be.

        The class must have each column of the projection under its name, with a type that takes all its
        values; other fields need a default.
        """
        info, names = info_of(into), tuple(field.name for field in self.format.fields)
        if lacking := [name for name in names if name not in info.types]:
            raise FormatError(
                f"{into.__qualname__} has no field for {listed(lacking)} "
                f"of the projection; it has {listed(list(info.types))}"
            )
        key = self.format.key if set(self.format.key) <= set(info.types) else ()
        made: Any = EventMeta(
            into.__name__, (into,), {"__module__": into.__module__}, name=self.derivation.type_name, key=key
        )
        wanted = msgspec.structs.replace(info_of(made).format, key=self.format.key)
        problems = compare(self.format, wanted, has_default=defaults_of(into)).problems
        if problems:
            raise FormatError(f"{into.__qualname__} does not fit the projection: {'; '.join(problems)}")
        cls: type[Event] = made
        return cls

    def function(self, cls: type[Event]) -> Callable[..., Event]:
        """What makes a derived event of that class, of (event, header)."""
        own = info_of(cls)
        by_order = [*own.types.items()] == [(field.name, field.type) for field in self.format.fields]
        if by_order and not any(field.keyword_only for field in own.fields.values()):
            return compile_making(self.projection, cls)
        names = tuple(field.name for field in self.format.fields)
        if all(_holds_as_it_is(own.types[field.name], field.type) for field in self.format.fields):
            return compile_making(
                self.projection, lambda *values: cls(**dict(zip(names, values, strict=True)))
            )
        made = self.class_made()
        encode, decode = encoder(made).encode, decoder(self.format, cls)
        return compile_making(self.projection, lambda *values: decode(encode(made(*values))))

    @cached_property
    def holds(self) -> Callable[..., Any] | None:
        """Whether the condition is TRUE, of (event, header); None: there is none."""
        return None if self.condition is None else compile_one(self.condition)


def type_of(node: k.Node, fmt: Format) -> ft.FieldType:
    """The type of a column of a projection over a format; see the module."""
    found: ft.FieldType = ft.Scalar(_KIND_TYPES[node.kind]) if node.kind in _KIND_TYPES else ft.Anything()
    if node.kind == "decimal":
        found = ft.Decimal(*k.digits_of(node))
    if isinstance(node, k.Column) and not node.header and (path := _path(node)) is not None:
        found = _field_type(fmt, path)
    return ft.Optional(found) if node.nullable else found


def _path(column: k.Column) -> tuple[str, ...] | None:
    """The names that lead to a field as it is; None for an element of a list, and for the header."""
    if column.header or any(step.how != "field" for step in column.steps):
        return None
    return tuple(str(step.key) for step in column.steps)


def _field_type(fmt: Format, path: tuple[str, ...]) -> ft.FieldType:
    found: ft.FieldType = ft.NestedEvent(fmt)
    for name in path:
        assert isinstance(found, ft.NestedEvent), "the checker has walked it"
        found = found.format.by_name[name].type
        found = found.item if isinstance(found, ft.Optional) else found
    return ft.Scalar(found.base) if isinstance(found, ft.Enum) else found


def _fits_key(kind: ft.FieldType) -> bool:
    return isinstance(kind, ft.Decimal) or (isinstance(kind, ft.Scalar) and kind.name not in ft.FLOATS)


def _holds_as_it_is(own: ft.FieldType, derived: ft.FieldType) -> bool:
    return own in (derived, ft.Optional(derived))
