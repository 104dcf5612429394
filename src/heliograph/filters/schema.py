"""What names mean: the fields of a format and of the header, as columns.

This module alone knows the header's fields in filters. In Python they are attributes of
`heliograph.model.event.Header`; in Arrow and Spark they are fields of one struct column named `header`, whose
times are microsecond timestamps in UTC and whose `user` is a map of text to text.

In Arrow and Spark an event's field is a column of its name, laid out as `heliograph.codec.columnar.columns`
does it: a nested event is a struct, a list or array of one dimension a list, any other array a struct of
`shape` and of `data` with the items in row-major order, a map and a decimal the same, a u64 an unsigned
integer or decimal(20, 0), a
UUID its text in lower case.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.errors import ExpressionError
from heliograph.errors.sentences import listed
from heliograph.filters.typed import Column, Kind, Load, Step, TypedAnd, columns
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.filters.typed import Node
    from heliograph.model.formats import Format


class HeaderField(NamedTuple):
    """A field of the header as filters see it.

    Attributes:
        attribute: what it is called in `heliograph.model.event.Header`.
        of_each: whether it differs between events of one class that one supplier pushed together.
    """

    name: str
    kind: Kind
    attribute: str
    nullable: bool = False
    load: Load = "plain"
    of_each: bool = False

    @property
    def of_place(self) -> bool:
        """Whether it is known only once the event has its sequence number, or is in a history."""
        return self.of_each or self.name == "partition"


HEADER_FIELDS: Final[dict[str, HeaderField]] = {
    field.name: field
    for field in (
        HeaderField("channel", "text", "channel"),
        HeaderField("type", "text", "type"),
        HeaderField("supplier", "text", "supplier"),
        HeaderField("epoch", "int", "epoch"),
        HeaderField("sequence", "int", "sequence", of_each=True),
        HeaderField("source_ts", "datetime", "source_ts", nullable=True, load="datetime_ns", of_each=True),
        HeaderField("append_ts", "datetime", "append_ts", nullable=True, load="datetime_ns", of_each=True),
        HeaderField("station_seq", "int", "station_seq", of_each=True),
        HeaderField("offset", "int", "offset", nullable=True, of_each=True),
        HeaderField("partition", "text", "partition", nullable=True),
        HeaderField("priority", "int", "priority"),
        HeaderField("hops", "int", "hops"),
        HeaderField("correlation_id", "text", "correlation_id", nullable=True),
        HeaderField("redelivered", "bool", "redelivered"),
        HeaderField("user", "other", "headers", nullable=True, load="opaque"),
    )
}
USER_HEADERS: Final = "user"
HEADER_COLUMN: Final = "header"
MAX_POSITION: Final = (1 << 31) - 1
"""Of an element in a list or array of free length."""


class OneHeader:
    """Watches that the column `header` stands for one thing in an expression over columns.

    A class may have a field of that name, and its columns alone can be filtered by it. Beside the header,
    which has the same name there, it cannot.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._meanings: set[bool] = set()

    def read(self, column: Column) -> None:
        """Note a column that is read; ExpressionError when `header` has got a second meaning."""
        if column.header or column.steps[0].key == HEADER_COLUMN:
            self._meanings.add(column.header)
        if len(self._meanings) > 1:
            raise ExpressionError(
                "in columns the header and a field named 'header' are both called `header`; "
                "a filter that reads both works on events only: rename the field",
                text=self._text,
                column=1,
            )


class NoSuchColumn(LookupError):
    """A name or position that leads nowhere; the checker adds the column."""


class PathStep(NamedTuple):
    """Where a path has come to: the steps so far, the type there, and whether NULL can be.

    `any_rank` is for an item of an array of free shape, which may have more dimensions than positions so far.
    """

    steps: tuple[Step, ...]
    type: ft.FieldType
    nullable: bool
    any_rank: bool = False


def field(fmt: Format, name: str) -> PathStep:
    """A field of the event."""
    return _field_of(fmt, name, (), nullable=False)


def member(place: PathStep, name: str, written: str) -> PathStep:
    """A field of the nested event that `place` holds."""
    if isinstance(place.type, ft.Map):
        return entry(place, name, written)
    if not isinstance(place.type, ft.NestedEvent):
        raise NoSuchColumn(f"{written} is {describe(place.type)} and has no fields; only nested events have")
    return _field_of(place.type.format, name, place.steps, nullable=place.nullable)


def _field_of(fmt: Format, name: str, steps: tuple[Step, ...], *, nullable: bool) -> PathStep:
    found = fmt.by_name.get(name)
    if found is None or (name.startswith("__") and name.endswith("__")):
        raise NoSuchColumn(f"{fmt.name} has no field {name[:60]!r}; {_suggest(name, fmt.by_name)}")
    optional = isinstance(found.type, ft.Optional)
    inner = found.type.item if isinstance(found.type, ft.Optional) else found.type
    return PathStep((*steps, Step(name, "field", optional)), inner, nullable or optional)


def entry(place: PathStep, key: str | int, written: str) -> PathStep:
    """One entry of the map that `place` holds: NULL when it has none with this key."""
    assert isinstance(place.type, ft.Map)
    step = key_step(place.type, key, written)
    value = place.type.value
    inner = value.item if isinstance(value, ft.Optional) else value
    return PathStep((*place.steps, step), inner, nullable=True)


def key_step(kind: ft.Map, key: str | int, written: str) -> Step:
    """The step to an entry; NoSuchColumn for a key that no entry can have."""
    of = kind.key
    if isinstance(of, ft.Enum):
        known: dict[str, int | str] = dict(of.members)
        if of.base == "str":
            known = {str(value): value for value in known.values()}
        found = known.get(key) if isinstance(key, str) else key
        if found is None or found not in of.values:
            raise NoSuchColumn(f"{of} has no member {key!r:.40}; it has {listed(known, shown=20)}")
        return Step(found, "enum_map", nullable=True, key_type=of.base)
    if of.name == "str":
        if not isinstance(key, str):
            raise NoSuchColumn(f"the keys of {written} are text: {written}['{key}']")
        return Step(key, "map", nullable=True)
    low, high = ft.INTEGER_RANGES[of.name]
    if not isinstance(key, int) or not low <= key <= high:
        raise NoSuchColumn(f"the keys of {written} are integers from {low} to {high}, not {key!r:.40}")
    return Step(key, "map", nullable=True, key_type=of.name)


def element(place: PathStep, position: int, written: str) -> PathStep:
    """One element of the list or array that `place` holds."""
    if position < 0:
        raise NoSuchColumn("positions count from 0; there are no negative ones")
    match place.type:
        case ft.List(item=item, length=length):
            _check_position(position, length, written)
            optional = isinstance(item, ft.Optional)
            step = Step(position, "item", optional or length is None)
            inner = item.item if isinstance(item, ft.Optional) else item
            return PathStep((*place.steps, step), inner, place.nullable or step.nullable)
        case ft.Array(item=item, shape=(size,)) if place.steps[-1].how != "tensor":
            _check_position(position, size, written)
            step = Step((position,), "array", nullable=size is None)
            return PathStep((*place.steps, step), ft.Scalar(item), place.nullable or step.nullable)
        case ft.Array():
            return _tensor_element(place, place.type, position, written)
        case _ if place.any_rank:
            return _tensor_element(place, place.type, position, written)
        case _:
            raise NoSuchColumn(
                f"{written} is {describe(place.type)}; only lists, arrays and maps have elements"
            )


def _check_position(position: int, length: int | None, written: str) -> None:
    if position > (MAX_POSITION if length is None else length - 1):
        known = "at most 2**31" if length is None else length
        raise NoSuchColumn(f"{written} has {known} elements, counted from 0")


def _tensor_element(place: PathStep, kind: ft.FieldType, position: int, written: str) -> PathStep:
    """A further position in an array that has several dimensions, or an unknown number of them.

    Where the shape is free, the positions given are taken for all there are, and an array of another rank
    gives NULL.
    """
    *before, last = place.steps
    if last.how == "tensor":
        assert isinstance(last.key, tuple)
        positions, sure = (*last.key, position), not last.nullable
    else:
        before, positions, sure = [*before, last], (position,), True
    inner: ft.FieldType
    match kind:
        case ft.Array(item=item, shape=(size, *rest)):
            _check_position(position, size, written)
            sure = sure and size is not None
            inner = ft.Array(item, tuple(rest)) if rest else ft.Scalar(item)
        case ft.Array(item=item):
            sure, inner = False, ft.Scalar(item)
        case _:
            sure, inner = False, kind
    step = Step(positions, "tensor", nullable=not sure)
    any_rank = place.any_rank or (isinstance(kind, ft.Array) and kind.shape is None)
    return PathStep((*before, step), inner, place.nullable or not sure, any_rank)


def column(place: PathStep) -> Column:
    """The value at the end of a path."""
    if isinstance(place.type, ft.Array) and place.steps[-1].how == "tensor":
        missing = len(place.type.shape or ())
        raise NoSuchColumn(
            f"this array has {missing} more dimension(s): give a position for each, grid[1, 2]"
        )
    kind, load, rank = _value_of(place.type)
    digits = (place.type.precision, place.type.scale) if isinstance(place.type, ft.Decimal) else (0, 0)
    return Column(place.steps, kind, place.nullable, load, rank, digits=digits)


def _value_of(kind: ft.FieldType) -> tuple[Kind, Load, int | None]:
    match kind:
        case ft.Scalar(name="u64"):
            return "wide", "plain", 0
        case ft.Scalar(name=name) if name in ft.INTEGER_RANGES:
            return "int", "plain", 0
        case ft.Scalar(name="f64" | "f32" as name):
            return "float", name, 0
        case ft.Scalar(name="datetime"):
            return "datetime", "datetime", 0
        case ft.Scalar(name="bool" | "bytes" | "date" | "uuid" as name):
            return name, "plain", 0
        case ft.Scalar():
            return "text", "plain", 0
        case ft.Enum(base=base):
            return ("int" if base == "i64" else "text"), "enum", 0
        case ft.Decimal():
            return "decimal", "plain", 0
        case ft.Map():
            return "map", "opaque", 0
        case ft.List():
            return "list", "opaque", 1
        case ft.Array(shape=shape):
            return "list", "opaque", 1 if shape is not None and len(shape) == 1 else None
        case _:
            return "other", "opaque", 0


def header_column(name: str) -> Column:
    """A field of the header."""
    found = HEADER_FIELDS.get(name)
    if found is None:
        raise NoSuchColumn(f"the header has no field {name[:60]!r}; it has {', '.join(HEADER_FIELDS)}")
    step = Step(name, "field", found.nullable)
    return Column((step,), found.kind, found.nullable, found.load, header=True)


def user_header(key: str) -> Column:
    """One of the headers that users attach, such as `traceparent`: text, or NULL when it is not there."""
    steps = (Step(USER_HEADERS, "field", nullable=True), Step(key, "map", nullable=True))
    return Column(steps, "text", nullable=True, header=True)


def around_the_place(node: Node) -> tuple[Node | None, Node | None]:
    """A condition as two: what can be decided before an event has its sequence number, and the rest.

    It is TRUE exactly when both are; None is always.
    """
    early: list[Node] = []
    late: list[Node] = []
    for item in node.items if isinstance(node, TypedAnd) else (node,):
        read = [str(column.steps[0].key) for column in columns(item) if column.header]
        (late if any(HEADER_FIELDS[name].of_place for name in read) else early).append(item)
    return _all_of(early), _all_of(late)


def _all_of(items: list[Node]) -> Node | None:
    if len(items) > 1:
        return TypedAnd(tuple(items), any(item.nullable for item in items))
    return items[0] if items else None


def describe(kind: ft.FieldType) -> str:
    """A type in words."""
    match kind:
        case ft.NestedEvent(format=fmt):
            return f"a nested event ({fmt.name})"
        case ft.Anything():
            return "schema-less data (hg.Any)"
        case ft.List() | ft.Array() | ft.Enum() | ft.Map():
            return f"{'an' if isinstance(kind, ft.Array | ft.Enum) else 'a'} {kind}"
        case _:
            return f"{KIND_WORDS[_value_of(kind)[0]]}"


KIND_WORDS: Final[dict[Kind, str]] = {
    "bool": "a bool",
    "int": "an int",
    "wide": "an unsigned 64-bit int",
    "decimal": "a decimal",
    "float": "a float",
    "text": "text",
    "bytes": "bytes",
    "datetime": "a datetime",
    "date": "a date",
    "uuid": "a UUID",
    "list": "a list or array",
    "map": "a map",
    "other": "nested data",
}


def _suggest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if close := difflib.get_close_matches(name[:60], names, n=3):
        return f"did you mean {' or '.join(close)}?"
    return f"it has {listed(names, shown=20)}"
