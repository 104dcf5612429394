"""LIKE patterns: how they are cut, and that none takes more than linear time."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from heliograph.filters import arrow
from heliograph.filters.like import BadPattern, regex, segments
from heliograph.filters.python import compile_one
from tests.unit.filters.examples import condition


@pytest.mark.parametrize(
    ("pattern", "escape", "expected"),
    [
        ("", None, [""]),
        ("abc", None, ["abc"]),
        ("%", None, ["", ""]),
        ("%%%", None, ["", ""]),
        ("a%", None, ["a", ""]),
        ("%a%%b%", None, ["", "a", "b", ""]),
        ("a_b%", None, ["a?b", ""]),
        ("a!%b", "!", ["a%b"]),
        ("a!_!!%", "!", ["a_!", ""]),
        ("%%", "%", ["%"]),
        ("\\%", None, ["\\", ""]),
    ],
)
def test_a_pattern_is_cut_at_its_percent_signs(pattern: str, escape: str | None, expected: list[str]) -> None:
    found = segments(pattern, escape)
    assert ["".join("?" if part is None else part for part in segment) for segment in found] == expected


@pytest.mark.parametrize(
    ("pattern", "escape"), [("a!", "!"), ("!a", "!"), ("a", ""), ("a", "ab"), ("a" * 1_001, None)]
)
def test_patterns_that_cannot_be_right_are_refused(pattern: str, escape: str | None) -> None:
    with pytest.raises(BadPattern):
        segments(pattern, escape)


def test_every_character_stands_for_itself_in_the_regular_expression() -> None:
    for number in [*range(0x250), 0x2028, 0xFFFF, 0x1F600]:
        character = chr(number)
        if character in "%_":
            continue
        compiled = re.compile(regex(segments(f"_{character}%x", None), atomic=True))
        assert compiled.fullmatch(f"a{character}bx"), hex(number)
        assert not compiled.fullmatch("a" + chr(number + 1) + "bx"), hex(number)


def test_patterns_that_make_backtracking_explode_end() -> None:
    """With plain `.*` this would never end; the time limit of the suite is enough to notice."""
    checked = condition("region LIKE :p", p="%a" * 250 + "%b_")
    text = "a" * 20_000
    matches = compile_one(checked)
    assert matches(type("Event", (), {"region": text})) is False
    assert matches(type("Event", (), {"region": text + "bc"})) is True
    batch = pa.record_batch({"region": [text, text + "bc"]})
    assert arrow.mask(checked, batch).to_pylist() == [False, True]
