"""Random projections over random rows: all engines agree, and no value breaks the type of its column."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.codec import decoder, encoder
from heliograph.codec.validate import validate
from heliograph.errors import ExpressionError
from heliograph.filters import arrow
from heliograph.filters import tree as t
from heliograph.filters.derivation import CheckedDerivation, Derivation
from heliograph.filters.parser import parse
from heliograph.filters.reference import evaluate
from heliograph.model import field_types as ft
from tests.property.expr_cases import (
    FORMAT,
    HypothesisChooser,
    RandomChooser,
    Writer,
    as_batch,
    as_event,
    needed,
    row,
    same,
)
from tests.support import examples

_CHOOSE = RandomChooser(1852)
ROWS = [row(_CHOOSE) for _ in range(32)]
EVENTS = [as_event(values) for values in ROWS]
BATCH = as_batch(ROWS, spark_safe=False)


@st.composite
def derivations(draw: st.DrawFn) -> CheckedDerivation:
    choose = HypothesisChooser(draw)
    outputs = []
    for number in range(choose.number(1, 4)):
        writer = Writer(choose)
        text = writer.any_value(choose.number(0, 3))
        outputs.append(t.Output(parse(text, needed(text, writer.params)).tree, f"c{number}"))
    one = Derivation("c", FORMAT.name, t.Projection(tuple(outputs), t.SourceText("random")))
    try:
        return one.over(FORMAT)
    except ExpressionError as error:
        if "in arithmetic" not in error.reason:  # as in `test_expr`: a constant above 2**63-1
            raise
        return Derivation(
            "c", FORMAT.name, t.Projection((t.Output(parse("i").tree, "c0"),), t.SourceText("i"))
        ).over(FORMAT)


@settings(max_examples=examples(250))
@given(derivations())
def test_engines_agree_and_every_value_fits_the_type_of_its_column(made: CheckedDerivation) -> None:
    cls = made.class_made()
    derive = made.function(cls)
    table = arrow.project(made.projection, BATCH)
    decode, encode = decoder(made.format, cls), encoder(cls).encode
    for number, (values, event) in enumerate(zip(ROWS, EVENTS, strict=True)):
        derived: Any = derive(event, values["header"])
        for field, node in zip(made.format.fields, made.projection.nodes, strict=True):
            value, expected = getattr(derived, field.name), evaluate(node, event, values["header"])
            assert same(value, expected)
            column = table.column(field.name)[number].as_py()
            assert same(column, expected), (column, expected)
            assert value is not None or isinstance(field.type, ft.Optional)
        validate(derived)
        again = decode(encode(derived))
        assert all(same(getattr(again, f.name), getattr(derived, f.name)) for f in made.format.fields)
