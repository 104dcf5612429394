from __future__ import annotations

import pytest

from heliograph.errors.sentences import SHOWN, brief, listed


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([], "none"),
        (["a"], "a"),
        (["a", 2], "a, 2"),
        ("abcdefgh", "a, b, c, d, e, f, g, h"),
        ("abcdefghi", "a, b, c, d, e, f, g, h and 1 more"),
        (range(1, 2001), "1, 2, 3, 4, 5, 6, 7, 8 and 1,992 more"),
    ],
)
def test_a_list_shows_its_first_items_and_counts_the_others(items: list[object], text: str) -> None:
    assert listed(items) == text


def test_another_joint_and_another_number_can_be_chosen() -> None:
    assert listed("abc", joint=" or ", shown=2) == "a or b and 1 more"


def test_a_long_value_is_shown_by_both_its_ends() -> None:
    assert brief("x" * 50) == repr("x" * 50)
    text = brief("a" + "x" * 1000 + "z")
    assert text.startswith("'ax")
    assert text.endswith("xz'")
    assert len(text) <= 60


def test_a_sentence_shows_a_handful() -> None:
    assert listed(range(SHOWN)) == ", ".join(map(str, range(SHOWN)))
