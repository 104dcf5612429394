"""The columns of a read: which ones Spark wants, and which are needed to compute them.

A batch is made in two steps. First the *work* columns are computed from rows or from a sealed file: those
that Spark wants, and those that only a filter looks at. `ColumnShape.finish` then filters, and puts the
columns into the order and types of Spark's schema.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from heliograph.codec.columnar import columns
from heliograph.codec.columnar.unify import unified
from heliograph.errors import ExpressionError, InvalidOption
from heliograph.filters.arrow import mask
from heliograph.filters.arrow_columns import HEADER_COLUMN
from heliograph.filters.check import check
from heliograph.filters.typed import columns as columns_of
from heliograph.filters.typed import conjuncts
from heliograph.model.formats import Format
from heliograph.spark.source.filters import NO_FIELDS, conditions
from heliograph.spark.source.rows import ENVELOPE, HEADER_TYPE
from heliograph.spark.source.schema_evolution import tolerant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heliograph.filters.tree import Expr
    from heliograph.filters.typed import Checked, Column, Predicate

RESCUED: Final = "_rescued"
"""Text of JSON: fields for which there is no column."""
BAD: Final = "_bad"
"""The bytes of an event that does not decode; its other columns are null."""
SPECIAL: Final = {RESCUED: pa.string(), BAD: pa.binary()}


def full_schema(
    joined: Format | None, *, include_headers: bool, rescued: bool = False, bad: bool = False
) -> pa.Schema:
    """All columns that there can be; without `joined`, those of envelopes."""
    names = [name for name in HEADER_TYPE.names if include_headers or name != "user"]
    header = pa.field(HEADER_COLUMN, pa.struct([HEADER_TYPE.field(name) for name in names]))
    special = [(RESCUED, rescued), (BAD, bad)] if joined is not None else []
    return pa.schema(
        [
            header,
            *(ENVELOPE.items() if joined is None else columns.schema(joined, spark_safe=True)),
            *((name, SPECIAL[name]) for name, wanted in special if wanted),
        ]
    )


class ColumnShape:
    """What to compute, and what to make of it.

    Args:
        schema: the columns that Spark wants, some or all of `full_schema`.
        joined: the format that has room for all events; None for envelopes.
        types: the formats of each event type that is wanted.
        filters: rows for which all are true; those that fit no event type are wrong.
    """

    def __init__(
        self,
        schema: pa.Schema,
        joined: Format | None,
        types: Mapping[str, Sequence[Format]],
        filters: Sequence[Expr] = (),
    ) -> None:
        self.schema = schema
        self._types: Mapping[str, Sequence[Format]] = {} if joined is None else types
        self._trees = tuple(filters)
        found = [self._conditions(tree) for tree in filters]
        # A type that one of the filters does not fit has no events that pass them all.
        self._per_type = {
            name: [one[name] for one in found]
            for name in (found[0] if found else ())
            if all(name in one for one in found)
        }
        """The conditions of each event type; for envelopes, under the name ''."""
        self.header, names = self._work()
        self.fields = None if joined is None else tolerant(Format(joined.name, _fields(joined, names)))
        """The fields to decode; None for envelopes."""
        self.wants_rescued = RESCUED in schema.names
        self.wants_bad = BAD in schema.names
        self.work = self._work_schema()

    def _conditions(self, tree: Expr) -> dict[str, Checked]:
        return conditions(tree, self._types) if self._types else {"": check(tree, NO_FIELDS)}

    def _work(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """Names of header fields and of event fields that are computed."""
        every = chain.from_iterable(self._per_type.values())
        read = [column for one in every for column in columns_of(one.node)]
        in_header = {str(column.steps[0].key) for column in read if column.header}
        names = {str(column.steps[0].key) for column in read if not column.header} | set(self.schema.names)
        if HEADER_COLUMN in self.schema.names:
            in_header |= set(self.schema.field(HEADER_COLUMN).type.names)
        if self._trees:
            in_header.add("type")
        return tuple(name for name in HEADER_TYPE.names if name in in_header), frozenset(names)

    def _work_schema(self) -> pa.Schema:
        header = pa.field(HEADER_COLUMN, pa.struct([HEADER_TYPE.field(name) for name in self.header]))
        if self.fields is None:
            rest = [pa.field(name, kind) for name, kind in ENVELOPE.items() if name in self.schema.names]
        else:
            rest = list(columns.schema(self.fields, spark_safe=True))
        special = [pa.field(name, kind) for name, kind in SPECIAL.items() if name in self.schema.names]
        return pa.schema([header, *rest, *special])

    def learn(self, fmt: Format) -> None:
        """An event type that nobody knew at planning: the filters are tried on it, as a channel would."""
        if not self._trees or fmt.name in self._types or not self._types or fmt.name in self._per_type:
            return
        try:
            found = [check(tree, unified([fmt])) for tree in self._trees]
        except ExpressionError:
            return
        if all(self._has(column) for one in found for column in columns_of(one.node)):
            self._per_type[fmt.name] = found

    def _has(self, column: Column) -> bool:
        name = str(column.steps[0].key)
        return name in (self.header if column.header else self.work.names)

    def predicates(self) -> list[tuple[Predicate, ...]] | None:
        """For each event type, tests that all its rows pass that are wanted; None: nothing can be said."""
        if not self._trees:
            return None
        return [
            tuple(test for one in checks for test in conjuncts(one.node)[0])
            for checks in self._per_type.values()
        ]

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of work columns that pass the filters, in the columns that Spark wants."""
        if self._trees:
            batch = batch.filter(self._mask(batch))
        arrays = [self._column(batch, field) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _mask(self, batch: pa.RecordBatch) -> Any:
        if "" in self._per_type:
            return _all_of(self._per_type[""], batch)
        types = pc.struct_field(batch.column(0), [self.work.field(0).type.get_field_index("type")])
        passing = [
            pc.and_(pc.equal(types, name), _all_of(checks, batch)) for name, checks in self._per_type.items()
        ]
        return reduce(pc.or_, passing) if passing else pa.repeat(False, batch.num_rows)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        return _as_wanted(batch.column(batch.schema.get_field_index(field.name)), field.type)


def _as_wanted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in a wider type, or with some of the fields of its struct, also inside of lists and maps."""
    if array.type == kind:
        return array
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _with_items(array.take(pa.array(np.arange(len(array)))), kind)
    if not pa.types.is_struct(kind):
        return array.cast(kind)
    parts = [
        _as_wanted(pc.struct_field(array, [array.type.get_field_index(field.name)]), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())


def _with_items(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A list or map whose items are in wider types; the array begins at its first item."""
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(kind):
        items = _as_wanted(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=mask)
    keys, values = _as_wanted(array.keys, kind.key_type), _as_wanted(array.items, kind.item_type)
    return pa.MapArray.from_arrays(array.offsets, keys, values, type=kind, mask=mask)


def _all_of(checks: Sequence[Checked], batch: pa.RecordBatch) -> Any:
    return reduce(pc.and_, [mask(one, batch) for one in checks])


def _fields(joined: Format, names: frozenset[str]) -> tuple[Any, ...]:
    return tuple(field for field in joined.fields if field.name in names)


def insist_on_columns(wanted: pa.Schema, there: pa.Schema) -> None:
    """Refuse an explicit schema with columns that do not exist, or whose type does not hold all values.

    A struct may have fewer fields than there are, and a number a wider type, also inside of lists and maps.
    """
    for field in wanted:
        at = there.get_field_index(field.name)
        if at < 0:
            raise InvalidOption("schema", field.name, f"columns of this history: {', '.join(there.names)}")
        _insist_on_type(field.name, field.type, there.field(at).type)


def _insist_on_type(name: str, wanted: pa.DataType, there: pa.DataType) -> None:
    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        insist_on_columns(pa.schema(list(wanted)), pa.schema(list(there)))
    elif pa.types.is_list(there) and pa.types.is_list(wanted):
        _insist_on_type(name, wanted.value_type, there.value_type)
    elif pa.types.is_map(there) and pa.types.is_map(wanted):
        _insist_on_type(name, wanted.key_type, there.key_type)
        _insist_on_type(name, wanted.item_type, there.item_type)
    elif wanted != there and not _widens(there, wanted):
        allowed = f"the type {there} for it, or one that holds all its values"
        raise InvalidOption("schema", f"{name}: {wanted}", allowed)


_WHOLE_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
"""Of integers with so many bits."""


def _holds_digits(there: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_integer(there):
        return bool(wanted.precision - wanted.scale >= _WHOLE_DIGITS[there.bit_width])
    if not pa.types.is_decimal(there):
        return False
    whole = wanted.precision - wanted.scale >= there.precision - there.scale
    return bool(whole and wanted.scale >= there.scale)


def _widens(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether each value of one type of numbers is one of the other, too."""
    if pa.types.is_decimal(wanted):
        return _holds_digits(there, wanted)
    if not pa.types.is_integer(there):
        return bool(there == pa.float32() and wanted == pa.float64())
    if pa.types.is_integer(wanted):
        return bool(there.bit_width < wanted.bit_width)
    return int(there.bit_width) <= {pa.float32(): 16, pa.float64(): 32}.get(wanted, 0)
