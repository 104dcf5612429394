"""Generates Python for typed trees: many conditions in one function, what they share computed once.

    emitter = Emitter()
    first, second = emitter.add(node), emitter.add(other)     # all conditions first,
    emitter.finish()                                          # then the code
    lines = ["def deliver(event, header):", *emitter.lines]
    lines += [f"    if {first}: …", f"    if {second}: …"]
    deliver = emitter.function("deliver", lines, {...})

`add` returns a Python expression that is truthy exactly when the condition is TRUE (NULL and FALSE are both
"no"), `add_value` one that gives the value, None for NULL. Both are only known after `finish`, so they are
objects whose `str` is the text. Conditions may be placed anywhere after `lines`, in any order.

The text holds only names made here (`k_0`, `t_0`, `v_0`, `a_0`, … and those of
`heliograph.filters.python_operations`, which surrounding code must not use). Constants are bound as global
values. The name of a field is not in the text either: it says `event.a_3`, and when the code object is made,
`a_3` is replaced in its table of names: a field's name is data from beginning to end and still costs no more
than an attribute.

Three-valued logic costs nothing where no NULL can be: each condition is generated as "is it TRUE" or "is it
FALSE", NOT changes from one to the other, and only nullable operands are tested for None.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from heliograph.filters import like, python_operations
from heliograph.filters import typed as k
from heliograph.filters.schema import HEADER_FIELDS
from heliograph.filters.tree import MAX_INT, MIN_INT
from heliograph.runtime.codegen import define

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.filters.tree import Comparison
    from heliograph.runtime.codegen import CodeBuilder

Form: TypeAlias = Literal["value", "raw", "true", "false"]
"""How a node is asked for: its value; a number before it is made a float; whether it is TRUE or FALSE."""
Access: TypeAlias = Literal["attr", "item"]

INDENT: Final = "    "
# Python's tokenizer stops at 200 open brackets and its compiler at some thousand nested nodes.
_MAX_NESTING: Final = 40
_MAX_BRANCHES: Final = 100
# Below this, an int compares with a float as its float does.
_EXACT_FLOATS: Final = 2.0**53

_PYTHON_OPS: Final[dict[Comparison, str]] = {
    "=": "==",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_DECIMAL_OPS: Final = {"+": "decimal_add", "-": "decimal_subtract", "*": "decimal_multiply"}
# Where only one side can be NaN and would make the condition true, the opposite is false in Python too.
_NAN_ABOVE_ALL: Final[dict[tuple[Comparison, bool, bool], str]] = {
    (">", True, False): "<=",
    (">=", True, False): "<",
    ("<", False, True): ">=",
    ("<=", False, True): ">",
}
_LOADERS: Final[dict[k.Load, str]] = {
    "f32": "single",
    "enum": "enum_value",
    "datetime": "instant",
    "datetime_ns": "instant_of_ns",
}
_RUNTIME: Final[dict[str, Any]] = {
    name: getattr(python_operations, name)
    for name in (
        *("single", "enum_value", "instant", "instant_of_ns", "array_item", "first_dimension"),
        *("remainder", "integer_abs", "narrowed", "floor", "ceil", "sqrt", "rounded", "lower", "upper"),
        *("decimal_add", "decimal_subtract", "decimal_multiply", "decimal_scaled", "decimal_negated"),
        *("decimal_abs", "enum_entry", "map_contains"),
    )
}


class Slot:
    """A piece of code that is known after `Emitter.finish`; `str(slot)` is its text."""

    def __init__(self) -> None:
        self._text: str | None = None

    def fill(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        assert self._text is not None, "Emitter.finish() comes first"
        return self._text


class _Operand(NamedTuple):
    """A value used more than once in one expression: evaluated as `first`, then known as `again`."""

    first: str
    again: str
    nullable: bool


class Emitter:
    """Collects conditions and values over one event, then writes the code for all of them."""

    def __init__(self, *, event: str = "event", header: str = "header", access: Access = "attr") -> None:
        self.lines: list[str] = []
        """Statements to run first, without indentation."""
        self._event = event
        self._header = header
        self._access = access
        self._roots: list[tuple[k.Node, Form, Slot]] = []
        self._uses: dict[tuple[k.Node, Form], int] = {}
        self._bound: dict[tuple[k.Node, Form], str] = {}
        self._counting = True
        self._temporaries = 0
        self._attributes: dict[str, str] = {}
        self._names: dict[tuple[type, object], str] = {}
        self._namespace: dict[str, Any] = {}

    def add(self, node: k.Node) -> Slot:
        """A condition: truthy exactly when `node` is TRUE."""
        return self._add(node, "true")

    def add_value(self, node: k.Node) -> Slot:
        """A value: None for NULL."""
        return self._add(node, "value")

    def _add(self, node: k.Node, form: Form) -> Slot:
        slot = Slot()
        self._roots.append((node, form, slot))
        return slot

    def finish(self) -> None:
        """Generate the code for everything that was added."""
        for node, form, _ in self._roots:
            self._use(node, form)
        self._counting = False
        self._temporaries = 0
        for node, form, slot in self._roots:
            slot.fill(f"({self._use(node, form)})")

    def write_into(self, source: CodeBuilder, depth: int) -> None:
        """Add the lines to another function in the making, instead of compiling them by themselves."""
        source.include({**_RUNTIME, **self._namespace}, self._attributes)
        for line in self.lines:
            source.line(line, depth)

    def function(self, name: str, lines: Iterable[str], namespace: dict[str, Any] | None = None) -> Any:
        """Compile a function's source, which may name what `namespace` holds."""
        scope = {"__builtins__": _BUILTINS, **_RUNTIME, **self._namespace, **(namespace or {})}
        # Not among its own globals, so that it is freed with its last user, and is in no reference cycle.
        return define(lines, scope, self._attributes).pop(name)

    # Use: the one way from a node to its text

    def _use(self, node: k.Node, form: Form) -> str:
        key = (node, form)
        if self._counting:
            self._uses[key] = self._uses.get(key, 0) + 1
            if self._uses[key] == 1:
                self._text(node, form)
            return "x"
        if key in self._bound:
            return self._bound[key]
        text = self._text(node, form)
        if (self._uses[key] > 1 and not text.isidentifier()) or _is_deep(text):
            self._bound[key] = self._bind(text)
            return self._bound[key]
        return text

    def _bind(self, text: str) -> str:
        """Evaluate first: nothing here has side effects or raises, so that only costs what it costs."""
        name = f"v_{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _text(self, node: k.Node, form: Form) -> str:
        match form:
            case "true":
                return self._condition(node, wanted=True)
            case "false":
                return self._condition(node, wanted=False)
            case "raw":
                return self._raw(node)
            case "value":
                return self._value(node)

    def _operand(self, node: k.Node, form: Form = "value", *, repeated: bool = False) -> _Operand:
        text = self._use(node, form)
        if text.isidentifier() or not (node.nullable or repeated):
            return _Operand(text, text, node.nullable)
        name = self._temporary()
        return _Operand(f"({name} := {text})", name, node.nullable)

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t_{self._temporaries}"

    def _constant(self, value: object) -> str:
        # The type is part of the key: 1, 1.0 and True are equal in Python.
        key = (type(value), value)
        if key not in self._names:
            self._names[key] = f"k_{len(self._names)}"
            self._namespace[self._names[key]] = value
        return self._names[key]

    # Conditions

    def _condition(self, node: k.Node, *, wanted: bool) -> str:
        """Whether a bool is TRUE, or, unless `wanted`, FALSE."""
        match node:
            case k.Const():
                return str(node.value is wanted)
            case k.TypedNot():
                return self._use(node.of, "false" if wanted else "true")
            case k.TypedAnd() | k.TypedOr():
                joint = " and " if isinstance(node, k.TypedAnd) is wanted else " or "
                return joint.join(
                    f"({self._use(item, 'true' if wanted else 'false')})" for item in node.items
                )
            case k.TypedCompare():
                return self._compare(node.op if wanted else k.NEGATED[node.op], node.left, node.right)
            case k.TypedBetween():
                return self._between(node, wanted=wanted)
            case k.TypedIn():
                return self._in(node, wanted=wanted)
            case k.TypedLike():
                return self._like(node, wanted=wanted)
            case k.TypedIsNull():
                if not node.of.nullable:
                    return str(not wanted)
                return f"{self._use(node.of, 'raw')} {'is' if wanted else 'is not'} None"
            case _:
                value = self._use(node, "value")
                return f"{value} is {wanted}" if node.nullable else value if wanted else f"not {value}"

    def _compare(self, op: Comparison, left: k.Node, right: k.Node) -> str:
        nans = _can_be_nan(left), _can_be_nan(right)
        opposite = _NAN_ABOVE_ALL.get((op, *nans))
        if opposite is not None:
            guards, (a, _), (b, _) = _guarded(
                self._operand(left, _form_beside(right)), self._operand(right, _form_beside(left))
            )
            return " and ".join([*guards, f"not {a} {opposite} {b}"])
        one = self._operand(left, _form_beside(right), repeated=nans[0])
        other = self._operand(right, _form_beside(left), repeated=nans[1])
        guards, (a, a_again), (b, b_again) = _guarded(one, other)
        body = f"{a} {_PYTHON_OPS[op]} {b}" + _nan_clause(op, nans, a_again, b_again)
        return " and ".join([*guards, f"({body})" if guards and "or" in body else body])

    def _between(self, node: k.TypedBetween, *, wanted: bool) -> str:
        if not (_is_plain(node.low) and _is_plain(node.high)):
            bounds = (
                k.TypedCompare(">=", node.of, node.low, node.of.nullable or node.low.nullable),
                k.TypedCompare("<=", node.of, node.high, node.of.nullable or node.high.nullable),
            )
            return self._condition(k.TypedAnd(bounds, node.nullable), wanted=wanted)
        forms = {_form_beside(bound) for bound in (node.low, node.high)}
        of = self._operand(node.of, "raw" if forms == {"raw"} else "value")
        guards, (value, _) = _guarded(of)
        low, high = self._use(node.low, "value"), self._use(node.high, "value")
        body = f"{low} <= {value} <= {high}"
        return " and ".join([*guards, body if wanted else f"not ({body})"])

    def _in(self, node: k.TypedIn, *, wanted: bool) -> str:
        if node.has_null and not wanted:
            return "False"
        values = [value.value for value in node.values]
        nan = any(isinstance(value, float) and math.isnan(value) for value in values)
        forms = {_form_beside(value) for value in node.values}
        of = self._operand(node.of, "raw" if forms == {"raw"} else "value", repeated=nan)
        members = self._constant(frozenset(values))
        guards, (value, again) = _guarded(of)
        if wanted:
            body = f"{value} in {members}" + (f" or {again} != {again}" if nan else "")
        else:
            body = f"{value} not in {members}" + (f" and {again} == {again}" if nan else "")
        return " and ".join([*guards, f"({body})"])

    def _like(self, node: k.TypedLike, *, wanted: bool) -> str:
        guards, (value, _) = _guarded(self._operand(node.of))
        return " and ".join([*guards, f"{'' if wanted else 'not '}({self._like_test(node.segments, value)})"])

    def _like_test(self, segments: tuple[like.Segment, ...], value: str) -> str:
        match [like.literal(segment) for segment in segments]:
            case [str(whole)]:
                return f"{value} == {self._constant(whole)}"
            case ["", ""]:
                # The value is used, though it does not matter, because a guard may have to bind it.
                return f"{value} is not None"
            case [str(prefix), ""]:
                return f"{value}.startswith({self._constant(prefix)})"
            case ["", str(suffix)]:
                return f"{value}.endswith({self._constant(suffix)})"
            case ["", str(part), ""]:
                # Not `in`: CPython gives way to other threads after calls, and after no operator.
                return f"{value}.find({self._constant(part)}) >= 0"
            case _:
                matches = re.compile(like.regex(segments, atomic=True)).fullmatch
                return f"{self._constant(matches)}({value}) is not None"

    # Values

    def _value(self, node: k.Node) -> str:
        match node:
            case k.Const():
                return "None" if node.value is None else self._constant(node.value)
            case k.Column():
                return self._column(node)
            case k.Convert(kind="int"):
                return self._call("narrowed", node.of)
            case k.Convert(kind="float"):
                return self._applied(node.of, lambda value: f"{value} * 1.0")
            case k.Convert(kind="decimal"):
                scale = self._constant(node.digits[1])
                return self._applied(node.of, lambda value: f"decimal_scaled({value}, {scale})")
            case k.Convert():
                return self._use(node.of, "value")
            case k.TypedNegate():
                if node.kind == "float":
                    return self._applied(node.of, lambda value: f"-{value}")
                if node.kind == "decimal":
                    return self._call("decimal_negated", node.of)
                return self._applied(node.of, lambda value: self._in_range(f"-{value}"))
            case k.TypedArith():
                return self._arithmetic(node)
            case k.TypedCase():
                return self._case(node)
            case k.TypedCall():
                return self._function(node)
            case _:
                return self._bool_value(node)

    def _bool_value(self, node: k.Node) -> str:
        if not node.nullable:
            return f"({self._use(node, 'true')})"
        true, false = self._use(node, "true"), self._use(node, "false")
        return f"(True if {true} else False if {false} else None)"

    def _raw(self, node: k.Node) -> str:
        match node:
            case k.Column(load="f64"):
                return self._stored(node)
            case k.Convert(kind="float"):
                return self._use(node.of, "value")
            case _:
                return self._use(node, "value")

    def _arithmetic(self, node: k.TypedArith) -> str:
        # One operand made a float is enough to make the result one.
        raw: Form = "raw" if node.kind == "float" else "value"
        left = self._operand(node.left, raw)
        right = self._operand(node.right, repeated=node.op == "/")
        absent = [f"{operand.first} is None" for operand in (left, right) if operand.nullable]
        a = left.again if left.nullable else left.first
        if node.kind == "decimal":
            body = f"{_DECIMAL_OPS[node.op]}({a}, {right.again})"
        elif node.op == "%":
            body = f"remainder({a}, {right.again})"
        elif node.op == "/":
            divisor = right.again if right.nullable else right.first
            body = f"{a} / {right.again} if {divisor} else None"
        elif node.kind == "int" and node.op != "&":
            body = self._in_range(f"{a} {node.op} {right.again}")
        else:
            body = f"{a} {node.op} {right.again}"
        return f"(None if {' or '.join(absent)} else {body})" if absent else f"({body})"

    def _in_range(self, text: str) -> str:
        name = self._temporary()
        return f"({name} if {MIN_INT} <= ({name} := {text}) <= {MAX_INT} else None)"

    def _case(self, node: k.TypedCase) -> str:
        parts = []
        for when, then in node.branches:
            condition = when
            if node.of is not None:
                condition = k.TypedCompare("=", node.of, when, node.of.nullable or when.nullable)
            parts.append((self._use(condition, "true"), self._use(then, "value")))
        text = self._use(node.otherwise, "value")
        for start in reversed(range(0, len(parts), _MAX_BRANCHES)):
            if start + _MAX_BRANCHES < len(parts) and not self._counting:
                text = self._bind(text)
            chunk = parts[start : start + _MAX_BRANCHES]
            text = f"({''.join(f'{value} if {condition} else ' for condition, value in chunk)}{text})"
        return text

    def _function(self, node: k.TypedCall) -> str:
        of = node.args[0]
        match node.name:
            case "coalesce":
                return self._coalesce(node.args)
            case "length":
                is_tensor = isinstance(of, k.Column) and of.rank is None
                return self._call("first_dimension" if is_tensor else "len", of)
            case "abs":
                name = {"float": "abs", "decimal": "decimal_abs"}.get(node.kind, "integer_abs")
                return self._call(name, of)
            case "map_contains":
                entry = node.args[1]
                assert isinstance(entry, k.Column)
                key = self._constant(entry.steps[-1].key)
                return self._applied(of, lambda entries: f"map_contains({entries}, {key})")
            case "round":
                digits = self._constant(node.digits)
                return self._applied(of, lambda value: f"rounded({value}, {digits})")
            case name:
                return self._call(name, of)

    def _coalesce(self, args: tuple[k.Node, ...]) -> str:
        text = ""
        for arg in args:
            operand = self._operand(arg)
            if not operand.nullable:
                return f"({text}{operand.first})"
            text += f"{operand.again} if {operand.first} is not None else "
        return f"({text}None)"

    def _call(self, function: str, of: k.Node) -> str:
        return self._applied(of, lambda value: f"{function}({value})")

    def _applied(self, of: k.Node, operation: Callable[[str], str]) -> str:
        operand = self._operand(of)
        if not operand.nullable:
            return f"({operation(operand.first)})"
        return f"(None if {operand.first} is None else {operation(operand.again)})"

    # Columns

    def _column(self, column: k.Column) -> str:
        if column.load == "f64":
            operand = self._operand(column, "raw")
            if not operand.nullable:
                return f"({operand.first} * 1.0)"
            return f"(None if {operand.first} is None else {operand.again} * 1.0)"
        if column.load not in _LOADERS:
            return self._stored(column)
        stored = k.Column(column.steps, "other", column.nullable, "opaque", column.rank, column.header)
        return self._call(_LOADERS[column.load], stored)

    def _stored(self, column: k.Column) -> str:
        """What the event holds at the end of the path, before it is made a value."""
        *before, step = column.steps
        if not before:
            return self._root(column, str(step.key))
        nullable = any(part.nullable for part in before)
        whole = k.Column(tuple(before), "other", nullable, "opaque", header=column.header)
        if step.how == "item" and step.nullable:
            return self._item(whole, step)
        return self._applied(whole, lambda value: self._part(value, step))

    def _root(self, column: k.Column, name: str) -> str:
        if column.header:
            return f"{self._header}.{HEADER_FIELDS[name].attribute}"
        return self._field(self._event, name)

    def _field(self, value: str, name: str) -> str:
        if self._access == "item":
            return f"{value}[{self._constant(name)}]"
        placeholder = next((own for own, real in self._attributes.items() if real == name), None)
        if placeholder is None:
            placeholder = f"a_{len(self._attributes)}"
            self._attributes[placeholder] = name
        return f"{value}.{placeholder}"

    def _item(self, whole: k.Node, step: k.Step) -> str:
        operand = self._operand(whole, repeated=True)
        position = self._constant(step.key)
        sized = operand.again if operand.nullable else operand.first
        body = f"{operand.again}[{position}] if {position} < len({sized}) else None"
        return f"(None if {operand.first} is None else {body})" if operand.nullable else f"({body})"

    def _part(self, value: str, step: k.Step) -> str:
        match step.how:
            case "field":
                return self._field(value, str(step.key))
            case "item":
                return f"{value}[{self._constant(step.key)}]"
            case "map":
                return f"{value}.get({self._constant(step.key)})"
            case "enum_map":
                return f"enum_entry({value}, {self._constant(step.key)})"
            case "array" | "tensor":
                return f"array_item({value}, {self._constant(step.key)})"


_BUILTINS: Final = {"len": len, "abs": abs}
"""All of Python that generated code can name."""


def _form_beside(other: k.Node) -> Form:
    """How a float is needed to be compared with `other`.

    Python compares an int with a float exactly, the language compares both as floats. They agree beside a
    constant that no integer reaches without being exact as a float, and there the conversion is saved.
    """
    if isinstance(other, k.Const) and isinstance(other.value, float):
        return "value" if _EXACT_FLOATS <= abs(other.value) < math.inf else "raw"
    return "value"


def _guarded(*operands: _Operand) -> tuple[Any, ...]:
    """Tests that nothing is None, and per operand its text the first and the next time after them."""
    guards = [f"{operand.first} is not None" for operand in operands if operand.nullable]
    texts = [(o.again if o.nullable else o.first, o.again) for o in operands]
    return (guards, *texts)


def _nan_clause(op: Comparison, nans: tuple[bool, bool], a: str, b: str) -> str:
    """What to add to Python's comparison so that NaN equals itself and is above everything.

    Where `_NAN_ABOVE_ALL` knows a shorter way, it is not asked.
    """
    left, right = nans
    match op:
        case "=" if left and right:
            return f" or ({a} != {a} and {b} != {b})"
        case "<>" if left and right:
            return f" and ({a} == {a} or {b} == {b})"
        case "<" if right:
            return f" or ({b} != {b} and {a} == {a})"
        case ">" if left:
            return f" or ({a} != {a} and {b} == {b})"
        case "<=" if right:
            return f" or {b} != {b}"
        case ">=" if left:
            return f" or {a} != {a}"
        case _:
            return ""


def _can_be_nan(node: k.Node) -> bool:
    if node.kind != "float" or isinstance(node, k.Convert):
        return False
    return not isinstance(node, k.Const) or (isinstance(node.value, float) and math.isnan(node.value))


def _is_plain(node: k.Node) -> bool:
    return isinstance(node, k.Const) and node.value is not None and not _can_be_nan(node)


def _is_deep(text: str) -> bool:
    if text.count(" if ") > _MAX_BRANCHES:
        return True
    level = deepest = 0
    for bracket in re.findall(r"[()\[\]]", text):
        level += 1 if bracket in "([" else -1
        deepest = max(deepest, level)
    return deepest > _MAX_NESTING
