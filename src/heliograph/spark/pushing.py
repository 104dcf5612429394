"""Filters that Spark pushes into a batch read, as expressions of our own.

    df.filter("speed > 300 AND region = 'north'")
    # Spark pushes GreaterThan(("speed",), 300) and EqualTo(("region",), "north")

They only help to skip rows early; Spark evaluates them again on what comes through. So a filter that has no
exact counterpart here is left out, and none can give a wrong answer.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource as spark

from heliograph.errors import ExpressionError
from heliograph.expr.build import col, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.expr.build import Built
    from heliograph.expr.tree import Expr


_COMPARISONS: Final[dict[type[Any], Callable[[Built, Any], Built]]] = {
    spark.EqualTo: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
}


def as_expression(pushed: spark.Filter) -> Expr | None:
    """The same condition in our language; None when there is none."""
    try:
        built = _built(pushed)
        return None if built is None else tree_of(built)
    except (ExpressionError, TypeError):
        return None


def _built(pushed: spark.Filter) -> Built | None:
    for kind, compare in _COMPARISONS.items():
        if isinstance(pushed, kind):
            return compare(_column(pushed.attribute), pushed.value) if _plain(pushed.value) else None
    match pushed:
        case spark.In(attribute, values) if all(map(_plain, values)):
            return _column(attribute).in_(list(values))
        case spark.IsNotNull(attribute):
            return _column(attribute).is_not_null()
        case spark.IsNull(attribute):
            return _column(attribute).is_null()
        case _:
            return None


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _column(attribute: tuple[str, ...]) -> Built:
    if not all(name.isidentifier() for name in attribute):
        raise TypeError("a name that would have to be quoted")
    return col(".".join(attribute))
