"""Filters and projections over Arrow record batches and tables.

    mask(checked, batch)              a boolean array without NULL: TRUE where the filter is TRUE
    evaluate(checked, batch)          the values, NULL included
    project(projection, batch)        a record batch or table of the projection's columns

`heliograph.filters.schema` says which columns stand for which fields. Arrow's own kernels wrap around,
compare NaN as IEEE does and raise for a whole batch when one row is wrong; here each row has the value that
`docs/reference/filters.md` gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from heliograph.errors import ExpressionError
from heliograph.filters import like, python_operations
from heliograph.filters import typed as k
from heliograph.filters.arrow_columns import KIND_TYPES, WrongColumn, arrow_kind, column, contains, length
from heliograph.filters.schema import OneHeader
from heliograph.filters.tree import MAX_INT, MIN_INT

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.filters.tree import Comparison
    from heliograph.filters.typed import Checked, CheckedProjection

_LIMIT: Final = float(1 << 63)


def mask(checked: Checked, data: Any) -> Any:
    """Where the filter is TRUE: a boolean array (chunked for a table) to give to `data.filter`."""
    return pc.fill_null(evaluate(checked, data), False)


def evaluate(checked: Checked, data: Any) -> Any:
    """The values of an expression: an array for a record batch, a chunked array for a table."""
    if isinstance(data, pa.Table):
        chunks = [evaluate(checked, batch) for batch in data.to_batches()]
        return pa.chunked_array(chunks, arrow_kind(checked.node))
    return _Evaluation(data, checked.text).array(checked.node)


def project(projection: CheckedProjection, data: Any) -> Any:
    """The columns of a projection."""
    if isinstance(data, pa.Table):
        # A field that is taken as it is has the type that it has there, also when there are no rows.
        empty = project(projection, pa.RecordBatch.from_pylist([], schema=data.schema))
        batches = [project(projection, batch) for batch in data.to_batches()]
        return pa.Table.from_batches(batches, empty.schema)
    evaluation = _Evaluation(data, projection.text)
    arrays = [evaluation.array(node) for node in projection.nodes]
    return pa.RecordBatch.from_arrays(arrays, list(projection.names))


class _Evaluation:
    """One batch being evaluated; equal nodes are evaluated once."""

    def __init__(self, batch: Any, text: str) -> None:
        self._batch = batch
        self._text = text
        self._header = OneHeader(text)
        self._done: dict[k.Node, Any] = {}

    def array(self, node: k.Node) -> Any:
        """The value of a node for each row."""
        return self._broadcast(self._value(node))

    def _broadcast(self, value: Any) -> Any:
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, self._batch.num_rows)
        return value

    def _value(self, node: k.Node) -> Any:
        if node not in self._done:
            self._done[node] = self._compute(node)
        return self._done[node]

    def _compute(self, node: k.Node) -> Any:
        match node:
            case k.Const():
                return pa.scalar(_stored(node.value), arrow_kind(node))
            case k.Column():
                return self._column(node)
            case k.Convert():
                if node.kind == "decimal":
                    return pc.cast(self._value(node.of), arrow_kind(node))
                return _convert(self._value(node.of), node.of.kind, node.kind)
            case k.TypedNegate():
                value = self._value(node.of)
                if node.kind in ("float", "decimal"):
                    return pc.negate(value)
                return self._exact(pc.negate_checked, lambda number: -number, value)
            case k.TypedArith():
                return self._arithmetic(node)
            case k.TypedCompare():
                return _compare(node.op, self._value(node.left), self._value(node.right), node.left.kind)
            case k.TypedBetween():
                of, kind = self._value(node.of), node.of.kind
                above = _compare(">=", of, self._value(node.low), kind)
                return pc.and_kleene(above, _compare("<=", of, self._value(node.high), kind))
            case k.TypedIn():
                return _is_in(self.array(node.of), node)
            case k.TypedLike():
                return _like(self._value(node.of), node.segments)
            case k.TypedIsNull():
                return pc.is_null(self._value(node.of))
            case k.TypedNot():
                return pc.invert(self._value(node.of))
            case k.TypedAnd() | k.TypedOr():
                joint = pc.and_kleene if isinstance(node, k.TypedAnd) else pc.or_kleene
                result = self._value(node.items[0])
                for item in node.items[1:]:
                    result = joint(result, self._value(item))
                return result
            case k.TypedCase():
                return self._case(node)
            case k.TypedCall():
                return self._call(node)

    def _column(self, node: k.Column) -> Any:
        self._header.read(node)
        try:
            return column(self._batch, node)
        except WrongColumn as problem:
            raise self._misfit(problem, node.path) from None

    def _misfit(self, problem: WrongColumn, path: str) -> ExpressionError:
        return ExpressionError(f"{problem}; {path} needs it", text=self._text, column=1)

    # Arithmetic

    def _arithmetic(self, node: k.TypedArith) -> Any:
        left, right = self._value(node.left), self._value(node.right)
        if node.op == "/":
            return pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), pc.divide(left, right))
        if node.op == "%":
            return _remainder(left, right)
        if node.op == "&":
            return pc.bit_wise_and(left, right)
        if node.kind in ("float", "decimal"):
            operation = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[node.op]
            return operation(left, right)
        match node.op:
            case "+":
                return self._exact(pc.add_checked, lambda a, b: a + b, left, right)
            case "-":
                return self._exact(pc.subtract_checked, lambda a, b: a - b, left, right)
            case _:
                return self._exact(pc.multiply_checked, lambda a, b: a * b, left, right)

    def _exact(self, checked: Callable[..., Any], exact: Callable[..., int], *values: Any) -> Any:
        """Integers that do not wrap. A batch in which one row overflows is calculated row by row."""
        try:
            return checked(*values)
        except pa.ArrowInvalid:
            rows = zip(*(self._broadcast(value).to_pylist() for value in values), strict=True)
            results = (None if None in row else exact(*row) for row in rows)
            fitting = [r if r is not None and MIN_INT <= r <= MAX_INT else None for r in results]
            return pa.array(fitting, pa.int64())

    # Choices and functions

    def _case(self, node: k.TypedCase) -> Any:
        result = self._value(node.otherwise)
        for when, then in reversed(node.branches):
            condition = self._value(when)
            if node.of is not None:
                condition = _compare("=", self._value(node.of), condition, when.kind)
            applies = pc.fill_null(self._broadcast(condition), False)
            result = pc.if_else(applies, self._value(then), result)
        return result

    def _length(self, value: Any, of: k.Node) -> Any:
        try:
            return length(value, of)
        except WrongColumn as problem:
            raise self._misfit(problem, of.path if isinstance(of, k.Column) else "length") from None

    def _contains(self, value: Any, entry: k.Node) -> Any:
        assert isinstance(entry, k.Column)
        try:
            return contains(value, entry.steps[-1])
        except WrongColumn as problem:
            raise self._misfit(problem, entry.path) from None

    def _call(self, node: k.TypedCall) -> Any:
        values = [self._value(arg) for arg in (node.args if node.name == "coalesce" else node.args[:1])]
        value = values[0]
        match node.name:
            case "coalesce":
                return pc.coalesce(*values)
            case "lower":
                return pc.ascii_lower(value)
            case "upper":
                return pc.ascii_upper(value)
            case "length":
                return self._length(value, node.args[0])
            case "sqrt":
                return pc.if_else(pc.less(value, 0.0), pa.scalar(None, pa.float64()), pc.sqrt(value))
            case "floor" | "ceil":
                return _whole(pc.floor(value) if node.name == "floor" else pc.ceil(value))
            case "round":
                return _rounded(self._broadcast(value), node.digits)
            case "abs" if node.kind in ("float", "decimal"):
                return pc.abs(value)
            case "map_contains":
                return self._contains(value, node.args[1])
            case "abs":
                return self._exact(pc.abs_checked, abs, value)


def _stored(value: Any) -> Any:
    """A constant as columns have it."""
    return str(value) if isinstance(value, UUID) else value


def _convert(value: Any, source: k.Kind, target: k.Kind) -> Any:
    if source == "wide" and target == "int":
        fits = pc.less_equal(value, pa.scalar(MAX_INT, KIND_TYPES["wide"]))
        value = pc.if_else(fits, value, pa.scalar(None, KIND_TYPES["wide"]))
    return pc.cast(value, KIND_TYPES[target], safe=False)


def _remainder(left: Any, right: Any) -> Any:
    # Everything divides by 1 and -1 without a rest; taking 1 for -1 and 0 keeps -2**63 and zero from raising.
    harmless = pc.or_(pc.equal(right, 0), pc.equal(right, -1))
    divisor = pc.if_else(harmless, 1, right)
    rest = pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))
    return pc.if_else(pc.equal(right, 0), pa.scalar(None, pa.int64()), rest)


def _compare(op: Comparison, left: Any, right: Any, kind: k.Kind) -> Any:
    functions = {
        "=": pc.equal,
        "<>": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }
    plain = functions[op](left, right)
    if kind != "float":
        return plain
    # Not the Kleene forms: `plain` is NULL when an operand is, and must make the whole NULL.
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    match op:
        case "=":
            return pc.or_(plain, pc.and_(left_nan, right_nan))
        case "<>":
            return pc.and_not(plain, pc.and_(left_nan, right_nan))
        case "<":
            return pc.or_(plain, pc.and_not(right_nan, left_nan))
        case ">":
            return pc.or_(plain, pc.and_not(left_nan, right_nan))
        case "<=":
            return pc.or_(plain, right_nan)
        case ">=":
            return pc.or_(plain, left_nan)


def _is_in(value: Any, node: k.TypedIn) -> Any:
    members = [_stored(const.value) for const in node.values]
    found: Any
    if node.of.kind == "float":
        # Adding zero makes -0.0 into 0.0, which the hash behind is_in tells apart.
        value = pc.add(value, 0.0)
        numbers = [member + 0.0 for member in members if isinstance(member, float) and member == member]  # noqa: PLR0124 - only NaN differs from itself
        found = pc.is_in(value, value_set=pa.array(numbers, pa.float64()))
        if len(numbers) < len(members):
            found = pc.or_kleene(found, pc.is_nan(value))
    else:
        found = pc.is_in(value, value_set=pa.array(members, arrow_kind(node.of)))
    null = pa.scalar(None, pa.bool_())
    if node.has_null:
        return pc.if_else(pc.and_(pc.is_valid(value), found), found, null)
    return pc.if_else(pc.is_valid(value), found, null)


def _like(value: Any, segments: tuple[like.Segment, ...]) -> Any:
    match [like.literal(segment) for segment in segments]:
        case [str(whole)]:
            return pc.equal(value, whole)
        case [str(prefix), ""]:
            return pc.starts_with(value, prefix)
        case ["", str(suffix)]:
            return pc.ends_with(value, suffix)
        case ["", str(part), ""]:
            return pc.match_substring(value, part)
        case _:
            return pc.match_substring_regex(value, like.regex(segments, atomic=False) + r"\z")


def _whole(value: Any) -> Any:
    fits = pc.and_(pc.greater_equal(value, -_LIMIT), pc.less(value, _LIMIT))
    return pc.cast(pc.if_else(fits, value, pa.scalar(None, pa.float64())), pa.int64())


def _rounded(value: Any, digits: int) -> Any:
    """Half up on the shortest decimal form.

    Scaling by a power of ten decides all numbers that are not near a tie; the few that are, and those with
    as many digits as a double has, are rounded one by one.
    """
    import numpy as np  # noqa: PLC0415 - only `round` needs it

    numbers = np.array(value.fill_null(0.0).to_numpy(zero_copy_only=False))
    scale = 10.0**digits
    with np.errstate(all="ignore"):
        scaled = np.abs(numbers) * scale
        whole = np.floor(scaled)
        rest = scaled - whole
        results = np.copysign((whole + (rest > 0.5)) / scale, numbers)
        safe = (scaled < 2.0**50) & (np.abs(rest - 0.5) > scaled * 1e-14 + 1e-14)
    for row in np.flatnonzero(~safe):
        results[row] = python_operations.rounded(float(numbers[row]), digits)
    return pc.if_else(pc.is_valid(value), pa.array(results), pa.scalar(None, pa.float64()))
