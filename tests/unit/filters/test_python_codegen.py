"""Generated code: what it shares, what it may name, and that no name or literal becomes code."""

from __future__ import annotations

import dis
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from heliograph.filters.check import check, check_projection
from heliograph.filters.parser import parse, parse_projection
from heliograph.filters.python import compile_merged, compile_one, compile_projection
from heliograph.filters.python_codegen import INDENT, Emitter
from heliograph.model import field_types as ft
from heliograph.model.event import Header
from heliograph.model.formats import Field, Format
from tests.unit.filters.examples import TRACK, condition, value


class Counting:
    """Counts how often each attribute is read."""

    def __init__(self, **values: Any) -> None:
        self._values = values
        self.reads: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        self.reads[name] = self.reads.get(name, 0) + 1
        return self._values[name]


def source_of(*texts: str) -> str:
    emitter = Emitter()
    slots = [emitter.add(condition(text).node) for text in texts]
    emitter.finish()
    return "\n".join([*emitter.lines, *map(str, slots)])


def test_other_threads_get_their_turn_between_two_searches_in_a_text() -> None:
    """CPython looks whether another thread waits after calls and at the ends of loops, and nowhere else."""
    code = compile_one(condition("region LIKE '%a%' OR region LIKE '%b%'")).__code__
    operations = [instruction.opname for instruction in dis.get_instructions(code)]
    assert operations.count("CALL") == 2
    assert "CONTAINS_OP" not in operations


def test_a_merged_function_gives_the_numbers_of_the_filters_that_are_true() -> None:
    merged = compile_merged(
        [
            condition(text)
            for text in ("speed > 300", "alt > 1", "NOT (alt > 1)", "region = 'x'", "TRUE", "NULL")
        ]
    )
    assert merged(SimpleNamespace(speed=400.0, alt=None, region="x")) == [0, 3, 4]
    assert merged(SimpleNamespace(speed=1.0, alt=2.0, region="")) == [1, 4]
    assert merged(SimpleNamespace(speed=1.0, alt=0.0, region="")) == [2, 4]
    assert compile_merged([])(SimpleNamespace()) == []


def test_what_conditions_share_is_read_and_computed_once() -> None:
    texts = ["speed * 2 > 10", "speed * 2 > 10 AND region = 'a'", "speed * 2 > 20 OR alt > 5", "alt IS NULL"]
    event = Counting(speed=8.0, region="a", alt=None)
    assert compile_merged([condition(text) for text in texts])(event) == [0, 1, 3]
    assert event.reads == {"speed": 1, "region": 1, "alt": 1}
    assert source_of(*texts).count("*") == 1


def test_a_nested_record_is_read_once_for_all_its_fields() -> None:
    position = Counting(lat=1.0, lon=2.0)
    event = Counting(position=position)
    merged = compile_merged([condition("position.lat = 1"), condition("position.lon = 2")])
    assert merged(event) == [0, 1]
    assert event.reads == {"position": 1}


def test_an_unshared_operand_behind_a_false_one_is_not_computed() -> None:
    event = Counting(active=False, speed=1.0)
    assert compile_one(condition("active AND speed > 1"))(event) is False
    assert event.reads == {"active": 1}


def test_fields_that_cannot_be_null_are_not_tested_for_none() -> None:
    assert "None" not in source_of("speed > 300 AND region = 'a' OR NOT id IN (1, 2)")
    assert "None" in source_of("alt > 300")


def test_nan_is_only_looked_for_where_it_changes_the_answer() -> None:
    assert "!=" in source_of("speed > speed * 2")
    assert "not" in source_of("speed > 300"), "not (speed <= 300): true of NaN, too"
    for where in ("speed < 300", "id > 300", "speed BETWEEN 1 AND 2"):
        assert "!=" not in source_of(where)
        assert "not" not in source_of(where)


HOSTILE_NAMES = [
    "import os",
    "x; import os",
    "__import__('os')",
    "a\nb",
    "class",
    "None",
    "lambda",
    "event",
    "a_0",
    "k_0",
    "v_0",
    "t_1",
    "len",
    "abs",
    "single",
    "\u017f",
    "${env:HOME}",
    "`",
    "'",
    '"""',
    "\\",
    "}{",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_field_name_is_data(name: str) -> None:
    fmt = Format("odd", (Field(name, ft.Scalar("i64")), Field("other", ft.Scalar("i64"))))
    checked = check(parse(f"`{name.replace('`', '``')}` > 5 AND other = 1"), fmt)
    emitter = Emitter()
    slot = emitter.add(checked.node)
    emitter.finish()
    assert "\n".join([*emitter.lines, str(slot)]) == "((event.a_0 > k_0) and (event.a_1 == k_1))"
    event = SimpleNamespace(**{name: 6, "other": 1})
    assert compile_one(checked)(event) is True
    assert compile_one(checked, access="item")({name: 4, "other": 1}) is False


def test_no_literal_stands_in_the_source() -> None:
    source = source_of(
        "region = 'secret' AND id = 31337 AND raw = X'beef' AND region LIKE 'tell%' AND id IN (4242)"
    )
    for literal in ("secret", "31337", "beef", "tell", "4242"):
        assert literal not in source


def test_generated_code_reaches_no_builtins() -> None:
    function = compile_one(condition("speed > 1"))
    assert set(function.__globals__["__builtins__"]) == {"len", "abs"}


def test_attributes_are_read_from_real_structs_and_slots() -> None:
    class Point(msgspec.Struct):
        speed: float
        region: str

    assert compile_one(condition("speed > 1 AND region = 'a'"))(Point(2.0, "a")) is True


def test_conditions_can_be_placed_inside_a_larger_function() -> None:
    emitter = Emitter(event="e", header="h")
    fast, near = emitter.add(condition("speed > 300").node), emitter.add(condition("header.hops < 1").node)
    label = emitter.add_value(value("upper(region)").node)
    emitter.finish()
    delivered: list[Any] = []
    body = [f"if {fast}: deliver(e, {label})", f"if {near}: deliver(h, 'near')"]
    source = ["def route(e, h):", *(INDENT + line for line in [*emitter.lines, *body])]
    route = emitter.function("route", source, {"deliver": lambda *args: delivered.append(args)})
    event, header = SimpleNamespace(speed=400.0, region="a"), SimpleNamespace(hops=0)
    route(event, header)
    assert delivered == [(event, "A"), (header, "near")]


def test_nested_functions_get_the_field_names_too() -> None:
    emitter = Emitter()
    slot = emitter.add(condition("speed > 300").node)
    emitter.finish()
    lines = ["def outer():", "    def inner(event):", f"        return {slot}", "    return inner"]
    assert emitter.function("outer", lines)()(SimpleNamespace(speed=301.0)) is True


def test_header_fields_come_from_the_header() -> None:
    header = Header("c", "t", "radar", 2, 3, 1_769_860_800_000_000_000, b"", headers={"k": "v"})
    for text in (
        "header.supplier = 'radar' AND header.epoch = 2 AND header.sequence = 3 AND header.channel = 'c'",
        "header.source_ts = TIMESTAMP '2026-01-31T12:00:00Z' AND header.append_ts IS NULL",
        "header.user['k'] = 'v' AND header.user['x'] IS NULL AND header.type = 't'",
        "NOT header.redelivered AND header.priority = 3 AND header.offset IS NULL",
    ):
        assert compile_one(condition(text))(None, header) is True


def test_a_projection_gives_a_tuple() -> None:
    checked = check_projection(parse_projection("id, speed * 2 AS double, alt, id > 3 AS big"), TRACK)
    derive = compile_projection(checked)
    assert derive(SimpleNamespace(id=7, speed=1.5, alt=None)) == (7, 3.0, None, True)
    assert derive(SimpleNamespace(id=1, speed=2, alt=2.0)) == (1, 4.0, 2.0, False)


def test_an_int_in_a_float_field_counts_as_a_float() -> None:
    assert repr(compile_one(value("speed"))(SimpleNamespace(speed=7))) == "7.0"
    assert repr(compile_one(value("speed + speed"))(SimpleNamespace(speed=1 << 62))) == repr(2.0**63)
    assert repr(compile_one(value("-speed"))(SimpleNamespace(speed=7))) == "-7.0"


def test_deep_and_wide_expressions_compile() -> None:
    """Python's own compiler stops at 200 brackets and some thousand nested nodes."""
    event = SimpleNamespace(id=3, active=False, alt=None)
    sums = "id"
    for _ in range(20):
        sums = f"abs(-({sums} + 1))"
    assert compile_one(value(sums))(event) == 23
    nested = "CASE WHEN active THEN 1 ELSE " * 30 + "id" + " END" * 30
    assert compile_one(value(nested))(event) == 3
    flags = "active"
    for number in range(20):
        flags = f"(({flags}) = (alt > {number}) OR active)"
    assert compile_one(condition(flags))(event) is None
    branches = " ".join(f"WHEN {number} THEN {number * 2}" for number in range(3_000))
    doubled = compile_one(value(f"CASE id {branches} ELSE -1 END"))
    assert [doubled(SimpleNamespace(id=n)) for n in (0, 99, 100, 2_999, 3_000)] == [0, 198, 200, 5_998, -1]
    assert compile_one(condition(" AND ".join(f"id <> {n}" for n in range(4, 3_000))))(event) is True


def test_a_slot_is_not_known_before_the_end() -> None:
    emitter = Emitter()
    slot = emitter.add(condition("speed > 1").node)
    with pytest.raises(AssertionError, match="finish"):
        str(slot)
