"""How `helio top` sorts, filters and follows keys, and what it draws."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from heliograph.cli import run
from heliograph.cli.top import SORTS, View, _drawn


def row(channel: str, rate: float, lag: int | None = None) -> dict[str, Any]:
    return {
        "channel": channel,
        "station": "tower",
        "events/s": rate,
        "deliveries/s": rate,
        "waiting": 1,
        "wait": None,
        "dropped/s": 0.0,
        "dropped": {"oldest": int(rate)} if rate > 5 else {},
        "lag": lag,
        "receivers": 2,
    }


ROWS = [row("b.slow", 1.0, 9), row("a.fast", 10.0), row("b.fast", 10.0, 3)]


def names(view: View) -> list[str]:
    return [one["channel"] for one in view.chosen(ROWS)]


def test_rows_are_sorted_by_number_downwards_and_by_name_within() -> None:
    assert names(View()) == ["a.fast", "b.fast", "b.slow"]
    assert names(View("lag")) == ["b.slow", "b.fast", "a.fast"]
    assert names(View("channel")) == ["a.fast", "b.fast", "b.slow"]
    assert names(View("dropped")) == ["a.fast", "b.fast", "b.slow"]


def test_keys_sort_reverse_filter_and_end() -> None:
    view = View()
    assert view.press("r")
    assert names(view) == ["b.slow", "a.fast", "b.fast"]
    for _ in SORTS:
        assert view.press("s")
    assert view.sort == "events/s"
    for key in "/b.q":
        assert view.press(key)  # q is text while a filter is typed
    assert view.wanted == "b.q"
    assert view.press("\x7f")
    assert view.press("\r")
    assert names(view) == ["b.slow", "b.fast"]
    assert "filter: b." in view.status
    assert not view.press("q")


def test_hostile_names_are_drawn_as_text() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    console.print(_drawn([row("[bold]\x1b[2J", 1.0)], View(), ["\x1b]0;owned\x07"]))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert "[bold]\\x1b[2J" in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text


def test_a_column_that_is_not_there_is_refused() -> None:
    assert run(["top", "--sort", "speed"]) == 2
