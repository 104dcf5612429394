"""Declared options: a row is made of a field's own declaration, and everything else of the row."""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from heliograph.channel.reconfigure import Arrangement
from heliograph.channel.selection import Selection
from heliograph.qos.endpoint import Acking, PushOptions, ReceiverOptions, Wanted
from heliograph.qos.policies import RULES, QoS, policies
from heliograph.runtime.declared_options import (
    Choice,
    NumberRange,
    Object,
    Option,
    Rule,
    Switch,
    Text,
    beside,
    levels,
    refusals,
    rows_of,
    seconds,
    whole,
)


class Note(msgspec.Struct, frozen=True):
    of: str


class Sample(msgspec.Struct, kw_only=True):
    kind: Annotated[Literal["weak", "strong"], Option("how strong"), Note("kinds")] = "weak"
    size: Annotated[int | None, Option("how large", whole(1, 10))] = None
    on: Annotated[bool, Option("whether")] = False
    free: int = 3


class Asked(TypedDict, total=False):
    wait: Annotated[float | None, Option("how long", seconds(0, 5, above=True))]


def test_a_row_has_the_name_the_default_and_what_the_type_allows() -> None:
    rows = rows_of(Sample)
    assert list(rows) == ["kind", "size", "on"]
    assert rows["kind"] == Option("how strong", Choice(("weak", "strong")), "kind", "weak", optional=False)
    assert rows["size"] == Option("how large", whole(1, 10), "size", None, optional=True)
    assert rows["on"] == Option("whether", Switch(), "on", default=False)


def test_a_typed_dict_declares_rows_as_well() -> None:
    assert rows_of(Asked)["wait"].why_not(0) == "seconds above 0, up to 5, or None"
    assert rows_of(Asked)["wait"].why_not(None) is None


def test_what_else_is_said_of_a_field_is_found_by_its_class() -> None:
    assert beside(Sample, Note) == {"kind": Note("kinds")}


@pytest.mark.parametrize(
    ("allowed", "good", "bad", "text"),
    [
        (Choice(("a", "b")), "a", "c", "one of a, b"),
        (Choice(("a", "b")), "b", ["a"], "one of a, b"),
        (whole(1, 1000), 1000, 1.0, "a whole number from 1 to 1,000"),
        (whole(1, 10), 1, True, "a whole number from 1 to 10"),
        (levels(1, 5), 5, 6, "a whole number from 1 (low) to 5 (high)"),
        (seconds(0, 2), 0, -1, "seconds from 0 to 2"),
        (seconds(0, 2, above=True), 0.1, 0, "seconds above 0, up to 2"),
        (seconds(1, 2, reason="slow"), 1, float("nan"), "seconds from 1 to 2: slow"),
        (whole(1), 10**30, 0, "a whole number from 1"),
        (seconds(0, inf), 1e300, inf, "seconds from 0"),
        (NumberRange(0, 1), 0.5, "0.5", "a number from 0 to 1"),
        (Switch(), True, 1, "True or False"),
        (Text(3), "", "abcd", "text of at most 3 characters"),
        (Text(3), "a\n", "\ud800", "text of at most 3 characters"),
        (Text(3, is_name=True), "a b", "", "text of 1 to 3 printable characters"),
        (Text(3, "a name", is_name=True), "a", "a\n", "a name of 1 to 3 printable characters"),
        (Object("a path", lambda value: None if value == "p" else "a path"), "p", 3, "a path"),
    ],
)
def test_what_is_allowed_is_said_where_it_is_refused(allowed: Any, good: Any, bad: Any, text: str) -> None:
    assert allowed.why_not(good) is None
    assert allowed.why_not(bad) == text == allowed.text


def test_values_come_before_rules_that_read_them() -> None:
    rule = Rule("size", "any", lambda sample: sample.size > 2 and sample.kind == "weak", "2 unless strong")
    assert list(refusals(Sample(size=5), rows_of(Sample), [rule])) == [("size", "2 unless strong")]
    assert next(refusals(Sample(size="5"), rows_of(Sample), [rule]))[1].startswith("a whole number")  # type: ignore[arg-type]  # the mistake


def test_an_option_that_does_not_say_what_is_allowed_is_an_error_of_ours() -> None:
    class Bare(TypedDict):
        size: Annotated[int, Option("how large")]

    with pytest.raises(TypeError, match="say which values are allowed"):
        rows_of(Bare)


@pytest.mark.parametrize("declared", [QoS, Wanted, ReceiverOptions, Acking, PushOptions])
def test_every_option_of_a_call_is_a_row_with_a_line_of_documentation(declared: type) -> None:
    rows = rows_of(declared)
    assert list(rows) == list(declared.__annotations__) or set(rows) >= set(declared.__annotations__)
    for row in rows.values():
        assert row.doc
        assert not row.doc.endswith(".")
        assert row.text


def test_rules_are_about_policies_that_there_are() -> None:
    assert {rule.option for rule in RULES} <= set(rows_of(QoS))


def test_what_can_be_reconfigured_is_what_the_rows_call_changeable() -> None:
    assert {name for name, policy in policies().items() if policy.changeable} == set(
        Arrangement.__annotations__
    )


def test_what_a_receiver_asked_for_has_a_field_for_every_option() -> None:
    assert set(rows_of(ReceiverOptions)) - set(rows_of(Wanted)) <= set(Selection.__struct_fields__)
