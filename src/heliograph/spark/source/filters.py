"""A filter over the events of a channel as Spark SQL, meaning what it means for a consumer of the channel.

A consumer's filter is checked against each event type by itself: types that it does not fit are left out, and
it is wrong only when it fits none. So it is here, with one condition per type and `header.type` to choose.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from heliograph.codec.columnar.columns import arrow_type
from heliograph.codec.columnar.unify import unified
from heliograph.errors import ROOT, ExpressionError, FormatError
from heliograph.filters import spark_sql as sql
from heliograph.filters.build import tree_of
from heliograph.filters.check import check
from heliograph.filters.params import bind
from heliograph.filters.parser import parse
from heliograph.filters.schema import header_column
from heliograph.filters.typed import Checked, Const, TypedCompare, conjuncts
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional
from heliograph.model.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from heliograph.filters.params import Params
    from heliograph.filters.tree import Expr
    from heliograph.filters.typed import Predicate

NO_FIELDS = Format("envelope", ())
"""Of an envelope only the header can be asked."""


def parsed(where: Any, params: Params | None) -> Expr:
    """A text, or what `hg.col` builds, as a tree with its parameters bound."""
    if isinstance(where, str):
        return parse(where, params)
    tree = tree_of(where)
    return tree if params is None else bind(tree, params)


def conditions(tree: Expr, types: Mapping[str, Sequence[Format]]) -> dict[str, Checked]:
    """The condition for each event type that it fits; ExpressionError, about the first, when it fits none."""
    found: dict[str, Checked] = {}
    problem: ExpressionError | None = None
    for name, formats in types.items():
        try:
            found[name] = check(tree, unified(formats))
        except ExpressionError as error:
            problem = problem or error
    if problem is not None and not found:
        raise problem
    return found


def filter_sql(tree: Expr, types: Mapping[str, Sequence[Format]]) -> str:
    """The condition as SQL; without types, one that can ask of the header only."""
    if not types:
        return sql.to_sql(check(tree, NO_FIELDS))
    found = conditions(tree, types)
    if len(types) == 1:
        return sql.to_sql(next(iter(found.values())))
    return " OR ".join(f"({_is_of_type(name)} AND {sql.to_sql(one)})" for name, one in found.items())


def stored_times(tree: Expr, types: Mapping[str, Sequence[Format]]) -> list[str]:
    """Conditions on the times of sealed rows that follow from a filter on `append_ts` and `source_ts`.

    Files keep these as nanoseconds. Spark knows the smallest and largest of those, and nothing of the
    timestamps that the header has instead.
    """
    checked = conditions(tree, types).values() if types else [check(tree, NO_FIELDS)]
    found = []
    for name in ("append_ts", "source_ts"):
        ranges = [_range(name, conjuncts(one.node)[0]) for one in checked]
        lows, highs = ([ends[at] for ends in ranges] for at in (0, 1))
        if None not in lows:
            found.append(f"_{name} >= {min(low for low in lows if low is not None)}L")
        if None not in highs:
            found.append(f"_{name} < {max(high for high in highs if high is not None)}L")
    return found


def _range(name: str, tests: Iterable[Predicate]) -> tuple[int | None, int | None]:
    """Between which nanoseconds, the second not included, a time must lie; None where nothing is said."""
    lows: list[int] = []
    highs: list[int] = []
    for test in tests:
        if test.column.header and test.column.steps[0].key == name and isinstance(test.value, datetime):
            first = (test.value - ft.EPOCH) // timedelta(microseconds=1) * 1000
            if test.op in (">=", "="):
                lows.append(first)
            elif test.op == ">":
                lows.append(first + 1000)
            if test.op == "<":
                highs.append(first)
            elif test.op in ("<=", "="):
                highs.append(first + 1000)
    return max(lows, default=None), min(highs, default=None)


def _is_of_type(name: str) -> str:
    node = TypedCompare("=", header_column("type"), Const(name, "text"), nullable=False)
    return sql.to_sql(Checked(node, NO_FIELDS, ""))


class Words(NamedTuple):
    """How a caller says what an error advises."""

    types: str
    envelope: str


WORDS_OF_READ: Final = Words("types=", "read columns='envelope'")
WORDS_OF_OPTIONS: Final = Words('.option("types", ...)', 'set .option("mode", "envelope")')


def joined_format(types: Mapping[str, Sequence[Format]], words: Words = WORDS_OF_READ) -> Format:
    """One format with the fields of all types; FormatError when two cannot share a column."""
    every = [fmt for formats in types.values() for fmt in formats]
    if not every:
        return Format("no events yet", ())
    try:
        joined = unified(every)
        for formats in types.values():
            _insist_on_same_reading(unified(formats), joined, ROOT)
    except FormatError as error:
        choose = (
            f"choose some of {', '.join(sorted(types))} with {words.types}, or " if len(types) > 1 else ""
        )
        raise FormatError(
            f"these events have no common columns: {error.reason}; {choose}{words.envelope}",
            path=error.path,
        ) from error
    return joined


def _insist_on_same_reading(own: Format, joined: Format, path: str) -> None:
    """A filter is checked with the fields of a type and computed over joined columns: they must fit."""
    for field in own.fields:
        other = joined.by_name[field.name].type
        if not _reads_the_same(field.type, other):
            raise FormatError(
                f"{own.name} has {field.type} where another event type has something else",
                path=f"{path}.{field.name}",
            )


def _key_type(kind: ft.Map) -> object:
    return arrow_type(kind.key, spark_safe=True)


def _reads_the_same(own: ft.FieldType, joined: ft.FieldType) -> bool:
    own, joined = split_optional(own)[0], split_optional(joined)[0]
    match own, joined:
        case ft.NestedEvent(format=mine), ft.NestedEvent(format=other):
            return all(_reads_the_same(f.type, other.by_name[f.name].type) for f in mine.fields)
        case ft.List(item=mine), ft.List(item=other):
            return _reads_the_same(mine, other)
        case ft.Map(), ft.Map():
            # A key of a narrower type would not be found among wider ones.
            return _key_type(own) == _key_type(joined) and _reads_the_same(own.value, joined.value)
        case (ft.Decimal(), _) | (_, ft.Decimal()):
            return isinstance(own, ft.Decimal) and isinstance(joined, ft.Decimal)
        case ft.Array(shape=mine), ft.Array(shape=other):
            # Arrays of one dimension are lists, all others have their shape beside them.
            return (mine is not None and len(mine) == 1) == (other is not None and len(other) == 1)
        case _, ft.Anything():
            return isinstance(own, ft.Anything)
        case _:
            return True
