"""Generated code: names, defaults and literals of others are data in it and can never become code."""

from __future__ import annotations

import ast
import gc
import keyword
import linecache
import traceback
from typing import Any

import msgspec
import numpy as np
import pytest

import heliograph as hg
from heliograph import codec
from heliograph.codec.validate import validate
from heliograph.model import field_types as ft
from heliograph.model.event import EventMeta
from heliograph.model.formats import Field
from heliograph.model.layout import native_format
from heliograph.runtime.codegen import CodeBuilder, text_of
from tests.random_formats import Case

HOSTILE = [
    "__import__('os').system('x')",
    "a = 1\nraise SystemExit",
    "'", '"""', "\\", "{0}", "%(x)s", "#", "a.b", "a b", "v0", "event", "body", "attr_1", "c_1", "x" * 255,
    *keyword.kwlist,
]  # fmt: skip


class Boom(str):
    """A default that does something when it is printed: it must be handed over, never written out."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise AssertionError("a default was turned into text")

    __str__ = __repr__


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of everything that is compiled from now on."""
    texts: list[str] = []
    compiled = CodeBuilder.functions

    def functions(self: CodeBuilder) -> dict[str, Any]:
        texts.append(self.text())
        return compiled(self)

    monkeypatch.setattr(CodeBuilder, "functions", functions)
    return texts


def own_names(text: str) -> set[str]:
    """Every name in a source; ours are short words, numbered or not."""
    tree = ast.parse(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    literals = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert all(isinstance(value, int | None) or value == "utf-8" for value in literals), literals
    return names


@pytest.mark.parametrize("body", ["packed", "native"])
def test_hostile_names_of_a_wire_format_are_only_data(written: list[str], body: str) -> None:
    kinds: list[ft.FieldType] = [
        ft.Scalar("i32"),
        ft.Optional(ft.Scalar("str")),
        ft.Array("f64"),
        ft.Enum("E'", "str", (("'", "'"),)),
    ]
    fields = [(name, kinds[index % 4]) for index, name in enumerate(HOSTILE)]
    plain = hg.Format("x", tuple(Field(name, kind) for name, kind in fields))
    wire = plain if body == "packed" else native_format("x", fields)
    values = [7, None, np.zeros(2), "'"]
    case = Case(wire, {name: values[index % 4] for index, name in enumerate(HOSTILE)})
    decoded = codec.make_decoder(wire, None)(case.body())
    assert list(decoded) == HOSTILE
    assert decoded[HOSTILE[0]] == 7
    for text in written:
        assert all(len(name) < 20 for name in own_names(text))
        assert not any(name in text for name in HOSTILE if len(name) > 8 and name != "continue")


@pytest.mark.parametrize("body", ["packed", "native"])
def test_hostile_names_of_a_class_are_only_data(written: list[str], body: Any) -> None:
    names = [name for name in HOSTILE if name.isidentifier()]
    annotations = dict.fromkeys(names, int)
    cls: Any = EventMeta("Hostile", (hg.Event,), {"__annotations__": annotations}, body=body)
    event = cls(*range(len(names)))
    validate(event)
    assert codec.make_decoder(hg.format_of(cls), cls)(codec.Encoder(cls).encode(event)) == event
    assert written
    for text in written:
        assert own_names(text).isdisjoint(set(names) - {"event", "body", "v0", "attr_1", "c_1"})


def test_hostile_defaults_are_handed_over(written: list[str]) -> None:
    default = Boom("'); raise SystemExit  #")

    class Reader(hg.Event, name="x", kw_only=True):
        number: int
        text: str = default
        made: list[int] = msgspec.field(default_factory=lambda: [1])

    class Writer(hg.Event, name="x"):
        other: int
        number: int

    event = codec.make_decoder(hg.format_of(Writer), Reader)(b"\x92\1\2")
    assert event.number == 2
    assert event.text is default
    assert event.made == [1]
    assert "SystemExit" not in "".join(written)


def test_an_attribute_may_have_the_name_of_a_bound_value() -> None:
    class Thing:
        c_1 = "attribute"

    source = CodeBuilder()
    value = source.bind("value")
    attribute = source.attribute(value)
    source.line("def both(thing):", 0)
    source.line(f"return [{value}, thing.{attribute}, [each.{attribute} for each in [thing]]]")
    thing = Thing()
    setattr(thing, value, "attribute")
    assert source.functions()["both"](thing) == ["value", "attribute", ["attribute"]]


def boom_of(name: str) -> tuple[Any, str]:
    """A generated function that fails in its second line, and the placeholder of its attribute."""
    source = CodeBuilder()
    attribute = source.attribute(name)
    source.line("def boom(event):", 0)
    source.line(f"return event.{attribute} // 0")
    return source.functions()["boom"], attribute


def test_a_traceback_shows_the_line_of_generated_code_with_the_name_of_the_field() -> None:
    class Quote:
        price = 5

    boom, _ = boom_of("price")
    with pytest.raises(ZeroDivisionError) as caught:
        boom(Quote())
    shown = "".join(traceback.format_exception(caught.value))
    assert "return event.price // 0" in shown
    assert 'File "<heliograph boom ' in shown
    assert text_of(boom) == "def boom(event):\n    return event.price // 0\n"


def test_two_generated_functions_have_two_file_names() -> None:
    one, other = boom_of("price")[0], boom_of("price")[0]
    assert one.__code__.co_filename != other.__code__.co_filename


def test_a_name_that_is_no_identifier_is_not_shown_in_the_text() -> None:
    boom, attribute = boom_of("a\x1b[2J\n")
    assert text_of(boom) == f"def boom(event):\n    return event.{attribute} // 0\n"


def test_the_text_of_generated_code_goes_with_its_last_function() -> None:
    boom, _ = boom_of("price")
    file_name = boom.__code__.co_filename
    linecache.checkcache()
    assert file_name in linecache.cache
    del boom
    gc.collect()
    assert file_name not in linecache.cache


def test_a_push_that_fails_in_generated_code_shows_the_line_it_failed_in() -> None:
    class Quote(hg.Event, name="quote"):
        price: float

    with hg.Station() as station:
        quotes = station.channel("quotes", Quote)

        def interrupted(quote: Quote) -> None:
            raise KeyboardInterrupt

        quotes.subscribe(interrupted, inline=True)
        with pytest.raises(KeyboardInterrupt) as caught:
            quotes.push(Quote(price=5.0))
    generated = [f for f in traceback.extract_tb(caught.tb) if f.filename.startswith("<heliograph way ")]
    assert generated
    assert all(frame.line for frame in generated)
