"""From text to tree: a Pratt parser that knows the column of every node.

    expression  = expression OR expression | expression AND expression | NOT expression | predicate
    predicate   = sum [ comparison sum | [NOT] BETWEEN sum AND sum | [NOT] IN ( constant, … )
                      | [NOT] IN parameter
                      | [NOT] LIKE constant [ESCAPE constant] | IS [NOT] NULL ]
    sum         = sum (+ | -) product | product
    product     = product (* | / | %) unary | unary
    unary       = - unary | primary
    primary     = literal | parameter | path | function ( expression, … ) | case | ( expression )
    path        = name { . name | [ constant, … ] }

Depth is counted while parsing and stops at MAX_DEPTH, so no text can exhaust the stack: neither Python's here
nor that of anything that later walks the tree.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from heliograph.errors import ExpressionError
from heliograph.filters import tree as t
from heliograph.filters.lexer import Token, tokens
from heliograph.filters.limits import DepthLimit
from heliograph.filters.params import bind, bind_projection, constant, kind_of
from heliograph.model.formats import MAX_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.filters.params import Params

MAX_ARGUMENTS: Final = 64
"""Of `coalesce`, the one function that takes any number."""
COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
FUNCTIONS: Final = {
    "abs": (1, 1),
    "lower": (1, 1),
    "upper": (1, 1),
    "length": (1, 1),
    "coalesce": (1, MAX_ARGUMENTS),
    "round": (1, 2),
    "floor": (1, 1),
    "ceil": (1, 1),
    "sqrt": (1, 1),
    "bitand": (2, 2),
    "map_contains": (2, 2),
}
"""The functions there are, and how few and how many arguments each takes."""

_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_PREDICATES: Final = COMPARISONS | {"IS", "IN", "LIKE", "BETWEEN"}
_OPERAND: Final = "a field, a number, a 'text', a parameter, a function or a parenthesis"


def parse(text: str, params: Params | None = None) -> t.Expr:
    """The tree of an expression; parameters get their values when `params` are given."""
    if not text.strip():
        raise ExpressionError("is empty; leave out where= to get all events", text=text, column=1)
    parser = _Parser(text)
    with _no_statement(text):
        tree = parser.expression()
        parser.expect_end()
    expr = t.Expr(tree, t.SourceText(text))
    return expr if params is None else bind(expr, params)


def parse_projection(text: str, params: Params | None = None) -> t.Projection:
    """The trees of `id, speed * 1.852 AS kmh`."""
    if not text.strip():
        raise ExpressionError(
            "is empty; name columns, such as 'id, speed * 1.852 AS kmh'", text=text, column=1
        )
    parser = _Parser(text)
    with _no_statement(text):
        outputs = [parser.output()]
        while parser.take_symbol(","):
            outputs.append(parser.output())
            if len(outputs) > MAX_FIELDS:
                raise parser.error(f"a projection has at most {MAX_FIELDS} columns", parser.here)
        parser.expect_end()
    projection = t.Projection(tuple(outputs), t.SourceText(text))
    return projection if params is None else bind_projection(projection, params)


@contextmanager
def _no_statement(text: str) -> Iterator[None]:
    """Say so when what cannot be parsed is written as a statement of SQL; a field may have such a name."""
    try:
        yield
    except ExpressionError:
        word = text.split(maxsplit=1)[0].upper()
        if word not in ("SELECT", "WHERE"):
            raise
        reason = f"leave out {word}: filters and projections are expressions, not statements of SQL"
        raise ExpressionError(reason, text=text, column=1) from None


def parse_path(text: str) -> t.Tree:
    """The tree of a path alone (`position.lat`, `samples[0]`, `header.supplier`)."""
    parser = _Parser(text)
    tree = parser.path(parser.take())
    parser.expect_end()
    return tree


class _Parser:
    """One text being parsed: its tokens and how far they have been read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = 0
        self._level = 0
        self._measure = DepthLimit(text)

    # Tokens

    @property
    def here(self) -> Token:
        return self._tokens[self._next]

    def take(self) -> Token:
        token = self.here
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def take_symbol(self, *symbols: str) -> Token | None:
        return self.take() if self.here.kind == "symbol" and self.here.text in symbols else None

    def take_keyword(self, *words: str) -> Token | None:
        return self.take() if self.here.kind == "keyword" and self.here.text in words else None

    def expect_symbol(self, symbol: str, why: str) -> None:
        if not self.take_symbol(symbol):
            raise self.error(f"{self.here} stands where {symbol!r} should {why}", self.here)

    def expect_keyword(self, word: str, why: str) -> None:
        if not self.take_keyword(word):
            raise self.error(f"{self.here} stands where {word} should {why}", self.here)

    def expect_end(self) -> None:
        if self.here.kind != "end":
            raise self.error(
                f"{self.here} stands after the expression has ended; "
                "expected an operator (AND, OR, a comparison, arithmetic) or nothing",
                self.here,
            )

    def error(self, reason: str, token: Token) -> ExpressionError:
        """What to raise about `token`."""
        return ExpressionError(reason, text=self._text, column=token.column)

    # Conditions

    def expression(self) -> t.Tree:
        """A whole expression; OR binds loosest."""
        self._level += 1
        if self._level > t.MAX_DEPTH:
            raise self.error(f"nested deeper than {t.MAX_DEPTH} levels", self.here)
        items, at = [self._conjunction()], self.here
        while self.take_keyword("OR"):
            items.append(self._conjunction())
        self._level -= 1
        return items[0] if len(items) == 1 else self._made(t.disjunction(tuple(items), t.At(at.column)))

    def _conjunction(self) -> t.Tree:
        items, at = [self._negation()], self.here
        while self.take_keyword("AND"):
            items.append(self._negation())
        return items[0] if len(items) == 1 else self._made(t.conjunction(tuple(items), t.At(at.column)))

    def _negation(self) -> t.Tree:
        nots: list[Token] = []
        while token := self.take_keyword("NOT"):
            nots.append(token)
        tree = self._predicate()
        for token in reversed(nots):
            tree = self._made(t.Not(tree, t.At(token.column)))
        return tree

    def _predicate(self) -> t.Tree:
        left = self._sum()
        token = self.here
        tree = self._predicate_after(left)
        again = self.here
        if tree is not left and again.kind in ("symbol", "keyword") and again.text in _PREDICATES:
            raise self.error(
                f"{again} follows {token}, and comparisons do not chain: "
                "join two with AND, or put one in parentheses",
                again,
            )
        return tree

    def _predicate_after(self, left: t.Tree) -> t.Tree:
        token = self.here
        at = t.At(token.column)
        if token.kind == "symbol" and token.text in COMPARISONS:
            self.take()
            if self.here.text == "=" and token.text == "=":
                raise self.error("equality is written with one = sign", self.here)
            return self._made(t.Compare(cast("t.Comparison", token.text), left, self._sum(), at))
        if self.take_keyword("IS"):
            negated = self.take_keyword("NOT")
            self.expect_keyword("NULL", "after IS")
            return self._maybe_not(negated, self._made(t.IsNull(left, at)), at)
        negated = self.take_keyword("NOT")
        if self.take_keyword("BETWEEN"):
            return self._maybe_not(negated, self._between(left, at), at)
        if self.take_keyword("IN"):
            return self._maybe_not(negated, self._in(left, at), at)
        if self.take_keyword("LIKE"):
            return self._maybe_not(negated, self._like(left, at), at)
        if negated:
            raise self.error(f"{self.here} stands after NOT, where only BETWEEN, IN or LIKE can", self.here)
        return left

    def _maybe_not(self, negated: Token | None, tree: t.Tree, at: t.At) -> t.Tree:
        return self._made(t.Not(tree, at)) if negated else tree

    def _between(self, left: t.Tree, at: t.At) -> t.Tree:
        low = self._sum()
        self.expect_keyword("AND", "between the two bounds of BETWEEN")
        return self._made(t.Between(left, low, self._sum(), at))

    def _in(self, left: t.Tree, at: t.At) -> t.Tree:
        if self.here.kind == "param":  # IN :ids, with a list for its value
            return self._made(t.In(left, (self._constant("the list of IN"),), at))
        self.expect_symbol("(", "open the list of IN")
        items = [self._constant("the list of IN")]
        while self.take_symbol(","):
            items.append(self._constant("the list of IN"))
            if len(items) > t.MAX_IN:
                raise self.error(f"an IN list holds at most {t.MAX_IN} values", self.here)
        self.expect_symbol(")", "close the list of IN")
        return self._made(t.In(left, tuple(items), at))

    def _like(self, left: t.Tree, at: t.At) -> t.Tree:
        pattern = self._constant("LIKE")
        escape = self._constant("ESCAPE") if self.take_keyword("ESCAPE") else None
        return self._made(t.Like(left, pattern, escape, at))

    def _constant(self, place: str) -> t.Tree:
        token = self.here
        tree = self._unary()
        if not isinstance(tree, t.Value | t.Param):
            raise self.error(f"{place} takes literals and parameters only", token)
        return tree

    # Arithmetic

    def _sum(self) -> t.Tree:
        left = self._product()
        while token := self.take_symbol("+", "-"):
            left = self._arith(token, left, self._product())
        return left

    def _product(self) -> t.Tree:
        left = self._unary()
        while token := self.take_symbol("*", "/", "%"):
            left = self._arith(token, left, self._unary())
        return left

    def _arith(self, token: Token, left: t.Tree, right: t.Tree) -> t.Tree:
        return self._made(t.Arith(cast("t.Arithmetic", token.text), left, right, t.At(token.column)))

    def _unary(self) -> t.Tree:
        signs: list[Token] = []
        while token := self.take_symbol("-"):
            signs.append(token)
        tree = self._primary()
        for token in reversed(signs):
            tree = self._made(negated(tree, t.At(token.column)))
            if isinstance(tree, t.Value) and tree.kind == "int" and cast("int", tree.value) < t.MIN_INT:
                raise self.error("this integer is out of range; integers begin at -2**63", token)
        return tree

    # Operands

    def _primary(self) -> t.Tree:
        token = self.take()
        match token.kind:
            case "value":
                return self._made(t.Value(token.value, kind_of(token.value), t.At(token.column)))
            case "param":
                assert isinstance(token.value, str | int)
                return self._made(t.Param(token.value, t.At(token.column)))
            case "keyword":
                return self._keyword(token)
            case "name":
                return self._name(token)
            case "symbol" if token.text == "(":
                inside = self.expression()
                self.expect_symbol(")", "close the parenthesis")
                return inside
        raise self.error(f"{token} stands where an operand should; expected {_OPERAND}", token)

    def _keyword(self, token: Token) -> t.Tree:
        at = t.At(token.column)
        match token.text:
            case "TRUE" | "FALSE":
                return self._made(t.Value(token.text == "TRUE", "bool", at))
            case "NULL":
                return self._made(t.Value(None, "null", at))
            case "CASE":
                return self._case(at)
        raise self.error(
            f"{token} stands where an operand should; expected {_OPERAND} "
            f"(a field of that name is written `{token.text.lower()}` in backticks)",
            token,
        )

    def _name(self, token: Token) -> t.Tree:
        plain = token.value is None
        if plain and self.here.kind == "value" and token.text.lower() == "timestamp":
            return self._timestamp(self.take())
        if plain and self.here.kind == "value" and token.text.lower() == "date":
            return self._date(self.take())
        if plain and self.here.kind == "value" and token.text.lower() == "decimal":
            return self._decimal(self.take())
        if plain and self.here.text == "(" and self.here.kind == "symbol":
            return self._call(token)
        return self.path(token)

    def _timestamp(self, token: Token) -> t.Tree:
        try:
            if not isinstance(token.value, str) or not _TIMESTAMP.fullmatch(token.value):
                raise ValueError  # noqa: TRY301 - joins the other ways not to be an instant
            instant = datetime.fromisoformat(token.value).astimezone(UTC)
        except (ValueError, OverflowError):
            raise self.error(
                "an instant is written with its offset: TIMESTAMP '2026-01-31T12:00:00Z' "
                "or '2026-01-31 12:00:00.000001+01:00'",
                token,
            ) from None
        return self._made(t.Value(instant, "datetime", t.At(token.column)))

    def _date(self, token: Token) -> t.Tree:
        try:
            if not isinstance(token.value, str) or not _DATE.fullmatch(token.value):
                raise ValueError  # noqa: TRY301 - joins the other ways not to be a day
            day = date.fromisoformat(token.value)
        except ValueError:
            raise self.error("a day is written DATE '2026-01-31'", token) from None
        return self._made(t.Value(day, "date", t.At(token.column)))

    def _decimal(self, token: Token) -> t.Tree:
        if not isinstance(token.value, str) or not _DECIMAL.fullmatch(token.value):
            raise self.error("a decimal is written DECIMAL '10.25'", token)
        return self._made(constant(Decimal(token.value), self._text, t.At(token.column)))

    def _call(self, token: Token) -> t.Tree:
        name = token.text.lower() if token.text.isascii() else token.text
        if name not in FUNCTIONS:
            raise self.error(
                f"there is no function {token.text[:40]!r}; there are {', '.join(FUNCTIONS)}", token
            )
        self.take()
        args: list[t.Tree] = []
        if not self.take_symbol(")"):
            args.append(self.expression())
            while self.take_symbol(","):
                args.append(self.expression())
            self.expect_symbol(")", f"close the call of {name}")
        fewest, most = FUNCTIONS[name]
        if not fewest <= len(args) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise self.error(f"{name} takes {wanted} argument(s), not {len(args)}", token)
        return self._made(t.Call(name, tuple(args), t.At(token.column)))

    def _case(self, at: t.At) -> t.Tree:
        subject = None if self.here.text == "WHEN" else self.expression()
        branches: list[tuple[t.Tree, t.Tree]] = []
        while self.take_keyword("WHEN"):
            condition = self.expression()
            self.expect_keyword("THEN", "after the condition of WHEN")
            branches.append((condition, self.expression()))
        if not branches:
            raise self.error(f"{self.here} stands where WHEN should begin a branch of CASE", self.here)
        otherwise = self.expression() if self.take_keyword("ELSE") else None
        self.expect_keyword("END", "close CASE")
        return self._made(t.Case(subject, tuple(branches), otherwise, at))

    def path(self, token: Token) -> t.Tree:
        """A field and the steps from it; a plain `header` begins a path into the header."""
        if token.kind != "name":
            raise self.error(f"{token} stands where a field's name should", token)
        name = str(token.value or token.text)
        if token.value is None and name == "header":
            self.expect_symbol(".", "follow `header` and its field (a field named header needs backticks)")
            tree = self._made(t.Name(self._member(), header=True, at=t.At(token.column)))
        else:
            tree = self._made(t.Name(name, at=t.At(token.column)))
        while step := self.take_symbol(".", "["):
            if step.text == ".":
                at = t.At(self.here.column)
                tree = self._made(t.NestedField(tree, self._member(), at))
            else:
                tree = self._elements(tree)
        return tree

    def _member(self) -> str:
        token = self.take()
        if token.kind != "name":
            raise self.error(f"{token} stands where a field's name should after the point", token)
        return str(token.value or token.text)

    def _elements(self, tree: t.Tree) -> t.Tree:
        while True:
            at = t.At(self.here.column)
            tree = self._made(t.Element(tree, self._constant("an element's position"), at))
            if not self.take_symbol(","):
                break
        self.expect_symbol("]", "close the position")
        return tree

    def output(self) -> t.Output:
        """One column of a projection."""
        at = t.At(self.here.column)
        if self.here.kind == "symbol" and self.here.text == "*":
            raise self.error(
                "a projection names its columns, so that it stays the same when the class changes: write the "
                "fields in place of *",
                self.here,
            )
        tree = self.expression()
        if not self.take_keyword("AS"):
            return t.Output(tree, _own_name(tree), at)
        token = self.take()
        if token.kind != "name":
            raise self.error(f"{token} stands where the column's name should after AS", token)
        return t.Output(tree, str(token.value or token.text), at)

    def _made(self, tree: t.Tree) -> t.Tree:
        return self._measure.made(tree)


def negated(tree: t.Tree, at: t.At) -> t.Tree:
    """`-tree`: a number with the other sign, else a node."""
    if isinstance(tree, t.Value) and tree.kind in ("int", "float"):
        assert isinstance(tree.value, int | float)
        return t.Value(-tree.value, tree.kind, at)
    if isinstance(tree, t.Value) and isinstance(tree.value, Decimal):
        return t.Value(tree.value.copy_negate() if tree.value else tree.value, "decimal", at)
    return t.Negate(tree, at)


def _own_name(tree: t.Tree) -> str | None:
    return tree.name if isinstance(tree, t.Name | t.NestedField) else None
